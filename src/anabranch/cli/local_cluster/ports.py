"""Free ports that stay free: nobody else gets one while the process that has it is down.

A socket that is bound and does not listen: the kernel gives its port to nobody who asks for any, and whoever
says SO_REUSEADDR, as servers do, may listen there.  Only Linux has it so; elsewhere the port is free for now.
"""

import socket
import sys


class FreePorts:
    def __init__(self, host: str) -> None:
        self._host = host
        self._held: list[socket.socket] = []

    def take(self) -> int:
        held = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((self._host, 0))
        port = int(held.getsockname()[1])
        if sys.platform == "linux":
            self._held.append(held)
        else:
            held.close()
        return port

    def close(self) -> None:
        for held in self._held:
            held.close()
