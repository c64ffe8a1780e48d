"""The processes of Spark's that run us: one serves a task after the other, and may go on so for days.

PySpark collects garbage after each task, and so looks at every object of every module that was loaded: 12 ms,
as long as our own part in a small micro-batch takes, four times a micro-batch.  What is loaded stays loaded,
and need not be looked at.

Spark sends a task in two pieces, through a socket on which the second waits until the first is acknowledged,
and the kernel waits 40 ms with that, in case there is an answer to send it with: as long as all the rest of a
small task takes.  The first piece has what is to be run, so the first of us that comes out of it says to the
kernel that it need not wait.
"""

import gc
import os
import socket
import sys
from contextlib import suppress
from functools import cache
from stat import S_ISSOCK
from typing import Any


@cache
def keep_what_is_loaded() -> None:
    """Called when all modules are there, or nearly.  Later calls do nothing."""
    gc.collect()
    gc.freeze()


def acknowledge() -> None:
    """What has come in on connections of this process is acknowledged now."""
    if sys.platform != "linux":
        return
    with suppress(OSError):  # no list of descriptors: then it takes 40 ms
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # the one of the list itself is closed by now
                if S_ISSOCK(os.fstat(int(name)).st_mode):
                    _acknowledge(int(name))


def _acknowledge(descriptor: int) -> None:
    is_blocking = os.get_blocking(descriptor)
    try:
        with socket.socket(fileno=os.dup(descriptor)) as one:
            if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    finally:
        # Where somebody has set a default timeout Python makes it not so, for all who share the socket.
        os.set_blocking(descriptor, is_blocking)


class Travels:
    """One that Spark sends to the processes of tasks, as part of what is to be run."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()
