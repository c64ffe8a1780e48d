"""The pass over partitions: what is led, what is in sync, what has no leader."""

from typing import Any
from uuid import UUID

from anabranch.admin.measured import Standing
from anabranch.base.ids import BrokerId, LeaderEpoch
from anabranch.log.config import LogConfig
from anabranch.meta.image import NO_BROKER, PartitionImage, TopicImage
from anabranch.partition.served_topic import ServedTopic
from anabranch.partition.traffic import Counts
from tests.support.images import topic_image

ME, OTHER, THIRD = map(BrokerId, (1, 2, 3))


def state(
    leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3), **more: Any
) -> PartitionImage:
    ids = tuple(map(BrokerId, replicas))
    return PartitionImage(0, BrokerId(leader), LeaderEpoch(0), 0, ids, tuple(map(BrokerId, isr)), **more)


def looked_at(*states: PartitionImage, least: int = 2) -> Standing:
    image: TopicImage = topic_image("orders", UUID(int=1), 1)
    topic = ServedTopic(image, LogConfig(min_insync_replicas=least))
    found = Standing()
    for one in states:
        found.look_at(topic, one, ME)
    return found


def test_what_this_broker_leads_and_has() -> None:
    found = looked_at(state(1, (1, 2, 3)), state(2, (2,)), state(2, (2, 3), (2, 3)))
    assert (found.partitions, found.replicas, found.leaders) == (3, 2, 1)
    assert (found.under_replicated, found.under_min_isr) == (0, 0), "of others it does not tell"
    assert (found.leaderless, found.not_preferred) == (0, 1)


def test_how_many_are_in_sync() -> None:
    found = looked_at(state(1, (1, 2)), state(1, (1,)), state(1, (1,), (1,)))
    assert (found.under_replicated, found.under_min_isr, found.at_min_isr) == (2, 1, 2)


def test_nobody_leads_and_some_are_on_the_move() -> None:
    found = looked_at(state(NO_BROKER, (1,)), state(1, (1, 2, 3), adding=(THIRD,)))
    assert (found.leaderless, found.not_preferred, found.reassigning) == (1, 1, 1)


def test_the_busiest_topics() -> None:
    found = Standing()
    for name, size in (("a", 1), ("b", 3), ("c", 2)):
        found.by_topic[name] = Counts(bytes_in=size)
    assert [name for name, _ in found.busiest(2)] == ["b", "c"]
    assert found.busiest(0) == []
