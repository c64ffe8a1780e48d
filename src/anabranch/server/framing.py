"""Frames from a socket: a length of four bytes, then that many bytes.  Kafka's and Pulsar's alike.

Bytes are received where they will be used.  All connections share one scratch buffer for what is
whole when it arrives, which is nearly everything; a frame that is not gets a buffer of its own until
it is complete.  So an idle connection holds no memory, and a large frame is copied by its first part
only.

    scratch  │len│ frame │len│ frame │len│ begin…        handled in place, in order
                                     └──────────┐
    own      │len│ begin… ── more arrives here ─►│        handled when whole

Nothing is believed before it has come: a frame's buffer grows with what arrives, not with what the
length claims, and the claim is charged to a budget that all connections share.  While that is spent,
or while the owner has said `stop`, the socket is not read; what was read already waits in `_rest`.
"""

import struct
from collections.abc import Callable

from anabranch.base.budget import ByteBudget
from anabranch.base.errors import Corrupt, TooLarge
from anabranch.base.network import Link

SCRATCH_BYTES = 256 * 1024
_FIRST_BYTES = (1 << 20) + (1 << 16)  # room for a frame around one batch of 1 MB
_FREE_BYTES = 64 * 1024  # frames up to this size are not charged
_LENGTH = struct.Struct(">i")
_PREFIX = 4


def scratch_buffer() -> memoryview:
    return memoryview(bytearray(SCRATCH_BYTES))


class Frames:
    """The frames of one connection."""

    __slots__ = (
        "_budget",
        "_charged",
        "_filled",
        "_handle",
        "_link",
        "_max_bytes",
        "_own",
        "_rest",
        "_scratch",
        "_size",
        "_spare",
        "_starved",
        "_stopped",
    )

    def __init__(
        self,
        scratch: memoryview,
        budget: ByteBudget,
        max_bytes: int,
        link: Link,
        handle: Callable[[memoryview], None],
    ) -> None:
        self._scratch = scratch
        self._budget = budget
        self._max_bytes = max_bytes
        self._link = link
        self._handle = handle
        self._own: memoryview | None = None
        self._spare: memoryview | None = None
        self._filled = 0
        self._size = 0  # of the frame in `_own`, prefix included; 0 while not known
        self._charged = 0
        self._rest: bytes = b""
        self._stopped = False
        self._starved = False

    @property
    def is_holding(self) -> bool:
        """Whether a charged frame is incomplete."""
        return self._charged > 0

    # --- receiving

    def buffer(self) -> memoryview:
        """Where the next bytes go."""
        own = self._own
        if own is None:
            return self._scratch
        if self._filled == len(own):
            own = self._grow(own)
        return own[self._filled :]

    def received(self, size: int) -> None:
        """`size` bytes are in the buffer.  Corrupt or TooLarge if they cannot begin a frame."""
        own = self._own
        if own is None:
            self._split(self._scratch[:size])
            return
        self._filled += size
        if not self._size:
            if self._filled < _PREFIX:
                return
            self._begin(self._length(own), own[:_PREFIX])
        elif self._filled == self._size:
            self._finish(own)

    def _split(self, data: memoryview) -> None:
        """Handle the whole frames of `data` and keep what is left."""
        at, end = 0, len(data)
        while end - at >= _PREFIX:
            if self._stopped:
                self._rest = bytes(data[at:])
                return
            stop = at + _PREFIX + self._length(data, at)
            if stop > end:
                break
            self._handle(data[at + _PREFIX : stop])
            at = stop
        if at == end:
            return
        if self._stopped:
            self._rest = bytes(data[at:])
        elif end - at < _PREFIX:
            self._own = memoryview(bytearray(_PREFIX))
            self._own[: end - at] = data[at:]
            self._filled, self._size = end - at, 0
        else:
            self._begin(self._length(data, at), data[at:])

    def _length(self, data: memoryview, at: int = 0) -> int:
        length: int = _LENGTH.unpack_from(data, at)[0]
        if length < 0:
            raise Corrupt(f"a frame claims {length} bytes")
        if length > self._max_bytes:
            raise TooLarge(f"a frame claims {length} bytes, the limit is {self._max_bytes}")
        return length

    # --- a frame that is not whole yet

    def _begin(self, length: int, head: memoryview) -> None:
        size = _PREFIX + length
        capacity = min(size, _FIRST_BYTES)
        spare = self._spare
        own = spare if spare is not None and len(spare) >= capacity else memoryview(bytearray(capacity))
        self._own = own[:capacity]
        self._spare = own if capacity > _FREE_BYTES else None
        self._own[: len(head)] = head
        self._filled, self._size = len(head), size
        if size > _FREE_BYTES:
            self._charge()
        if size == len(head):
            self._finish(self._own)

    def _charge(self) -> None:
        """Take the frame's size from the budget; stop reading until that succeeds."""
        if self._own is None or self._charged:
            return
        if self._budget.take(self._size, self._charge):
            self._charged = self._size
            if self._starved:
                self._starved = False
                self._link.resume()
        elif not self._starved:
            self._starved = True
            self._link.pause()

    def _grow(self, own: memoryview) -> memoryview:
        larger = memoryview(bytearray(min(self._size, 2 * len(own))))
        larger[: len(own)] = own
        self._own = larger
        self._spare = None
        return larger

    def _finish(self, own: memoryview) -> None:
        size = self._size
        self._own = None
        self._size = 0
        try:
            self._handle(own[_PREFIX:size])
        finally:
            self._refund()

    def _refund(self) -> None:
        if self._charged:
            charged, self._charged = self._charged, 0
            self._budget.give(charged)

    # --- the owner's say

    def stop(self) -> None:
        """Handle no further frame until `go`."""
        if not self._stopped:
            self._stopped = True
            self._link.pause()

    def go(self) -> None:
        if not self._stopped:
            return
        self._stopped = False
        rest, self._rest = self._rest, b""
        if rest:
            self._split(memoryview(bytearray(rest)))
        if not self._stopped:
            self._link.resume()

    def relax(self) -> None:
        """Nothing has come for a while: give up what is only kept for speed."""
        self._spare = None

    def close(self) -> None:
        self._own = None
        self._spare = None
        self._rest = b""
        self._refund()
