"""Queues per broker: one request on its way, the next takes all that has come, and failures pause it."""

import asyncio
from random import Random
from typing import NamedTuple

import pytest

from anabranch.base.errors import Unavailable
from anabranch.base.ids import BrokerId
from anabranch.groups import other_brokers
from anabranch.groups.other_brokers import BrokerQueues, unambiguous
from tests.support.waiting import until

TWO, THREE = BrokerId(2), BrokerId(3)


class Question(NamedTuple):
    name: str
    answered: "asyncio.Future[str]"


def question(name: str) -> Question:
    return Question(name, asyncio.get_running_loop().create_future())


class Asked:
    """What was sent, and when it may be answered."""

    def __init__(self, most: int = 10) -> None:
        self.requests: list[tuple[int, list[str]]] = []
        self.may_answer = asyncio.Event()
        self.failure: Exception | None = None
        self.queues: BrokerQueues[Question] = BrokerQueues(self._send, most, Random(1))

    async def _send(self, broker: BrokerId, questions: list[Question]) -> None:
        self.requests.append((broker, [one.name for one in questions]))
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        for one in questions:
            one.answered.set_result(one.name)

    def put(self, broker: BrokerId, *names: str) -> "list[asyncio.Future[str]]":
        questions = [question(name) for name in names]
        for one in questions:
            self.queues.put(broker, one)
        return [one.answered for one in questions]


async def test_what_comes_meanwhile_shares_the_next_request() -> None:
    asked = Asked()
    first = asked.put(TWO, "a")
    await asyncio.sleep(0)
    rest = asked.put(TWO, "b", "c") + asked.put(THREE, "d")
    await until(lambda: len(asked.requests) == 2)
    assert asked.requests == [(2, ["a"]), (3, ["d"])]
    asked.may_answer.set()
    assert await asyncio.gather(*first, *rest) == ["a", "b", "c", "d"]
    assert asked.requests[2:] == [(2, ["b", "c"])]


async def test_a_request_has_a_bound() -> None:
    asked = Asked(most=2)
    asked.may_answer.set()
    await asyncio.gather(*asked.put(TWO, *"abcde"))
    assert asked.requests == [(2, ["a", "b"]), (2, ["c", "d"]), (2, ["e"])]


async def test_what_fails_is_told_and_the_next_ones_are_asked() -> None:
    asked = Asked()
    asked.may_answer.set()
    asked.failure = Unavailable("it is down")
    (lost,) = asked.put(TWO, "a")
    with pytest.raises(Unavailable, match="it is down"):
        await lost
    asked.failure = None
    (answered,) = asked.put(TWO, "b")
    assert await answered == "b"


async def test_a_mistake_in_a_question_is_told_and_the_next_ones_are_asked() -> None:
    asked = Asked()
    asked.may_answer.set()
    asked.failure = ValueError("no such code")
    (lost,) = asked.put(TWO, "a")
    with pytest.raises(Unavailable, match="no such code"):
        await lost
    asked.failure = None
    (answered,) = asked.put(TWO, "b")
    async with asyncio.timeout(5):
        assert await answered == "b"


async def test_a_request_that_takes_long_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition that waits for its replicas would keep the markers of all transactions."""
    monkeypatch.setattr(other_brokers, "_SLOW_S", 0.01)
    asked = Asked()
    late = asked.put(TWO, "late")
    await asyncio.sleep(0)
    quick = asked.put(TWO, "a", "b")
    async with asyncio.timeout(5):
        await until(lambda: len(asked.requests) == 2)
    assert asked.requests == [(2, ["late"]), (2, ["a", "b"])]
    for number in range(20):
        late += asked.put(TWO, f"late-{number}")
        await asyncio.sleep(0.02)
    assert len(asked.requests) == other_brokers._MOST_AT_ONCE, "but not ever more of them"
    asked.may_answer.set()
    await asyncio.gather(*late, *quick)
    await until(lambda: not asked.queues._queues, "something is left of it")


async def test_nobody_waits_when_the_broker_stops() -> None:
    asked = Asked()
    sent = asked.put(TWO, "a")
    await asyncio.sleep(0)
    waiting = asked.put(TWO, "b")
    asked.queues.close()
    found = await asyncio.gather(*sent, *waiting, return_exceptions=True)
    assert [type(one) for one in found] == [Unavailable, Unavailable]


async def test_an_answer_stands_for_one_thing() -> None:
    questions = [question(name) for name in ("a1", "b1", "a2", "a1", "b1")]
    requests = unambiguous(questions, lambda one: (one.name[0], one.name))
    assert [[one.name for one in request] for request in requests] == [["a1", "b1", "a1", "b1"], ["a2"]]
