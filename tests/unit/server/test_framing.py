"""Frames out of bytes: any chunking, any claim, any budget, stopped and started at any time."""

import itertools
import struct
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.budget import ByteBudget
from anabranch.base.errors import Corrupt, TooLarge
from anabranch.server.framing import SCRATCH_BYTES, WINDOW_BYTES, Buffers, Frames
from tests.support.links import RecordingLink
from tests.support.logs import SetClock
from tests.unit.records.strategies import seeded

BUFFERS = Buffers()
MAX_BYTES = 8 << 20


class Wire:
    """A connection's frames, fed as an event loop would feed them."""

    def __init__(self, budget: ByteBudget | None = None, max_bytes: int = MAX_BYTES) -> None:
        self.link = RecordingLink()
        self.budget = budget or ByteBudget(0)
        self.got: list[bytes] = []
        self.on_frame: Callable[[bytes], None] = lambda frame: None
        self.pauses = 0
        self.clock = SetClock()
        self.frames = Frames(BUFFERS, self.budget, max_bytes, self.link, self, self.clock)
        self._unread = b""

    def handle(self, frame: memoryview) -> None:
        assert not frame.readonly
        self.got.append(bytes(frame))
        self.on_frame(self.got[-1])

    def between(self) -> None:
        self.pauses += 1

    def fed(self) -> None:
        self.frames.proceed()

    def arrive(self, data: bytes) -> None:
        """`data` reaches the socket; it is read while the link is not paused."""
        self._unread += data
        self.pump()

    def pump(self) -> None:
        while self._unread and not self.link.paused:
            room = self.frames.buffer()
            assert room, "no room for what arrives"
            size = min(len(room), len(self._unread))
            room[:size] = self._unread[:size]
            self._unread = self._unread[size:]
            self.frames.received(size)

    @property
    def unread(self) -> int:
        return len(self._unread)


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        if start != end:
            yield data[start:end]


def body_of(size: int) -> bytes:
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


SIZES = st.sampled_from((0, 1, 3, 4, 5, 60, 65_532, 65_533, 70_000)) | st.integers(0, 300)


@seeded(200)
@given(
    st.lists(SIZES, min_size=1, max_size=12),
    st.lists(st.integers(0, 400_000), max_size=30),
)
def test_any_chunking_gives_the_same_frames(sizes: list[int], cuts: list[int]) -> None:
    bodies = [body_of(size) for size in sizes]
    wire = Wire(ByteBudget(100_000))
    for piece in pieces(framed(*bodies), cuts):
        wire.arrive(piece)
    assert wire.got == bodies
    assert wire.budget.used == 0


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 7, 4096, WINDOW_BYTES - 1, WINDOW_BYTES])
def test_every_chunk_size_gives_the_same_frames(chunk: int) -> None:
    bodies = [body_of(size) for size in (0, 1, 0, 17, 5000, 0, 3)]
    wire = Wire()
    data = framed(*bodies)
    for at in range(0, len(data), chunk):
        wire.arrive(data[at : at + chunk])
    assert wire.got == bodies


@pytest.mark.parametrize(
    "size", [WINDOW_BYTES - 4, WINDOW_BYTES, SCRATCH_BYTES - 4, SCRATCH_BYTES, 3 << 20, MAX_BYTES]
)
def test_a_large_frame_comes_whole(size: int) -> None:
    bodies = [body_of(size), b"after", body_of(size), b""]
    wire = Wire()
    wire.arrive(framed(*bodies))
    assert [len(body) for body in wire.got] == [len(body) for body in bodies]
    assert wire.got == bodies


def test_the_owner_is_asked_between_frames_that_came_together() -> None:
    wire = Wire()
    wire.arrive(framed(b"alone"))
    assert wire.pauses == 0
    wire.arrive(framed(b"one", b"two", b"three"))
    assert wire.pauses == 2


# --- claims


@pytest.mark.parametrize("claim", [-1, -2, -(2**31)])
@pytest.mark.parametrize("before", [b"", framed(b"fine")])
def test_a_negative_length_is_corrupt(claim: int, before: bytes) -> None:
    wire = Wire()
    with pytest.raises(Corrupt):
        wire.arrive(before + struct.pack(">i", claim))
    assert wire.got == ([b"fine"] if before else [])


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_a_length_beyond_the_limit_is_refused_before_anything_is_kept(chunk: int) -> None:
    wire = Wire(max_bytes=1000)
    wire.arrive(framed(body_of(1000)))
    data = struct.pack(">i", 1001) + body_of(200)

    def feed() -> None:
        for at in range(0, len(data), chunk):
            wire.arrive(data[at : at + chunk])

    with pytest.raises(TooLarge):
        feed()
    assert len(wire.got) == 1
    assert not wire.frames.is_holding


