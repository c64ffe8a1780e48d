"""Steps of sending, with virtual time and brokers that are a function: who is asked what, when, how often."""

from collections.abc import Callable
from math import inf
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.base.backoff import Backoff
from anabranch.base.errors import AnabranchError, Corrupt, Invalid, Unavailable, UnknownTopic
from anabranch.client.answers import outer_code
from anabranch.client.destinations import (
    ANY,
    CONTROLLER,
    GROUPS,
    Address,
    Broker,
    Coordinator,
    Leader,
    TopicPartition,
)
from anabranch.client.requests import FETCH, FIND_COORDINATOR, LIST_GROUPS, LIST_OFFSETS, METADATA, Request
from anabranch.client.routing import Led, Routing
from anabranch.client.sending import Ask, Lookup, Pace, Pause, looking_up, sending
from anabranch.wire.kafka.schema import ErrorCode

B1, B2, B3 = (Address(f"b{n}", 9092) for n in (1, 2, 3))
PLACE = TopicPartition("orders", 0)
WANTED = Request(LIST_OFFSETS, {})
UNKNOWN_TOPIC = int(ErrorCode.unknown_topic_or_partition)


def answer(*codes: int) -> Any:
    """Of several items, an error code each."""
    return SimpleNamespace(items=[SimpleNamespace(error_code=code) for code in codes])


