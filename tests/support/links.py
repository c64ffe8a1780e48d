"""A link that goes nowhere: what was sent is kept, what was asked for is counted."""

from collections.abc import Iterable

from anabranch.base.network import Chunk, FileRange


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
