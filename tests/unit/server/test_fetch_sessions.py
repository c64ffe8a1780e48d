"""Fetch sessions: epochs, changes, turns, eviction, and a bound on what they remember."""

from random import Random
from typing import Any
from uuid import UUID

import pytest

from anabranch.base.errors import FetchSessionNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from anabranch.server import fetch_sessions as module
from anabranch.server.fetch_sessions import FetchSession, FetchSessions, Wanted
from anabranch.wire.kafka.fetch import AskedPartition, AskedTopic, FetchRequest, ForgottenTopic
from tests.support.logs import SetClock

LAST_EPOCH = 2**31 - 1
MINUTE_MS = 60_000


def asked(partition: int, offset: int = 0) -> AskedPartition:
    return AskedPartition(partition, -1, offset, -1, 1000)


def request(
    session_id: int = 0,
    epoch: int = 0,
    wanted: dict[str, list[AskedPartition]] | None = None,
    forgotten: dict[str, list[int]] | None = None,
    *,
    version: int = 12,
) -> FetchRequest:
    def key(name: str) -> str | UUID:
        return UUID(int=sum(name.encode())) if version >= 13 else name

    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[AskedTopic(key(name), parts) for name, parts in (wanted or {}).items()],
        forgotten=[ForgottenTopic(key(name), parts) for name, parts in (forgotten or {}).items()],
    )


class Sessions:
    def __init__(self, slots: int = 3) -> None:
        self.clock = SetClock()
        self.all = FetchSessions(slots, self.clock, Random(1))

    def open(self, *arguments: Any, version: int = 12, **named: Any) -> tuple[FetchSession | None, Any, bool]:
        session, wanted, whole = self.all.open(request(*arguments, **named, version=version), version)
        return session, places(wanted), whole

    def start(self, count: int = 1, version: int = 12) -> FetchSession:
        session, _, _ = self.open(0, 0, {"t": [asked(i) for i in range(count)]}, version=version)
        assert session is not None
        return session


def places(wanted: list[Wanted]) -> list[tuple[Any, int, int]]:
    return [(one.topic, one.index, one.fetch_offset) for one in wanted]


def test_no_session_before_version_7_and_at_the_final_epoch() -> None:
    sessions = Sessions()
    for version, epoch in ((4, 0), (6, 0), (7, -1), (18, -1)):
        session, wanted, whole = sessions.open(0, epoch, {"t": [asked(0, 5)]}, version=version)
        assert session is None
        assert whole
        assert len(wanted) == 1
    assert len(sessions.all) == 0


def test_a_session_is_a_whole_answer_and_then_what_changed() -> None:
    sessions = Sessions()
    session = sessions.start(3)
    assert session.session_id > 0
    _, wanted, whole = sessions.open(session.session_id, 1)
    assert (wanted, whole) == ([("t", 0, 0), ("t", 1, 0), ("t", 2, 0)], False)
    _, wanted, _ = sessions.open(
        session.session_id, 2, {"t": [asked(1, 7)], "u": [asked(0, 9)]}, {"t": [0], "none": [4], "u": [77]}
    )
    assert wanted == [("t", 1, 7), ("t", 2, 0), ("u", 0, 9)]
    _, wanted, _ = sessions.open(session.session_id, 3, {"u": [asked(0, 10)]}, {"u": [0]})
    assert wanted == [("t", 1, 7), ("t", 2, 0)], "named and forgotten is forgotten"


def test_partitions_that_gave_records_go_to_the_end() -> None:
    sessions = Sessions()
    session = sessions.start(3)
    session.gave_records(session.partitions[("t", 0)])
    _, wanted, _ = sessions.open(session.session_id, 1)
    assert [index for _, index, _ in wanted] == [1, 2, 0]
    gone = session.partitions[("t", 1)]
    sessions.open(session.session_id, 2, forgotten={"t": [1]})
    session.gave_records(gone)
    assert ("t", 1) not in session.partitions


@pytest.mark.parametrize("epoch", [2, 3, 5, LAST_EPOCH, -2, -(2**31)])
def test_another_epoch_is_refused_and_the_right_one_still_works(epoch: int) -> None:
    sessions = Sessions()
    session = sessions.start()
    with pytest.raises(InvalidFetchSessionEpoch):
        sessions.open(session.session_id, epoch)
    assert sessions.open(session.session_id, 1)[0] is session
    with pytest.raises(InvalidFetchSessionEpoch):
        sessions.open(session.session_id, 1)
    assert sessions.open(session.session_id, 2)[0] is session


