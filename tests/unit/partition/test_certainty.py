"""Certainty: by the clock alone, for one session, and for the next once the image was read again."""

import asyncio

from anabranch.meta.session import Session, SessionState
from anabranch.partition.certainty import Certainty
from tests.support.waiting import until


class HandClock:
    def __init__(self) -> None:
        self.s = 100.0

    def now_ms(self) -> int:
        return int(self.s * 1000)

    def monotonic(self) -> float:
        return self.s


async def test_it_ends_with_the_clock_and_whoever_waits_is_told_when_it_is_back() -> None:
    clock, ends = HandClock(), {7: 106.0}
    told: list[str] = []
    certainty = Certainty(clock)
    assert certainty.holds, "of who depends on no session"
    certainty.depend_on(Session(7, ends.__getitem__))
    assert certainty.holds
    clock.s = 106.0
    assert not certainty.holds
    for _ in range(2):
        certainty.call_when_it_holds(told.clear)
    waiting = asyncio.create_task(certainty.wait())
    told.append("a")
    await asyncio.sleep(0.1)
    assert (told, waiting.done()) == (["a"], False)
    ends[7] = 112.0
    await asyncio.wait_for(waiting, 60)
    await until(lambda: not told)


def test_another_session_is_not_certain_before_the_image_is_its_own() -> None:
    certainty, session = Certainty(HandClock()), Session(7, lambda id: 200.0)
    certainty.depend_on(session)
    session.become(SessionState.EXPIRED)
    assert not certainty.holds
    session.become(SessionState.CONNECTED, 8)
    assert not certainty.holds
    certainty.image_read()
    assert certainty.holds
