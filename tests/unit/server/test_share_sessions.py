"""Share sessions: epochs, partitions that come and go, connections that end, and how many there may be."""

from uuid import UUID

import pytest

from anabranch.base.errors import InvalidShareSessionEpoch, ShareSessionLimitReached, ShareSessionNotFound
from anabranch.server.share_sessions import ShareSessions

A, B = ("g", "a"), ("g", "b")
T = UUID(int=1)
P0, P1, P2 = (T, 0), (T, 1), (T, 2)


@pytest.fixture
def gone() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def sessions(gone: list[tuple[str, str]]) -> ShareSessions:
    return ShareSessions(lambda: 2, lambda group, member: gone.append((group, member)))


def test_epochs_count_requests(sessions: ShareSessions) -> None:
    with pytest.raises(ShareSessionNotFound):
        sessions.go_on(A, 1)
    session = sessions.start(A, 7, [P0, P1])
    assert sessions.go_on(A, 1) is session
    assert sessions.go_on(A, 2, [P2], [P0]) is session
    assert list(session.partitions) == [P1, P2]
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.go_on(A, 2)
    assert sessions.go_on(A, 3) is session
    session.epoch = (1 << 31) - 1
    sessions.go_on(A, (1 << 31) - 1)
    assert session.epoch == 1


def test_partitions_take_turns(sessions: ShareSessions) -> None:
    session = sessions.start(A, 7, [P0, P1, P2])
    session.gave_records(P0)
    assert list(session.partitions) == [P1, P2, P0]
    sessions.go_on(A, 1, [], [P1])
    session.gave_records(P1)
    assert list(session.partitions) == [P2, P0]


def test_a_session_ends_with_its_last_request(sessions: ShareSessions, gone: list[tuple[str, str]]) -> None:
    session = sessions.start(A, 7, [P0])
    sessions.end(sessions.go_on(A, -1))
    sessions.end(session)
    assert gone == [A]
    with pytest.raises(ShareSessionNotFound):
        sessions.go_on(A, -1)


def test_a_session_ends_with_its_connection(sessions: ShareSessions, gone: list[tuple[str, str]]) -> None:
    sessions.start(A, 7, [P0])
    sessions.start(B, 8, [P0])
    sessions.disconnected(7)
    sessions.disconnected(7)
    assert gone == [A]
    assert len(sessions) == 1


def test_who_comes_again_by_another_connection_keeps_what_it_has(
    sessions: ShareSessions, gone: list[tuple[str, str]]
) -> None:
    sessions.start(A, 7, [P0])
    sessions.start(A, 8, [P0])
    sessions.disconnected(7)
    assert gone == []
    assert sessions.go_on(A, 1).connection_id == 8


def test_there_is_room_for_so_many(sessions: ShareSessions) -> None:
    sessions.start(A, 7, [])
    sessions.start(B, 7, [])
    sessions.start(A, 7, [])
    with pytest.raises(ShareSessionLimitReached):
        sessions.start(("g", "c"), 8, [])
    sessions.disconnected(7)
    sessions.start(("g", "c"), 8, [])