@pytest.mark.parametrize("sent", [1, 1000, 30_000])
@pytest.mark.parametrize("claim", [600_000, 1 << 20, 1 << 30])
def test_a_claim_takes_no_memory_before_bytes_come(claim: int, sent: int) -> None:
    wires = [Wire(max_bytes=1 << 30) for _ in range(50)]
    tracemalloc.start()
    try:
        for wire in wires:
            wire.arrive(struct.pack(">i", claim) + bytes(sent))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 50 * 70_000


def test_what_the_budget_has_no_room_for_is_held_as_it_came() -> None:
    budget = ByteBudget(4 << 20)
    wires = [Wire(budget) for _ in range(200)]
    data = framed(body_of(1 << 20))
    tracemalloc.start()
    try:
        for wire in wires:
            wire.arrive(data[:100_000])
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert sum(not wire.link.paused for wire in wires) == 3
    assert (
        held < 3 * (2 << 20) + 200 * 110_000 + 200 * 200_000
    )  # the last are what waits in the test's sockets
    for wire in wires:
        wire.arrive(data[100_000:])
    while any(wire.unread for wire in wires):
        for wire in wires:
            wire.pump()
    assert all(wire.got == [data[4:]] for wire in wires)
    assert budget.used == 0


def test_an_idle_connection_holds_no_memory() -> None:
    wires = [Wire() for _ in range(50)]
    large = body_of(2 << 20)
    tracemalloc.start()
    try:
        for wire in wires:
            wire.arrive(framed(b"hello", large, b"bye"))
            wire.got.clear()
        shared = tracemalloc.get_traced_memory()[0]
        BUFFERS.relax()
        BUFFERS.relax()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert shared < 6 << 20
    assert held < 100_000


# --- the budget


LARGE = 1 << 20


def test_a_frame_waits_until_the_budget_has_room() -> None:
    budget = ByteBudget(LARGE + 100)
    first, second = Wire(budget), Wire(budget)
    data = framed(body_of(LARGE))
    first.arrive(data[:100])
    second.arrive(data[:100])
    assert first.frames.is_holding
    assert second.link.paused
    assert not second.frames.is_holding
    second.arrive(data[100:])
    assert second.unread == len(data) - 100
    first.arrive(data[100:])
    assert first.got == [data[4:]]
    assert not second.link.paused
    second.pump()
    assert second.got == [data[4:]]
    assert budget.used == 0
    assert not budget.is_contended


def test_small_frames_pass_while_the_budget_is_spent() -> None:
    budget = ByteBudget(LARGE)
    first, second = Wire(budget), Wire(budget)
    first.arrive(framed(body_of(LARGE - 4))[:5])
    second.arrive(framed(b"small")[:6])
    second.arrive(framed(b"small")[6:])
    assert second.got == [b"small"]


def test_a_frame_larger_than_the_whole_budget_passes_alone() -> None:
    wire = Wire(ByteBudget(1000))
    wire.arrive(framed(body_of(LARGE)))
    assert len(wire.got) == 1
    assert wire.budget.used == 0


def test_no_frame_is_handled_while_work_that_has_begun_overspends_the_budget() -> None:
    budget = ByteBudget(1000)
    wire = Wire(budget)
    budget.charge(1001)
    wire.arrive(framed(b"one", b"two") + b"\0")
    assert wire.got == []
    assert wire.link.paused
    budget.give(1)
    assert wire.got == [b"one", b"two"]
    assert not wire.link.paused
    wire.arrive(framed(b"x")[1:])
    assert wire.got == [b"one", b"two", b"x"]


def test_closing_gives_the_charge_back_and_lets_others_in() -> None:
    budget = ByteBudget(LARGE + 100)
    first, second, third = Wire(budget), Wire(budget), Wire(budget)
    for wire in (first, second, third):
        wire.arrive(framed(body_of(LARGE))[:50])
    second.frames.close()  # while it waits
    first.frames.close()  # while it holds
    assert not third.link.paused
    third.arrive(framed(body_of(LARGE))[50:])
    assert len(third.got) == 1
    assert budget.used == 0


def test_one_that_leaves_while_it_waits_is_not_waited_for() -> None:
    budget = ByteBudget(LARGE + 100)
    first, second = Wire(budget), Wire(budget)
    for wire in (first, second):
        wire.arrive(framed(body_of(LARGE))[:50])
    assert budget.is_contended
    second.frames.close()
    assert not budget.is_contended


def test_who_is_late() -> None:
    wire = Wire(ByteBudget(8 << 20))
    data = framed(body_of(6_000_000 - 4))
    assert not wire.frames.is_late()
    wire.arrive(data[:50])
    wire.clock.advance(999)
    assert not wire.frames.is_late()
    wire.clock.advance(2)
    assert wire.frames.is_late(), "it has not moved"
    wire.arrive(data[50:150_000])
    assert not wire.frames.is_late()
    wire.clock.advance(400)
    assert not wire.frames.is_late(), "at 100 KB a second it will be whole in a minute"
    wire.clock.advance(200)
    assert wire.frames.is_late(), "a byte now and then is not enough"
    wire.arrive(data[150_000:])
    assert not wire.frames.is_late()
    assert len(wire.got) == 1


