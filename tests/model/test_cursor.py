"""A cursor against a set of acknowledged offsets, over the edges of chunks, kept and restored at any time."""

import random

from hypothesis import given
from hypothesis import strategies as st

from anabranch.subscriptions.cursor import CHUNK, Cursor
from tests.unit.records.strategies import seeded

BASE = 3 * CHUNK - 40  # the edge of a chunk lies in the middle of what is acknowledged
SPAN = 90

offsets = st.one_of(
    st.integers(BASE, BASE + SPAN),
    st.sampled_from((BASE, 3 * CHUNK - 1, 3 * CHUNK, 3 * CHUNK + 1, BASE + SPAN)),
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), offsets, st.integers(1, 12)),
        st.tuples(st.just("up_to"), offsets, st.just(0)),
        st.tuples(st.just("reset"), offsets, st.just(0)),
        st.tuples(st.just("keep"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


class Model:
    """Everything below `floor` is acknowledged, and what is in `acked`."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.acked: set[int] = set()

    def is_acked(self, offset: int) -> bool:
        return offset < self.floor or offset in self.acked

    def ack(self, start: int, end: int) -> int:
        newly = [offset for offset in range(start, end) if not self.is_acked(offset)]
        self.acked.update(newly)
        return len(newly)

    @property
    def mark_delete(self) -> int:
        return self.next_unacked(self.floor)

    def next_unacked(self, offset: int) -> int:
        while self.is_acked(offset):
            offset = self.floor if offset < self.floor else offset + 1
        return offset

    def ahead(self) -> list[int]:
        mark = self.mark_delete
        return sorted(offset for offset in self.acked if offset >= mark)


@seeded(150)
@given(operations, st.integers(1, 70))
def test_it_is_a_set(steps: list[tuple[str, int, int]], count: int) -> None:
    cursor, model = Cursor(BASE), Model(BASE)
    kept: dict[int, bytes] = {}
    for name, offset, extra in steps:
        if name == "ack":
            assert cursor.ack(offset, offset + extra) == model.ack(offset, offset + extra)
        elif name == "up_to":
            assert cursor.ack_up_to(offset) == model.ack(BASE, offset)
        elif name == "reset":
            cursor.reset(offset)
            kept.clear()
            model = Model(offset)
        else:
            kept.update(cursor.take_changed())
            kept = {chunk: data for chunk, data in kept.items() if cursor.has_chunk(chunk)}
            cursor = Cursor.restore(cursor.mark_delete, kept.items())
        check(cursor, model, count)


def check(cursor: Cursor, model: Model, count: int) -> None:
    ahead = model.ahead()
    assert cursor.mark_delete == model.mark_delete
    assert cursor.acked_ahead() == len(ahead)
    assert cursor.ranges_ahead() == sum(1 for offset in ahead if offset - 1 not in model.acked)
    end = max([*ahead, cursor.mark_delete]) + 3
    assert cursor.backlog(end) == end - model.mark_delete - len(ahead)
    for offset in (*range(BASE - 2, BASE + SPAN, 7), 3 * CHUNK, 3 * CHUNK - 1):
        assert cursor.is_acked(offset) == model.is_acked(offset)
        assert cursor.next_unacked(offset) == model.next_unacked(offset)
        assert cursor.all_acked(offset, offset + 5) == all(model.is_acked(offset + i) for i in range(5))
        assert cursor.backlog_in(offset, offset + 5) == sum(not model.is_acked(offset + i) for i in range(5))
        acked = [i for i in range(count) if model.is_acked(offset + i)]
        assert cursor.acked_in(offset, offset + count) == len(acked)
        check_words(cursor, model, offset, count)


def check_words(cursor: Cursor, model: Model, offset: int, count: int) -> None:
    words = cursor.unacked_words(offset, count)
    left = [i for i in range(count) if not model.is_acked(offset + i)]
    if len(left) == count:
        assert words is None
        return
    assert words is not None
    assert not words or words[-1]
    assert all(-(1 << 63) <= word < 1 << 63 for word in words)
    assert [i for i in range(64 * len(words)) if words[i // 64] >> (i % 64) & 1] == left


def test_many_chunks_in_any_order() -> None:
    chance = random.Random(5)
    cursor, everything = Cursor(0), list(range(0, 4 * CHUNK, 3))
    chance.shuffle(everything)
    for offset in everything:
        assert cursor.ack(offset, offset + 1) == 1
    assert cursor.mark_delete == 1
    assert cursor.acked_ahead() == cursor.ranges_ahead() == len(everything) - 1
    again = Cursor.restore(1, cursor.take_changed().items())
    assert cursor.take_changed() == {}
    rest = [offset for offset in range(4 * CHUNK) if offset % 3]
    chance.shuffle(rest)
    assert sum(again.ack(offset, offset + 1) for offset in rest) == len(rest)
    assert again.mark_delete == 4 * CHUNK
    assert again.acked_ahead() == 0


def test_ranges_of_several_chunks() -> None:
    cursor = Cursor(10)
    assert cursor.ack(CHUNK - 1, 3 * CHUNK + 5) == 2 * CHUNK + 6
    assert cursor.ack(2 * CHUNK, 4 * CHUNK) == CHUNK - 5
    assert cursor.next_unacked(CHUNK) == 4 * CHUNK
    assert cursor.all_acked(CHUNK - 1, 4 * CHUNK)
    assert not cursor.all_acked(CHUNK - 2, 4 * CHUNK)
    assert cursor.ranges_ahead() == 1
    assert cursor.backlog(4 * CHUNK) == CHUNK - 1 - 10
    assert cursor.ack_up_to(2 * CHUNK) == CHUNK - 11
    assert (cursor.mark_delete, cursor.acked_ahead()) == (4 * CHUNK, 0)
