"""A local cluster: ZooKeeper and brokers on this machine, a process each, under one supervisor.

plan          which processes, what each is started with, where it keeps things
member        one process: started, watched, started again, killed, paused
supervisor    all of them, and what they are told by commands
control       how commands reach the supervisor
up            the supervisor's process from its start to its end
"""
