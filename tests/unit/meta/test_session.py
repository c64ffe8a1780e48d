"""Sessions: who is told of a change, and how often each state was come to."""

from anabranch.meta.session import Session, SessionState

CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED


def test_changes_are_told_and_counted() -> None:
    session = Session(7)
    told: list[SessionState] = []
    session.subscribe(told.append)
    for state in (SUSPENDED, CONNECTED, SUSPENDED, EXPIRED):
        session.become(state)
    session.become(CONNECTED, 8)
    assert told == [SUSPENDED, CONNECTED, SUSPENDED, EXPIRED, CONNECTED]
    assert (session.id, session.state) == (8, CONNECTED)
    assert session.changes == {CONNECTED: 2, SUSPENDED: 2, EXPIRED: 1}
