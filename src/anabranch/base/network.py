"""The network, passed in: links that carry bytes in, and bytes and file ranges out.

A server gives `listen` a factory of `Peer`s, the upper half of a connection; a client gives `connect`
one.  The lower half is a `Link`.  A simulation brings its own `Network` and with it links that delay,
cut and lose.

    socket ──> Peer.buffer()     where the next bytes should go (nothing is copied on the way in)
               Peer.received(n)  n of them arrived
    Peer  ───> Link.send(...)    bytes and FileRanges, in order; never blocks
               Link.unsent       how many bytes have not left yet
    Link  ───> Peer.drained()    all has left

What is sent leaves in the call itself when the socket takes it.  What it does not take waits here,
as references: a `FileRange` is not read until the socket has room, so a client that does not read
its answers costs their headers, not their records.

File ranges go out by `sendfile`.  A page that is not in the cache would block the whole loop there,
so a range that is not there is first read by a thread (`base/disk`) and the send goes on after that.
"""

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

from anabranch.base.disk import Buffer, File
from anabranch.base.errors import Refused, Unavailable

log = logging.getLogger(__name__)


_SMALL_BYTES = 16 * 1024
_REFUSED = f"[Errno {errno.ECONNREFUSED}]"
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)


class FileRange(NamedTuple):
    """`size` bytes of `file` from `position`."""

    file: File
    position: int
    size: int

    def is_cached(self) -> bool:
        """Whether it can be read without waiting for the disk."""
        return self.file.is_cached(self.position, self.size)

    def read_ahead(self) -> "asyncio.Future[None]":
        """Bring it into memory; done when it is there."""
        return self.file.read_ahead(self.position, self.size)


Chunk = Buffer | FileRange


class Link(Protocol):
    """The lower half of a connection."""

    unsent: int
    remote: str

    def send(self, chunks: Sequence[Chunk]) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None:
        """Close once everything sent so far has left."""

    def abort(self) -> None:
        """Close now."""


class Peer(Protocol):
    """The upper half of a connection."""

    def opened(self, link: Link) -> None: ...

    def buffer(self) -> memoryview: ...

    def received(self, size: int) -> None: ...

    def drained(self) -> None: ...

    def closed(self) -> None: ...


class Listener(Protocol):
    host: str
    port: int

    def close(self) -> None:
        """Take no new connections; the open ones stay."""


class SocketOptions(NamedTuple):
    """How a listener's sockets are set up; -1 leaves a buffer to the operating system."""

    backlog: int = 50
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


class Network(Protocol):
    async def listen(
        self, host: str, port: int, factory: Callable[[], Peer], options: SocketOptions
    ) -> Listener: ...

    async def connect(self, host: str, port: int, peer: Peer, timeout_s: float) -> Link:
        """Open a connection; `peer` is its upper half here, whose opened() has been called when this returns.

        Unavailable if nobody answers in time, and Refused if nobody listens there.
        """


