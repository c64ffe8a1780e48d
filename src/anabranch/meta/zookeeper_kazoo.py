"""kazoo's inside: the names of it that it does not promise to keep, and what they are needed for.

All that touches them is in this module, and `pyproject.toml` holds kazoo to the minor version (2.11) that
it was written against.  kazoo has no call, and no place to put one, for

    AddWatch     a persistent recursive watch (ZooKeeper 3.6): one for all that is below a node
    MultiRead    many reads in one request (ZooKeeper 3.6): a scan is few requests, not one per node
    `Life`       when the last request that was answered had been sent: so long ago the session lived
    the reason   why a connection broke, which kazoo writes to its log and tells nobody

Everything here runs on kazoo's threads.  `told` gets the events of watches and must not block.
"""

import logging
import math
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, ConnectionDropped, NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import WATCH_XID, ConnectionHandler
from kazoo.protocol.serialization import (
    Connect,
    GetChildren,
    GetData,
    MultiHeader,
    Watch,
    int_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
    write_string,
)
from kazoo.protocol.states import KeeperState, ZnodeStat

Told = Callable[[int, str], None]
"""Of an event: its type (1: made, 2: gone, 3: changed) and its path."""

_PERSISTENT_RECURSIVE = 1
_NODE_EVENTS = (1, 2, 3)
_NO_NODE: int = NoNodeError.code

# kazoo's log tells of every connection that broke, as a warning; the store tells its story itself.
_log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger("anabranch.meta.zookeeper.kazoo")
_kazoo_log.setLevel(logging.ERROR)


class AddWatch:
    type = 106

    def __init__(self, path: str) -> None:
        self.path = path

    def serialize(self) -> bytes:
        return bytes(write_string(self.path) + int_struct.pack(_PERSISTENT_RECURSIVE))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> bool:
        return True


class MultiRead:
    """What each read would give alone: (data, stat) or names; None where there is no such node."""

    type = 22

    def __init__(self, reads: Sequence[GetData | GetChildren]) -> None:
        self.reads = reads

    def serialize(self) -> bytes:
        parts = bytearray()
        for read in self.reads:
            parts += multiheader_struct.pack(read.type, False, -1)
            parts += read.serialize()
        return bytes(parts + multiheader_struct.pack(-1, True, -1))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        header, offset = MultiHeader.deserialize(data, offset)
        while not header.done:
            result: Any
            if header.type == GetData.type:
                content, offset = read_buffer(data, offset)
                result = content, ZnodeStat._make(stat_struct.unpack_from(data, offset))
                offset += stat_struct.size
            elif header.type == GetChildren.type:
                result, offset = _read_names(data, offset)
            else:
                error = int_struct.unpack_from(data, offset)[0]
                offset += int_struct.size
                result = None if error == _NO_NODE else EXCEPTIONS[error]()
            results.append(result)
            header, offset = MultiHeader.deserialize(data, offset)
        return results


def _read_names(data: bytes, offset: int) -> tuple[list[str], int]:
    count = int_struct.unpack_from(data, offset)[0]
    offset += int_struct.size
    names = []
    for _ in range(count):
        name, offset = read_string(data, offset)
        names.append(name)
    return names, offset


class Life(NamedTuple):
    """Until when, on the monotonic clock, it is certain that this session has not ended."""

    session: int
    certain_until: float


_NO_LIFE = Life(0, -math.inf)


