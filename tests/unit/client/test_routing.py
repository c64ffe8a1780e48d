"""Routing: the highest epoch stays, whoever answers Metadata; what is lost is looked up again."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from anabranch.base.errors import Invalid
from anabranch.client.destinations import (
    ANY,
    CONTROLLER,
    Address,
    Broker,
    Coordinator,
    Leader,
    TopicPartition,
    addresses,
)
from anabranch.client.routing import NOBODY, Led, Routing

B1, B2, B3 = (Address(f"b{n}", 9092) for n in (1, 2, 3))
PLACE = TopicPartition("orders", 0)
AN_ID, ANOTHER_ID = UUID(int=1), UUID(int=2)


def heard(leader: int, epoch: int, id: UUID | None = AN_ID, error_code: int = 0) -> Any:
    """A Metadata answer on one partition."""
    part = SimpleNamespace(partition_index=0, leader_id=leader, leader_epoch=epoch)
    topic = SimpleNamespace(error_code=error_code, name="orders", topic_id=id, partitions=[part])
    brokers = [SimpleNamespace(node_id=n, host=at.host, port=at.port) for n, at in enumerate((B1, B2, B3), 1)]
    return SimpleNamespace(brokers=brokers, controller_id=3, topics=[topic])


@pytest.fixture
def routing() -> Routing:
    return Routing([B1])


def test_nothing_is_known_at_first(routing: Routing) -> None:
    for to in (Leader(PLACE), CONTROLLER, Broker(1), Coordinator(0, "g")):
        assert routing.address_of(to) is None
    assert routing.address_of(B2) == B2
    assert routing.candidates() == [B1]
    assert routing.led(PLACE) == Led(NOBODY, NOBODY)


def test_what_metadata_says(routing: Routing) -> None:
    routing.learn(heard(2, 5))
    assert routing.address_of(Leader(PLACE)) == B2
    assert routing.address_of(CONTROLLER) == B3
    assert routing.address_of(Broker(1)) == B1
    assert routing.led(PLACE) == Led(2, 5)
    assert routing.candidates() == [B1, B2, B3]


def test_an_older_epoch_never_replaces_a_newer_one(routing: Routing) -> None:
    routing.learn(heard(2, 5))
    routing.learn(heard(1, 4))
    assert routing.led(PLACE) == Led(2, 5)
    routing.expire(Leader(PLACE))
    assert routing.address_of(Leader(PLACE)) is None
    routing.learn(heard(1, 4))
    assert routing.led(PLACE) == Led(NOBODY, 5)
    routing.learn(heard(3, 6))
    assert routing.led(PLACE) == Led(3, 6)
    routing.expire_all()
    assert routing.led(PLACE) == Led(NOBODY, 6)
    routing.learn(heard(3, 6))
    assert routing.address_of(Leader(PLACE)) == B3


def test_a_topic_that_was_made_anew_begins_again(routing: Routing) -> None:
    routing.learn(heard(2, 5))
    routing.learn(heard(1, 0, ANOTHER_ID))
    assert routing.led(PLACE) == Led(1, 0)
    routing.learn(heard(2, 3, None))  # from one that knows no ids
    assert routing.led(PLACE) == Led(2, 3)


def test_brokers_without_epochs_are_believed(routing: Routing) -> None:
    routing.learn(heard(2, 5))
    routing.learn(heard(1, NOBODY))
    assert routing.address_of(Leader(PLACE)) == B1


def test_what_is_said_of_a_topic_that_is_in_doubt_does_not_count(routing: Routing) -> None:
    routing.learn(heard(2, 5))
    routing.learn(heard(1, 6, error_code=3))
    assert routing.led(PLACE) == Led(2, 5)


def test_where_nobody_answers_is_looked_up(routing: Routing) -> None:
    routing.learn(heard(2, 5))
    group = Coordinator(0, "g")
    routing.learn_coordinator(group, B2)
    routing.learn_coordinator(Coordinator(1, "g"), B3)
    routing.lost(B2)
    assert routing.address_of(Leader(PLACE)) is None
    assert routing.address_of(Broker(2)) is None
    assert routing.address_of(group) is None
    assert routing.address_of(Coordinator(1, "g")) == B3
    routing.learn(heard(2, 5))  # it is still said to be there, and is asked again
    assert routing.address_of(Leader(PLACE)) == B2


def test_coordinators_and_the_controller_move(routing: Routing) -> None:
    routing.learn(heard(2, 5))
    group = Coordinator(0, "g")
    routing.learn_coordinator(group, B2)
    routing.expire(group)
    routing.expire(group)
    assert routing.address_of(group) is None
    routing.expire(CONTROLLER)
    assert routing.address_of(CONTROLLER) is None
    routing.expire(ANY)
    routing.expire(B1)
    routing.expire(Leader(TopicPartition("absent", 0)))
    assert routing.address_of(Leader(PLACE)) == B2


def test_who_answers_is_asked_first_and_who_is_behind_is_not(routing: Routing) -> None:
    routing.learn(heard(2, 5))
    routing.answered(B2)
    assert routing.candidates() == [B2, B3, B1]
    routing.ask_another()
    assert routing.candidates() == [B3, B1, B2]
    routing.answered(B3)
    routing.lost(B3)
    assert routing.candidates() == [B1, B2, B3]
    alone = Routing([B1])
    alone.answered(B1)
    alone.ask_another()
    assert alone.candidates() == [B1]


def test_destinations_in_words() -> None:
    assert [str(one) for one in (B1, Broker(7), Leader(PLACE), CONTROLLER, ANY, Coordinator(0, "g"))] == [
        "b1:9092",
        "broker 7",
        "the leader of orders-0",
        "the controller",
        "any broker",
        "the coordinator of 'g'",
    ]
    assert addresses("a:1, [::1]:2") == [Address("a", 1), Address("::1", 2)]
    assert str(Address("::1", 2)) == "[::1]:2"
    for wrong in ("", "a", "a:", ":1", "a:0", "a:70000", "a:x"):
        with pytest.raises(Invalid, match="is not HOST:PORT"):
            addresses(wrong)
