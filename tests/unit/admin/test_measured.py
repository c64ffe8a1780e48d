"""The pass over partitions: what is led, what is in sync, what has no leader."""

from types import SimpleNamespace
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


class Led:
    """As much of a leader as is counted."""

    led = None
    state = state(1, (1, 2, 3))

    def __init__(self, bytes_in: int) -> None:
        self.counts = Counts(bytes_in=bytes_in)
        self.retired = False


def test_a_leader_that_ends_during_the_pass_counts_once_whether_it_was_looked_at_or_not() -> None:
    past, stays, looked_at, ends_before = Counts(bytes_in=1), Led(10), Led(100), Led(1000)
    found = Standing()

    def look_at(leader: Led) -> None:
        served = SimpleNamespace(partitions=[leader], name=SimpleNamespace(kafka="t"), config=LogConfig())
        found.look_at(served, leader.state, ME)  # type: ignore[arg-type]

    def end(leader: Led) -> None:
        past.add(leader.counts)
        leader.retired = True

    look_at(stays)
    look_at(looked_at)
    looked_at.counts = Counts(bytes_in=200)
    for leader in (looked_at, ends_before):
        end(leader)
    found.add_past(past)
    assert found.counts.bytes_in == 1 + 10 + 200 + 1000