class Client(KazooClient):  # type: ignore[misc]
    """A client whose connection tells of persistent watches, and of its session's life."""

    def __init__(self, hosts: str, timeout_s: float, retry: dict[str, float], told: Told) -> None:
        super().__init__(
            hosts=hosts,
            timeout=timeout_s,
            handler=_Handler(timeout_s / 3),
            connection_retry=retry,
            logger=_kazoo_log,
        )
        self._connection: _Connection = _Connection(self, self._conn_retry.copy(), told)

    @property
    def life(self) -> Life:
        return self._connection.life

    @property
    def timeout_s(self) -> float:
        """Of the session, as the server grants it."""
        return self._connection.timeout_s

    @property
    def broke_because(self) -> str:
        return self._connection.broke_because

    @property
    def is_expired(self) -> bool:
        """Rather than closed, or broken down."""
        return bool(self.client_state == KeeperState.EXPIRED_SESSION)

    def submit(self, request: Any) -> Any:
        """Send a request of `kazoo.protocol.serialization` or of this module; its IAsyncResult."""
        answer = self.handler.async_result()
        self._call(request, answer)
        return answer

    def beat(self) -> None:
        """The event loop moves.  If it does not for as long as a session lasts, its session is let end."""
        self._connection.beaten = time.monotonic()

    def _safe_close(self) -> None:
        self._connection.give_up_greeting()
        super()._safe_close()

    def hand_over(self, call: Callable[[], None]) -> None:
        """Call back on the thread that answers come from, behind those that came before."""
        self.handler.completion_queue.put(call)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Gives a server that does not answer at all a part of the session's timeout, not all of it."""

    def __init__(self, connect_timeout_s: float) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s

    def create_connection(self, *args: Any, **options: Any) -> Any:
        return super().create_connection(*args, **options | {"timeout": self._connect_timeout_s})


class _Connection(ConnectionHandler):  # type: ignore[misc]
    def __init__(self, client: Client, retry: Any, told: Told) -> None:
        super().__init__(client, retry, logger=_kazoo_log)
        self.life = _NO_LIFE
        self.timeout_s = 0.0
        self.broke_because = "no server answers"
        self.beaten = time.monotonic()
        self._told = told
        self._sent: dict[int | None, float] = {}  # by xid, when
        self._is_greeting = False

    def give_up_greeting(self) -> None:
        """The client stops, and waits for a server that may never say anything: as if that had hung up."""
        if self._is_greeting:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        # Before it is sent; and the first of several pings, for who knows which one an answer is to.
        self._sent.setdefault(xid, time.monotonic())
        super()._submit(request, timeout, xid)

    def _send_ping(self, timeout: float) -> None:
        # Who stands still serves nobody, and must not be taken for alive because this thread is.
        still_s = time.monotonic() - self.beaten
        if still_s <= self.timeout_s:
            super()._send_ping(timeout)
        else:
            _log.error("the event loop has stood still for %.0f s; the metadata session is let end", still_s)

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        self._sent.clear()
        self._is_greeting = True
        try:
            if self.client._stopped.is_set():  # just now: nobody will give it up
                raise ConnectionDropped("the client stops")
            answer = super()._invoke(timeout, request, xid)
        finally:
            self._is_greeting = False
        granted = answer[0]
        if granted.time_out > 0:
            self.timeout_s = granted.time_out / 1000
            if self.life.session != granted.session_id:
                self.life = Life(granted.session_id, -math.inf)
            self._answered(xid)
        return answer

    def _read_header(self, timeout: float) -> Any:
        header, data, offset = super()._read_header(timeout)
        if header.xid != WATCH_XID:
            self._answered(header.xid)
        return header, data, offset

    def _answered(self, xid: int | None) -> None:
        sent = self._sent.pop(xid, None)
        if sent is not None:
            until = sent + self.timeout_s * 2 / 3
            self.life = Life(self.life.session, max(until, self.life.certain_until))

    def _read_watch_event(self, data: bytes, offset: int) -> None:
        event, _ = Watch.deserialize(data, offset)
        if event.type in _NODE_EVENTS:  # there are none but persistent watches
            self._told(event.type, event.path)
        else:
            super()._read_watch_event(data, offset)

    def _connect_loop(self, retry: Any) -> Any:
        # What was asked for after the connection broke, before the loop heard of it, must not be done late.
        self.client._notify_pending(KeeperState.CONNECTING)
        return super()._connect_loop(retry)

    @contextmanager
    def _socket_error_handling(self) -> Iterator[None]:
        try:
            with super()._socket_error_handling():
                yield
        except (ConnectionDropped, self.handler.timeout_exception) as error:
            self.broke_because = str(error)
            raise
