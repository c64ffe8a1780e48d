"""Frames from a socket: a length of four bytes, then that many bytes.  Kafka's and Pulsar's alike.

Bytes are received where they will be used.  All connections share one scratch buffer for what is
whole when it arrives, which is nearly everything; a frame that is not gets a buffer of its own until
it is complete.  So an idle connection holds no memory.  A frame that would fill most of the scratch
buffer keeps that one, and the others get another, so that the large frames of a busy producer are not
copied at all.

    scratch  │len│ frame │len│ frame │len│ begin…        handled in place, in order
                                     └──────────┐
    own      │len│ begin… ── more arrives here ─►│        handled when whole

No length is trusted before the bytes are there: a frame's buffer grows with what arrives, not with what the
length claims (a large one is for frames of which much is there), and the claim is charged to a budget
that all connections share.  While that is spent
(`_starved`), or while the owner has said `stop` (`stopped`), the socket is not read; what was read
already waits in `_rest`.
"""

import struct
from typing import Protocol

from anabranch.base.budget import ByteBudget
from anabranch.base.clock import Clock
from anabranch.base.errors import Corrupt, TooLarge
from anabranch.base.network import Link

SCRATCH_BYTES = (1 << 20) + (1 << 16)  # room for a frame around one batch of 1 MB
WINDOW_BYTES = 128 * 1024  # of the scratch buffer that one read fills: what waits behind a stop is no more
_LARGE_BYTES = SCRATCH_BYTES // 2  # a smaller frame does not get a whole buffer of that size
_MUCH_BYTES = 32 * 1024
_FREE_BYTES = 64 * 1024  # frames up to this size are not charged
_MAX_SPARES = 4
_MOVES_AFTER_S = 1.0
_WHOLE_AFTER_S = 60.0
_LENGTH = struct.Struct(">i")
_PREFIX = 4
_NOTHING = memoryview(b"")


class Buffers:
    """The memory that connections share: the scratch buffer, and large ones that are between frames.

    Touching fresh memory costs more than receiving into it, so a few buffers are kept; how many does
    not depend on the number of connections.
    """

    __slots__ = ("_resting", "_spares", "scratch", "window")

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.window = self.scratch[:WINDOW_BYTES]
        self._spares: list[memoryview] = []
        self._resting = False

    def take(self, size: int) -> memoryview:
        if not _LARGE_BYTES <= size <= SCRATCH_BYTES:
            return memoryview(bytearray(size))
        self._resting = False
        return (self._spares.pop() if self._spares else memoryview(bytearray(SCRATCH_BYTES)))[:size]

    def keep(self, data: memoryview, at: int, size: int) -> memoryview | None:
        """The `size` bytes from `at` of the scratch buffer, if `data` is that and they would fill most of it.

        The caller has them for its own; `scratch` is another buffer from now on.
        """
        if size < _LARGE_BYTES or at + size > SCRATCH_BYTES or data.obj is not self.scratch.obj:
            return None
        kept = self.scratch[at : at + size]
        self.scratch = self.take(SCRATCH_BYTES)
        self.window = self.scratch[:WINDOW_BYTES]
        return kept

    def give(self, buffer: memoryview) -> None:
        """Nobody needs `buffer`, which `take` gave out, any more."""
        whole: bytearray = buffer.obj  # type: ignore[assignment]
        if len(whole) == SCRATCH_BYTES and len(self._spares) < _MAX_SPARES:
            self._spares.append(memoryview(whole))

    def relax(self) -> None:
        """Called now and then: give up what has not been used since the last time."""
        if self._resting:
            self._spares.clear()
        self._resting = True


class Owner(Protocol):
    """Whose frames they are."""

    def handle(self, frame: memoryview) -> None:
        """A frame is whole; its buffer is used again afterwards."""

    def between(self) -> None:
        """More frames wait behind the one just handled: the time to say `stop`, if it has been long."""

    def fed(self) -> None:
        """The budget has room again: call `proceed`."""


