"""Sequence ids: which messages are new, who is remembered, and for how long."""

import pytest

from anabranch.base.errors import Corrupt
from anabranch.topics.deduplication import Deduplication, decode, encode
from anabranch.topics.publish import DUPLICATE
from tests.support.topics import send


def test_new_and_not_new() -> None:
    state = Deduplication(0)
    sends = [send(0), send(1), send(1), send(5, 3, highest_sequence_id=7), send(6), send(8)]
    new, where = state.sift("p", sends)
    assert [each.sequence_id for each in new] == [0, 1, 5, 8]
    assert where == [0, 1, DUPLICATE, 2, DUPLICATE, 3]
    assert state.last_sequence_id("p") == -1
    state.stored("p", new[:3], 5)
    assert (state.last_sequence_id("p"), state.covered, state.changes) == (7, 5, 3)
    assert state.last_sequence_id("q") == -1


def test_a_batch_counts_by_its_last_message() -> None:
    state = Deduplication(0)
    state.stored("p", state.sift("p", [send(10, 5)])[0], 5)  # the client does not say where it ends
    assert state.last_sequence_id("p") == 14
    again = [send(10, 5), send(12, 3), send(14), send(12, 5), send(17)]
    assert state.sift("p", again)[1] == [DUPLICATE, DUPLICATE, DUPLICATE, 0, 1]


def test_kept_and_read_back() -> None:
    state = Deduplication(0)
    state.stored("p", [send(9)], 1)
    again = decode(encode(state.take_snapshot()))
    assert (again.offset, again.highest) == (1, {"p": 9})
    assert state.changes == 0
    for data in (b"", b"junk", encode(state.take_snapshot())[:-1]):
        with pytest.raises(Corrupt):
            decode(data)


def test_who_was_away_for_long_is_forgotten() -> None:
    state = Deduplication(0, {"old": 1}, now_ms=0)
    state.joined("p")
    state.stored("p", [send(9)], 1)
    state.stored("q", [send(3)], 2)
    state.left("q", 50)
    assert state.forget(10, 100)
    assert len(state) == 2
    assert not state.forget(10, 100)
    state.left("p", 60)
    assert state.forget(10, 1)  # too many: the one that is away longest
    assert (state.last_sequence_id("q"), state.last_sequence_id("p")) == (-1, 9)
    state.joined("p")
    assert not state.forget(1_000, 0)  # who is there is not forgotten


def test_replayed() -> None:
    state = Deduplication(10, {"p": 5}, now_ms=0)
    state.replayed("p", 9, 12, 100)
    state.replayed("p", 3, 13, 100)
    assert (state.last_sequence_id("p"), state.covered, state.changes) == (9, 13, 2)


def test_a_sequence_id_beyond_all_others_can_be_kept() -> None:
    state = Deduplication(0)
    beyond = (1 << 64) - 1
    state.stored("p", [send(beyond, 2, highest_sequence_id=beyond)], 2)
    assert decode(encode(state.take_snapshot())).highest == {"p": (1 << 63) - 1}
    assert state.sift("p", [send(beyond, 2)])[1] == [DUPLICATE]


def test_forgetting_many_takes_no_time() -> None:
    state = Deduplication(0, {f"p{i}": i for i in range(20_000)}, now_ms=0)
    assert state.forget(-1, 10)
    assert len(state) == 10
