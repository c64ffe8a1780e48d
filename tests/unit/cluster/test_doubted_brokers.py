"""Doubted brokers: who asks for what they lead waits, and for how long."""

import asyncio
from collections.abc import Set

import pytest

from anabranch.base.ids import BrokerId
from anabranch.cluster import doubted_brokers
from anabranch.cluster.doubted_brokers import DoubtedBrokers
from anabranch.meta.image import BrokerImage, ClusterImage, ImageChange

B1, B2 = BrokerId(1), BrokerId(2)
BOTH = ClusterImage(cluster_id="x", brokers={id: BrokerImage(id, "h", 9000 + id) for id in (B1, B2)})
ONE = ClusterImage(cluster_id="x", brokers={B1: BOTH.brokers[B1]})
GONE, BACK = ImageChange(BOTH, ONE, []), ImageChange(ONE, BOTH, [])


class Asked:
    """A question for what `leader` leads, under way."""

    def __init__(self, doubted: DoubtedBrokers, leader: BrokerId) -> None:
        self.leader = leader
        self._answered = asyncio.ensure_future(doubted.settled(self._leads))

    def _leads(self, brokers: Set[BrokerId]) -> bool:
        return self.leader in brokers

    async def is_answered(self) -> bool:
        for _ in range(10):
            await asyncio.sleep(0)
        return self._answered.done()


async def test_who_asks_for_what_it_leads_waits_for_the_election(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubted_brokers, "_DOUBTED_S", 60.0)
    doubted = DoubtedBrokers()
    assert await Asked(doubted, B2).is_answered()
    doubted.doubt(B2)
    assert await Asked(doubted, B1).is_answered()
    asked = Asked(doubted, B2)
    assert not await asked.is_answered()
    doubted.image_changed(GONE)
    assert not await asked.is_answered()
    asked.leader = B1
    doubted.image_changed(ImageChange(ONE, ONE, []))
    assert await asked.is_answered()


async def test_nobody_waits_for_one_that_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubted_brokers, "_DOUBTED_S", 60.0)
    doubted = DoubtedBrokers()
    doubted.doubt(B2)
    asked = Asked(doubted, B2)
    assert not await asked.is_answered()
    doubted.trust(B2)
    assert await asked.is_answered()
    assert await Asked(doubted, B2).is_answered()


async def test_nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubted_brokers, "_DOUBTED_S", 0.01)
    doubted = DoubtedBrokers()
    doubted.doubt(B2)
    await doubted.settled(lambda brokers: B2 in brokers)
    assert not doubted.are_among(lambda brokers: B2 in brokers)


async def test_one_that_went_is_named_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that stopped as it should: it may be back in a moment."""
    doubted = DoubtedBrokers()
    doubted.image_changed(GONE)
    assert [broker.id for broker in doubted.removed] == [B2]
    doubted.image_changed(BACK)
    assert not list(doubted.removed)
    monkeypatch.setattr(doubted_brokers, "_NAMED_S", -1.0)
    doubted.image_changed(GONE)
    assert not list(doubted.removed)
