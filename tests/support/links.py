"""Links that go nowhere, and peers: they keep what comes and count what is asked of them."""

from collections.abc import Callable, Iterable

from anabranch.base.network import Chunk, FileRange, Link


class RecordingLink:
    """Takes everything at once, unless `full`: then everything waits until `drain`."""

    def __init__(self, remote: str = "127.0.0.1:50000") -> None:
        self.remote = remote
        self.unsent = 0
        self.full = False
        self.paused = False
        self.closed = False
        self.aborted = False
        self.chunks: list[Chunk] = []
        self.sends = 0

    def send(self, chunks: Iterable[Chunk]) -> None:
        chunks = list(chunks)
        self.sends += 1
        self.chunks += chunks
        if self.full:
            self.unsent += sum(chunk.size if isinstance(chunk, FileRange) else len(chunk) for chunk in chunks)

    def drain(self) -> None:
        """The client has read everything."""
        self.full = False
        self.unsent = 0

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True
        self.pause()

    def abort(self) -> None:
        self.aborted = True

    @property
    def sent(self) -> bytes:
        """What the client would have read, records included."""
        return b"".join(
            chunk.file.pread(chunk.size, chunk.position) if isinstance(chunk, FileRange) else bytes(chunk)
            for chunk in self.chunks
        )

    def take(self) -> bytes:
        sent, self.chunks = self.sent, []
        return sent


class Upper:
    """The upper half of a connection: keeps what comes, tells what happened."""

    def __init__(self) -> None:
        self.link: Link
        self.got = b""
        self.happened: list[str] = []
        self.on_received: Callable[[], None] = lambda: None
        self._buffer = memoryview(bytearray(65536))

    def opened(self, link: Link) -> None:
        self.link = link
        self.happened.append("opened")

    def buffer(self) -> memoryview:
        return self._buffer

    def received(self, size: int) -> None:
        self.got += bytes(self._buffer[:size])
        self.on_received()

    def drained(self) -> None:
        self.happened.append("drained")

    def closed(self) -> None:
        self.happened.append("closed")