class Frames:
    """The frames of one connection."""

    __slots__ = (
        "_budget",
        "_buffers",
        "_charged",
        "_charged_at",
        "_clock",
        "_closed",
        "_filled",
        "_filled_then",
        "_handle",
        "_link",
        "_max_bytes",
        "_own",
        "_owner",
        "_rest",
        "_size",
        "_starved",
        "stopped",
    )

    def __init__(
        self, buffers: Buffers, budget: ByteBudget, max_bytes: int, link: Link, owner: Owner, clock: Clock
    ) -> None:
        self._buffers = buffers
        self._budget = budget
        self._max_bytes = max_bytes
        self._link = link
        self._owner = owner
        self._clock = clock
        self._handle = owner.handle
        self._own: memoryview | None = None
        self._filled = 0
        self._size = 0  # of the frame in `_own`, prefix included; 0 while not known
        self._charged = 0
        self._charged_at = 0.0
        self._filled_then = 0
        self._rest = _NOTHING
        self.stopped = False
        self._starved = False
        self._closed = False

    @property
    def is_holding(self) -> bool:
        """Whether a charged frame is incomplete."""
        return self._charged > 0

    def is_late(self) -> bool:
        """Whether a frame that holds memory comes too slowly for others to wait for it.

        It must move at all in the first second, and be on its way to be whole within a minute.
        """
        if not self._charged:
            return False
        age_s = self._clock.monotonic() - self._charged_at
        if age_s <= _MOVES_AFTER_S:
            return False
        return self._filled == self._filled_then or self._filled * _WHOLE_AFTER_S < self._size * age_s

    # --- receiving

    def buffer(self) -> memoryview:
        """Where the next bytes go."""
        own = self._own
        if own is None:
            return self._buffers.window
        if self._filled == len(own):
            own = self._grow(own)
        return own[self._filled :]

    def received(self, size: int) -> None:
        """`size` bytes are in the buffer.  Corrupt or TooLarge if they cannot begin a frame."""
        own = self._own
        if own is None:
            self._split(self._buffers.scratch[:size])
            if self._rest:
                self._rest = memoryview(bytearray(self._rest))  # the scratch buffer is everybody's
            return
        self._filled += size
        if not self._size:
            if self._filled < _PREFIX:
                return
            self._begin(_PREFIX + self._length(own), own, 0)
        elif self._filled == self._size:
            self._finish(own)

    def _split(self, data: memoryview) -> None:
        """Handle the whole frames of `data` and keep what is left."""
        budget = self._budget
        if budget.used > budget.limit > 0:  # work that has begun took more than there is
            self._rest = data
            self._starve()
            return
        at, end = 0, len(data)
        while end - at >= _PREFIX:
            if self.stopped:
                self._rest = data[at:]
                return
            (length,) = _LENGTH.unpack_from(data, at)
            stop = at + _PREFIX + length
            if not 0 <= length <= self._max_bytes:
                self._length(data, at)
            if stop > end:
                break
            self._handle(data[at + _PREFIX : stop])
            at = stop
            if at != end:
                self._owner.between()
        if at == end:
            return
        if self.stopped:
            self._rest = data[at:]
        elif end - at < _PREFIX:
            self._own = memoryview(bytearray(_PREFIX))
            self._own[: end - at] = data[at:]
            self._filled, self._size = end - at, 0
        else:
            self._begin(_PREFIX + self._length(data, at), data, at)

    def _length(self, data: memoryview, at: int = 0) -> int:
        length: int = _LENGTH.unpack_from(data, at)[0]
        if length < 0:
            raise Corrupt(f"a frame claims {length} bytes")
        if length > self._max_bytes:
            raise TooLarge(f"a frame claims {length} bytes, the limit is {self._max_bytes}")
        return length

    # --- a frame that is not whole yet

    def _begin(self, size: int, data: memoryview, at: int) -> None:
        """The end of `data`, from `at`, is the beginning of a frame of `size` bytes."""
        filled = len(data) - at
        self._filled, self._size = filled, size
        if size > _FREE_BYTES and not self._charge():
            self._own = memoryview(bytearray(data[at:]))
            return
        own = self._buffers.keep(data, at, size) if filled >= _MUCH_BYTES else None
        if own is None:
            own = self._buffers.take(min(size, SCRATCH_BYTES if filled >= _MUCH_BYTES else _FREE_BYTES))
            own[:filled] = data[at:]
        self._own = own
        if size == filled:
            self._finish(own)

    def _charge(self) -> bool:
        """Take the frame's size from the budget, or read no further."""
        if self._budget.has_room(self._size):
            self._budget.charge(self._size)
            self._charged = self._size
            self._charged_at = self._clock.monotonic()
            self._filled_then = self._filled
            return True
        self._starve()
        return False

    def _starve(self) -> None:
        """Wait for the budget."""
        self._starved = True
        self._link.pause()
        self._budget.wait(self._fed)

    def _fed(self) -> None:
        """It is worth asking the budget again."""
        self._starved = False
        if self._own is not None:
            self._charge()
        if not self._starved:
            self._owner.fed()

    def _grow(self, own: memoryview) -> memoryview:
        larger = self._buffers.take(min(self._size, max(SCRATCH_BYTES, 2 * len(own))))
        larger[: len(own)] = own
        self._own = larger
        self._buffers.give(own)
        return larger

    def _finish(self, own: memoryview) -> None:
        size = self._size
        self._own = None
        self._size = 0
        try:
            self._handle(own[_PREFIX:size])
        finally:
            self._buffers.give(own)
            self._refund()

    def _refund(self) -> None:
        if self._charged:
            charged, self._charged = self._charged, 0
            self._budget.give(charged)

    # --- the owner's say

    def stop(self) -> None:
        """Handle no further frame until `go`."""
        if not self.stopped:
            self.stopped = True
            self._link.pause()

    def go(self) -> None:
        if self.stopped and not self._closed:
            self.stopped = False
            self.proceed()

    def proceed(self) -> None:
        """Go on with what was read already, then with reading, if nothing speaks against it."""
        if self.stopped or self._starved:
            return
        rest, self._rest = self._rest, _NOTHING
        if rest:
            self._split(rest)
        if not self.stopped and not self._starved:
            self._link.resume()

    def close(self) -> None:
        """No further frame is handled, whatever is called."""
        self.stop()
        self._closed = True
        self._budget.stop_waiting(self._fed)
        self._own = None
        self._rest = _NOTHING
        self._refund()