async def open_server(
    factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
) -> asyncio.Server:
    """A server that listens.  Cancelled, it leaves no socket behind, as `create_server` alone would."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(factory, host, port, start_serving=False, **options)
    try:
        await server.start_serving()
    except BaseException:
        server.close()
        raise
    return server


def _size(chunk: Chunk) -> int:
    return chunk.size if type(chunk) is FileRange else len(cast(Buffer, chunk))


class TcpLink(asyncio.BufferedProtocol):
    """A link over a TCP socket.

    Reading is the event loop's; writing is done here on a duplicate of the descriptor, because
    neither uvloop nor asyncio can put a `sendfile` in order with other writes.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._queue: deque[Chunk] = deque()
        self._blocked = False  # the socket is full, or a cold range is being read
        self._warmed = False  # the range at the front has been read by a thread
        self._closing = False
        self._fd = -1
        self.unsent = 0
        self.remote = "?"
        self.buffer_updated = peer.received  # type: ignore[method-assign, assignment]  # a call less

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    # --- the event loop's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, transport)
        sock = cast(socket.socket, transport.get_extra_info("socket"))
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._fd = os.dup(sock.fileno())
        except OSError as error:
            log.warning("a connection is closed at once, it could not be set up: %s", error)
            self._transport.abort()
            return
        self._sock = socket.socket(fileno=self._fd)
        self._sock.setblocking(False)
        name = transport.get_extra_info("peername")
        self.remote = f"{name[0]}:{name[1]}" if name else "?"
        self._peer.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._peer.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._peer.received(nbytes)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._fd < 0:
            return
        if self._blocked:
            self._loop.remove_writer(self._fd)
        self._sock.close()
        self._fd = -1
        self._queue.clear()
        self.unsent = 0
        self._peer.closed()

    # --- the peer's side

    def send(self, chunks: Sequence[Chunk]) -> None:
        if not self._queue and self._fd >= 0:
            whole = chunks[0] if len(chunks) == 1 and type(chunks[0]) is bytes else _as_whole(chunks)
            if whole is not None:
                try:
                    sent = self._sock.send(whole)
                except OSError:
                    sent = 0  # a full socket or a broken one: the pump will tell
                if sent == len(whole):
                    return
                chunks = (memoryview(whole)[sent:],)
        for chunk in chunks:
            size = _size(chunk)
            if size:
                self._queue.append(chunk)
                self.unsent += size
        if not self._blocked and self._fd >= 0:
            self._pump()

    def pause(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        self._closing = True
        self.pause()
        if not self._queue:
            self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    # --- writing

    def _pump(self) -> None:
        """Send until the queue is empty or the socket is full."""
        try:
            while self._queue:
                head = self._queue[0]
                if type(head) is FileRange:
                    # Once is enough: there are file systems that always say they would wait.
                    if not self._warmed and not head.is_cached():
                        self._block()
                        head.read_ahead().add_done_callback(self._read)
                        return
                    self._send_range(head)
                else:
                    self._send_bytes()
        except BlockingIOError:
            self._block()
            self._loop.add_writer(self._fd, self._writable)
            return
        except OSError as error:
            log.debug("%s: sending failed: %s", self.remote, error)
            self._transport.abort()
            return
        if self._closing:
            self._transport.abort()

    def _send_range(self, head: FileRange) -> None:
        sent = os.sendfile(self._fd, head.file.fileno(), head.position, head.size)
        if not sent:
            raise OSError(f"{head.file.path} ends before {head.position + head.size}")
        self.unsent -= sent
        if sent == head.size:
            self._queue.popleft()
            self._warmed = False
        else:
            self._queue[0] = FileRange(head.file, head.position + sent, head.size - sent)

    def _send_bytes(self) -> None:
        """Send the buffers at the front of the queue in one call."""
        queue = self._queue
        if len(queue) == 1:
            sent = self._sock.send(cast(Buffer, queue[0]))
        else:
            front: list[Buffer] = []
            flags = 0
            for chunk in queue:
                if type(chunk) is FileRange:
                    flags = socket.MSG_MORE
                    break
                front.append(cast(Buffer, chunk))
                if len(front) == 64:
                    break
            sent = self._sock.sendmsg(front, (), flags)
        self.unsent -= sent
        while sent:
            head = cast(Buffer, queue[0])
            if sent < len(head):
                queue[0] = memoryview(head)[sent:]
                return
            sent -= len(head)
            queue.popleft()

    def _block(self) -> None:
        self._blocked = True

    def _writable(self) -> None:
        self._loop.remove_writer(self._fd)
        self._unblock()

    def _read(self, done: "asyncio.Future[None]") -> None:
        error = done.exception()
        if self._fd < 0:
            return
        if error is not None:
            log.warning("%s: reading the log failed: %s", self.remote, error)
            self._transport.abort()
            return
        self._warmed = True
        self._unblock()

    def _unblock(self) -> None:
        self._blocked = False
        self._pump()
        if not self._queue and self._fd >= 0:
            self._peer.drained()


def _as_whole(chunks: Sequence[Chunk]) -> Buffer | None:
    """`chunks` as one buffer, which one call sends; None if they are more than that is worth."""
    buffers = cast(Sequence[Buffer], chunks) if FileRange not in map(type, chunks) else _as_buffers(chunks)
    if buffers is None:
        return None
    return buffers[0] if len(buffers) == 1 else b"".join(buffers)


def _as_buffers(chunks: Sequence[Chunk]) -> list[Buffer] | None:
    """`chunks` with what they name read in, if that is little and in the cache.

    A small range is cheaper to copy than to send on its own: one call instead of three.
    """
    buffers: list[Buffer] = []
    read = 0
    for chunk in chunks:
        if type(chunk) is not FileRange:
            buffers.append(cast(Buffer, chunk))
            continue
        read += chunk.size
        if read > _SMALL_BYTES or _NOWAIT is None:
            return None
        buffer = bytearray(chunk.size)
        try:
            if os.preadv(chunk.file.fileno(), [buffer], chunk.position, _NOWAIT) != chunk.size:
                return None
        except OSError:  # not in the cache, or no such question: the pump knows what to do
            return None
        buffers.append(buffer)
    return buffers


class _TcpListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.host, self.port = server.sockets[0].getsockname()[:2]

    def close(self) -> None:
        self._server.close()


def _is_refused(error: OSError) -> bool:
    """Whether every address that was tried refused; asyncio tells of several in words only."""
    if isinstance(error, ConnectionRefusedError):
        return True
    text = str(error)
    return text.startswith("Multiple exceptions") and text.count("[Errno ") == text.count(_REFUSED)


class TcpNetwork:
    """Real sockets on the running event loop."""

    async def listen(
        self, host: str, port: int, factory: Callable[[], Peer], options: SocketOptions
    ) -> Listener:
        server = await open_server(
            lambda: TcpLink(factory()), host, port, backlog=options.backlog, reuse_address=True
        )
        for sock in server.sockets:  # accepted sockets inherit these
            for option, size in (
                (socket.SO_SNDBUF, options.send_buffer_bytes),
                (socket.SO_RCVBUF, options.receive_buffer_bytes),
            ):
                if size >= 0:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
        return _TcpListener(server)

    async def connect(self, host: str, port: int, peer: Peer, timeout_s: float) -> Link:
        link = TcpLink(peer)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().create_connection(lambda: link, host, port)
        except TimeoutError as error:
            raise Unavailable(f"{host}:{port} cannot be reached: no answer in {timeout_s:g} s") from error
        except OSError as error:
            kind = Refused if _is_refused(error) else Unavailable
            raise kind(f"{host}:{port} cannot be reached: {error}") from error
        except ValueError as error:  # uvloop raises the second for a name that cannot be one
            raise Unavailable(f"{host}:{port} cannot be reached: {error}") from error
        if not link.is_open:
            raise Unavailable(f"{host}:{port} cannot be reached: the connection was closed at once")
        return link