def test_epochs_wrap_to_1() -> None:
    sessions = Sessions()
    session = sessions.start()
    session.epoch = LAST_EPOCH
    sessions.open(session.session_id, LAST_EPOCH)
    assert session.epoch == 1
    assert sessions.open(session.session_id, 1)[0] is session


@pytest.mark.parametrize("session_id", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_a_session_that_is_not_there(session_id: int) -> None:
    sessions = Sessions()
    with pytest.raises(FetchSessionNotFound):
        sessions.open(session_id, 1)


def test_closed_and_replaced() -> None:
    sessions = Sessions()
    first = sessions.start()
    second, _, whole = sessions.open(first.session_id, 0, {"t": [asked(0)]})
    assert second is not None
    assert second.session_id != first.session_id
    assert whole
    with pytest.raises(FetchSessionNotFound):
        sessions.open(first.session_id, 1)
    assert sessions.open(second.session_id, -1, {"t": [asked(0)]})[0] is None
    with pytest.raises(FetchSessionNotFound):
        sessions.open(second.session_id, 1)
    assert len(sessions.all) == 0


@pytest.mark.parametrize(("first", "second"), [(12, 13), (13, 12), (18, 7)])
def test_names_and_ids_do_not_mix(first: int, second: int) -> None:
    sessions = Sessions()
    session = sessions.start(version=first)
    with pytest.raises(FetchSessionTopicIdError):
        sessions.open(session.session_id, 1, {"u": [asked(0)]}, version=second)
    assert list(session.partitions) == [(session.partitions.popitem()[0][0], 0)]


def test_a_new_session_takes_the_place_of_one_that_rested() -> None:
    sessions = Sessions(slots=2)
    a, b = sessions.start(), sessions.start()
    assert sessions.open(0, 0, {"t": [asked(0)]})[0] is None, "both are in use"
    sessions.clock.advance(2 * MINUTE_MS + 1)
    sessions.open(a.session_id, 1)
    c = sessions.start()
    assert sessions.open(a.session_id, 2)[0] is a
    assert sessions.open(c.session_id, 1)[0] is c
    with pytest.raises(FetchSessionNotFound):
        sessions.open(b.session_id, 1)
    assert len(sessions.all) == 2


def test_no_slots_no_sessions() -> None:
    sessions = Sessions(slots=0)
    session, wanted, whole = sessions.open(0, 0, {"t": [asked(0)]})
    assert (session, len(wanted), whole) == (None, 1, True)


@pytest.mark.parametrize("version", [4, 12, 18])
def test_a_partition_named_twice_is_wanted_once(version: int) -> None:
    sessions = Sessions()
    repeated = {"t": [asked(0, 1), asked(1, 5), asked(0, 2)]}
    for epoch in (-1, 0):
        _, wanted, _ = sessions.open(0, epoch, repeated, version=version)
        assert [(index, offset) for _, index, offset in wanted] == [(0, 2), (1, 5)]


def test_what_all_sessions_remember_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PARTITIONS", 100)
    sessions = Sessions(slots=50)
    session = sessions.start(60)
    assert sessions.open(0, 0, {"t": [asked(i) for i in range(60)]})[0] is None
    other = sessions.start(30)
    with pytest.raises(FetchSessionNotFound):
        sessions.open(other.session_id, 1, {"u": [asked(i) for i in range(20)]})
    assert len(sessions.all) == 1, "the one that grew too large is gone"
    sessions.open(session.session_id, 1, forgotten={"t": list(range(60))})
    sessions.start(90)


def test_ids_are_never_those_of_others() -> None:
    sessions = Sessions(slots=500)
    ids = {sessions.start().session_id for _ in range(500)}
    assert len(ids) == 500
    assert all(0 < session_id < 2**31 for session_id in ids)


def test_a_follower_that_names_a_partition_again_is_told_all_of_it_again() -> None:
    """It may have begun to follow it anew, and have dropped the answer that said so."""
    for log_start, told in ((-1, 5), (0, -1)):
        sessions = Sessions()
        again = asked(0)._replace(log_start=log_start)
        session, _, _ = sessions.open(0, 0, {"t": [again, asked(1)]})
        assert session is not None
        for wanted in session.partitions.values():
            wanted.high_watermark = wanted.log_start = 5
        sessions.open(session.session_id, 1, {"t": [again]})
        assert [one.high_watermark for one in session.partitions.values()] == [told, 5]
        assert [one.log_start for one in session.partitions.values()] == [told, 5]