def test_one_that_waited_for_the_budget_is_not_late_at_once() -> None:
    budget = ByteBudget(LARGE + 100)
    first, second = Wire(budget), Wire(budget)
    for wire in (first, second):
        wire.arrive(framed(body_of(LARGE))[:50])
    second.clock.advance(3_600_000)
    assert not second.frames.is_late()
    first.frames.close()
    assert not second.frames.is_late()
    second.clock.advance(1001)
    assert second.frames.is_late()


def test_a_handler_that_raises_gives_the_charge_back() -> None:
    wire = Wire(ByteBudget(LARGE + 100))

    def fail(frame: bytes) -> None:
        raise Corrupt("no")

    wire.on_frame = fail
    with pytest.raises(Corrupt):
        wire.arrive(framed(body_of(LARGE)))
    assert wire.budget.used == 0


def test_going_on_does_not_read_what_the_budget_has_no_room_for() -> None:
    budget = ByteBudget(LARGE + 100)
    first, second = Wire(budget), Wire(budget)
    for wire in (first, second):
        wire.arrive(framed(body_of(LARGE))[:50])
    assert second.link.paused
    second.frames.stop()
    second.frames.go()
    assert second.link.paused, "the budget is spent still"
    first.frames.close()
    assert not second.link.paused


def test_room_in_the_budget_does_not_start_what_was_stopped() -> None:
    budget = ByteBudget(LARGE + 100)
    first, second = Wire(budget), Wire(budget)
    for wire in (first, second):
        wire.arrive(framed(body_of(LARGE))[:50])
    second.frames.stop()
    first.frames.close()
    assert second.link.paused, "its owner has said stop"
    second.frames.go()
    assert not second.link.paused


# --- stop and go


def test_stopped_in_the_middle_of_a_chunk_the_rest_waits() -> None:
    wire = Wire()
    wire.on_frame = lambda frame: wire.frames.stop() if frame == b"stop" else None
    wire.arrive(framed(b"one", b"stop", b"two", b"stop", b"three") + b"\0\0\0\5fo")
    assert wire.got == [b"one", b"stop"]
    assert wire.link.paused
    wire.frames.go()
    assert wire.got == [b"one", b"stop", b"two", b"stop"]
    assert wire.link.paused
    wire.frames.go()
    assert not wire.link.paused
    wire.arrive(b"urs")
    assert wire.got[-2:] == [b"three", b"fours"]


def test_stopped_by_the_last_frame_of_a_chunk() -> None:
    wire = Wire()
    wire.on_frame = lambda frame: wire.frames.stop()
    wire.arrive(framed(b"a") + b"\0\0")
    assert wire.got == [b"a"]
    wire.frames.go()
    wire.arrive(b"\0\1b")
    assert wire.got == [b"a", b"b"]


def test_stopped_by_a_frame_of_its_own_buffer() -> None:
    wire = Wire()
    wire.on_frame = lambda frame: wire.frames.stop()
    large = body_of(SCRATCH_BYTES + 1)
    wire.arrive(framed(large, b"next"))
    assert wire.got == [large]
    wire.frames.go()
    wire.pump()
    assert wire.got == [large, b"next"]


@seeded(100)
@given(
    st.lists(SIZES, min_size=1, max_size=10),
    st.lists(st.integers(0, 200_000), max_size=20),
    st.sets(st.integers(0, 10)),
)
def test_stops_at_any_frame_change_nothing(sizes: list[int], cuts: list[int], stops: set[int]) -> None:
    bodies = [body_of(size) for size in sizes]
    wire = Wire(ByteBudget(70_000))
    wire.on_frame = lambda frame: wire.frames.stop() if len(wire.got) in stops else None
    for piece in pieces(framed(*bodies), cuts):
        wire.arrive(piece)
        before = len(wire.got)
        assert wire.frames is not None
        while wire.link.paused:
            wire.frames.go()
            wire.pump()
        assert before <= len(wire.got)
    assert wire.got == bodies


def test_a_backlog_is_not_copied_for_every_frame_that_stops_it() -> None:
    """A window full of requests that each hold the connection is work in proportion."""
    wire = Wire()
    wire.on_frame = lambda frame: wire.frames.stop()
    count = WINDOW_BYTES // 16
    wire.arrive(framed(*[body_of(12)] * count))
    tracemalloc.start()
    try:
        wire.frames.go()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            wire.frames.go()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - before < WINDOW_BYTES // 2
    while len(wire.got) < count:
        wire.frames.go()
    assert wire.link.paused
    wire.frames.go()
    assert not wire.link.paused


def test_nothing_is_handled_after_close() -> None:
    wire = Wire()
    wire.on_frame = lambda frame: wire.frames.stop()
    wire.arrive(framed(b"one", b"two"))
    wire.frames.close()
    wire.frames.go()
    assert wire.got == [b"one"]
    assert wire.link.paused