class World:
    """Takes the steps.  `brokers` answers or raises; time passes in pauses only."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.routing = Routing([B1, B2, B3])
        self.asked: list[tuple[str, int]] = []
        self.pauses: list[float] = []
        self.bounds: list[float] = []
        self.leader, self.epoch = 1, 1
        self.topic_code = 0
        self.coordinator = B2
        self.away: set[Address] = set()
        self.says: Callable[[Address], Any] = lambda address: answer(0)
        self.behind: dict[Address, tuple[int, int]] = {}

    def send(
        self, to: Any, request: Request = WANTED, timeout_s: float = 30, topics_come_s: float = 0
    ) -> Any:
        backoff = Backoff(0.02, 1.0, Random(7))
        pace = Pace(lambda: self.now_s, timeout_s, backoff, topics_come_s)
        return self._take(sending(to, request, self.routing, pace))

    def _take(self, steps: Any) -> Any:
        result, failure = None, None
        while True:
            try:
                step = steps.send(result) if failure is None else steps.throw(failure)
            except StopIteration as done:
                return done.value
            result = failure = None
            try:
                if isinstance(step, Ask):
                    result = self._ask(step)
                elif isinstance(step, Lookup):
                    self._take(looking_up(step.to, self.routing))
                else:
                    assert isinstance(step, Pause)
                    self.pauses.append(step.seconds)
                    self.now_s += step.seconds
            except AnabranchError as error:
                failure = error

    def _ask(self, step: Ask) -> Any:
        address, request, most_s = step
        self.bounds.append(most_s)
        self.asked.append((address.host, request.api_key))
        if address in self.away:
            raise Unavailable(f"{address} cannot be reached")
        if request.api_key == METADATA:
            return self._metadata(address)
        if request.api_key == FIND_COORDINATOR:
            host, port = self.coordinator
            code = 0 if host else int(ErrorCode.coordinator_not_available)
            return SimpleNamespace(coordinators=[], error_code=code, host=host, port=port)
        return self.says(address)

    def _metadata(self, address: Address) -> Any:
        leader, epoch = self.behind.get(address, (self.leader, self.epoch))
        part = SimpleNamespace(partition_index=0, leader_id=leader, leader_epoch=epoch)
        topic = SimpleNamespace(
            name="orders",
            topic_id=None,
            error_code=self.topic_code,
            partitions=[part] * (not self.topic_code),
        )
        brokers = [
            SimpleNamespace(node_id=n, host=at.host, port=at.port) for n, at in enumerate((B1, B2, B3), 1)
        ]
        return SimpleNamespace(brokers=brokers, controller_id=3, topics=[topic])

    def hosts(self, api_key: int = LIST_OFFSETS) -> list[str]:
        return [host for host, key in self.asked if key == api_key]


@pytest.fixture
def world() -> World:
    return World()


def test_each_kind_of_destination(world: World) -> None:
    for to in (ANY, B3, Broker(2), Leader(PLACE), CONTROLLER, Coordinator(GROUPS, "g")):
        assert world.send(to) == answer(0)
    assert world.hosts() == ["b1", "b3", "b2", "b1", "b3", "b2"]
    assert world.pauses == []


def test_what_is_known_is_not_looked_up_again(world: World) -> None:
    for _ in range(3):
        world.send(Leader(PLACE))
        world.send(Coordinator(GROUPS, "g"))
    assert world.hosts(METADATA) == ["b1"]
    assert len(world.hosts(FIND_COORDINATOR)) == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.leader_not_available,
        ErrorCode.kafka_storage_error,
    ],
)
def test_a_leader_that_moved_is_followed(world: World, code: ErrorCode) -> None:
    world.says = lambda address: answer(0, 0 if address == B2 else int(code))

    def moved(address: Address) -> Any:
        world.leader, world.epoch = 2, 2
        return answer(0, int(code)) if address == B1 else answer(0, 0)

    world.says = moved
    assert world.send(Leader(PLACE)) == answer(0, 0)
    assert world.hosts() == ["b1", "b2"]
    assert world.routing.led(PLACE) == Led(2, 2)
    assert len(world.pauses) == 1


def test_a_broker_that_is_behind_does_not_lead_back(world: World) -> None:
    """The leader moved to broker 2 in epoch 5; broker 1 still says it is itself, in epoch 4."""
    world.leader, world.epoch = 2, 5
    world.behind = {B1: (1, 4)}
    world.routing.learn(world._metadata(B2))
    world.routing.expire(Leader(PLACE))
    world.says = lambda address: answer(0 if address == B2 else int(ErrorCode.not_leader_or_follower))
    assert world.send(Leader(PLACE)) == answer(0)
    assert world.hosts() == ["b2"]
    assert world.hosts(METADATA) == ["b1", "b2"]


def test_a_coordinator_that_moved_is_followed(world: World) -> None:
    def moved(address: Address) -> Any:
        world.coordinator = B3
        return answer(int(ErrorCode.not_coordinator)) if address == B2 else answer(0)

    world.says = moved
    assert world.send(Coordinator(GROUPS, "g")) == answer(0)
    assert world.hosts() == ["b2", "b3"]


def test_a_coordinator_that_loads_is_asked_again_and_not_looked_up(world: World) -> None:
    codes = iter([ErrorCode.coordinator_load_in_progress, ErrorCode.concurrent_transactions, ErrorCode.none])
    world.says = lambda address: answer(int(next(codes)))
    world.send(Coordinator(GROUPS, "g"))
    assert world.hosts() == ["b2"] * 3
    assert len(world.hosts(FIND_COORDINATOR)) == 1


def test_a_connection_that_is_lost_is_looked_up_elsewhere(world: World) -> None:
    world.send(Leader(PLACE))
    world.leader, world.epoch = 3, 2
    world.away = {B1}
    world.send(Leader(PLACE))
    assert world.hosts() == ["b1", "b1", "b3"]
    assert world.hosts(METADATA) == ["b1", "b2"]


def test_garbage_is_like_a_lost_connection(world: World) -> None:
    def spoils(address: Address) -> Any:
        if world.hosts().count("b1") == 1:
            raise Corrupt("an answer of 1 bytes")
        return answer(0)

    world.says = spoils
    assert world.send(B1) == answer(0)
    world.asked.clear()
    with pytest.raises(Unavailable, match="b1:9092 gave no answer: an answer of 1 bytes"):
        world.send(B1, timeout_s=0)


def test_any_is_the_next_that_answers(world: World) -> None:
    world.away = {B1, B2}
    world.send(ANY)
    assert world.hosts() == ["b1", "b2", "b3"]
    assert world.pauses == []
    world.send(ANY)
    assert world.hosts()[3:] == ["b3"]


def test_pauses_grow_until_the_time_is_up_and_the_last_error_stands(world: World) -> None:
    world.says = lambda address: answer(int(ErrorCode.not_leader_or_follower))
    with pytest.raises(Unavailable, match="list_offsets to the leader of orders-0: NOT_LEADER_OR_FOLLOWER"):
        world.send(Leader(PLACE), timeout_s=10)
    assert 1008 < world.now_s <= 1010
    assert world.pauses[0] < 0.03
    assert all(pause <= 1.2 for pause in world.pauses)
    assert len(world.pauses) < 20


def test_nobody_anywhere(world: World) -> None:
    world.away = {B1, B2, B3}
    for to in (ANY, Leader(PLACE), Coordinator(GROUPS, "g"), Broker(1), CONTROLLER):
        with pytest.raises(Unavailable, match="cannot be reached"):
            world.send(to, timeout_s=1)


def test_a_partition_without_a_leader(world: World) -> None:
    world.leader = -1
    with pytest.raises(Unavailable, match="orders-0 has no leader"):
        world.send(Leader(PLACE), timeout_s=1)
    with pytest.raises(Unavailable, match="there is no broker 9 now"):
        world.send(Broker(9), timeout_s=1)
    world.coordinator = Address("", -1)
    with pytest.raises(Unavailable, match="the coordinator of 'g': COORDINATOR_NOT_AVAILABLE"):
        world.send(Coordinator(GROUPS, "g"), timeout_s=1)


def test_topics_that_are_not_there(world: World) -> None:
    world.topic_code = UNKNOWN_TOPIC
    with pytest.raises(UnknownTopic, match="topic 'orders': UNKNOWN_TOPIC_OR_PARTITION"):
        world.send(Leader(PLACE))
    assert world.pauses == []
    with pytest.raises(UnknownTopic):
        world.send(Leader(PLACE), topics_come_s=3)
    assert 2 < world.now_s - 1000 < 5
    world.topic_code = 0
    with pytest.raises(UnknownTopic, match="no partition 4"):
        world.send(Leader(TopicPartition("orders", 4)))


def test_a_topic_that_is_on_its_way(world: World) -> None:
    codes = iter([UNKNOWN_TOPIC, UNKNOWN_TOPIC, 0])
    world.says = lambda address: answer(next(codes))
    assert world.send(Leader(PLACE), topics_come_s=3) == answer(0)
    world.says = lambda address: answer(UNKNOWN_TOPIC)
    assert world.send(Leader(PLACE)) == answer(UNKNOWN_TOPIC)


def test_other_codes_are_the_callers(world: World) -> None:
    exists = answer(0, int(ErrorCode.topic_already_exists))
    world.says = lambda address: exists
    assert world.send(CONTROLLER) is exists
    not_leader = answer(int(ErrorCode.not_leader_or_follower))
    world.says = lambda address: not_leader
    assert world.send(B1, Request(FETCH, {}, codes=outer_code)) is not_leader
    assert world.pauses == []


def test_what_cannot_be_asked_is_not_tried_again(world: World) -> None:
    def refuses(address: Address) -> Any:
        raise Invalid("the broker does not know list_groups")

    world.says = refuses
    with pytest.raises(Invalid):
        world.send(ANY, Request(LIST_GROUPS, {}))
    assert world.hosts(LIST_GROUPS) == ["b1"]


def test_one_that_hangs_does_not_take_the_time_of_the_others(world: World) -> None:
    world.send(ANY)
    world.send(Leader(PLACE))
    assert world.hosts() == ["b1", "b1"]
    assert world.bounds == [5.0, 5.0, inf]  # any, a lookup, and the only one that could answer
    world.bounds.clear()
    world.routing = Routing([B1])
    world.send(ANY)
    assert world.bounds == [inf]
