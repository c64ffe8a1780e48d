"""Routing: which broker leads a partition, coordinates a group or is the controller, as last heard.

    routing.learn(metadata)          what a Metadata answer says
    routing.address_of(to)           an Address, None if it must be looked up
    routing.expire(to)               it was somebody else: look it up before it is asked again
    routing.lost(address)            nobody answers there

Leaders carry their epochs, and **an older epoch never replaces a newer one**: Metadata comes from any broker,
and one that is behind must not send us back to a leader that was replaced.  What is expired keeps its epoch.
A topic that was deleted and made again has another id, and its epochs begin again.

Nothing here asks anybody.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from anabranch.client.destinations import (
    Address,
    AnyBroker,
    Broker,
    Controller,
    Coordinator,
    Leader,
    To,
    TopicPartition,
)

NOBODY = -1


class Led(NamedTuple):
    """Who leads a partition, and since which epoch.  NOBODY while there is none, or it must be looked up."""

    broker: int
    epoch: int


class Routing:
    def __init__(self, bootstrap: Iterable[Address]) -> None:
        self._bootstrap = list(bootstrap)
        self._brokers: dict[int, Address] = {}
        self._controller = NOBODY
        self._topic_ids: dict[str, UUID | None] = {}
        self._leaders: dict[TopicPartition, Led] = {}
        self._coordinators: dict[Coordinator, Address] = {}
        self._in_doubt: set[Address] = set()  # where nobody answered, since Metadata named it
        self._answering: Address | None = None

    # --- what is known

    def address_of(self, to: To) -> Address | None:
        """Where `to` is; None if it must be looked up.  (Any broker has several addresses: `candidates`.)"""
        assert not isinstance(to, AnyBroker)
        if isinstance(to, Address):
            return to
        if isinstance(to, Coordinator):
            return self._coordinators.get(to)
        if isinstance(to, Broker):
            id = to.id
        else:
            id = self.led(to.partition).broker if isinstance(to, Leader) else self._controller
        address = self._brokers.get(id)
        return None if address in self._in_doubt else address

    def candidates(self) -> list[Address]:
        """All brokers that may answer what any can, the one that last did first, each once."""
        all_of_them = list(dict.fromkeys([*self._bootstrap, *self._brokers.values()]))
        at = all_of_them.index(self._answering) if self._answering in all_of_them else 0
        return all_of_them[at:] + all_of_them[:at]

    def led(self, partition: TopicPartition) -> Led:
        return self._leaders.get(partition, Led(NOBODY, NOBODY))

    # --- what is heard

    def learn(self, metadata: Any) -> None:
        """What a Metadata answer says of brokers, the controller, and the topics that it names."""
        if metadata.brokers:
            self._brokers = {one.node_id: Address(one.host, one.port) for one in metadata.brokers}
            self._in_doubt.clear()
        self._controller = metadata.controller_id
        for topic in metadata.topics:
            if topic.error_code or topic.name is None:
                continue
            self._identify(topic.name, topic.topic_id)
            for one in topic.partitions:
                led = Led(one.leader_id, one.leader_epoch)
                self.learn_leader(TopicPartition(topic.name, one.partition_index), led)

    def learn_leader(self, partition: TopicPartition, led: Led) -> None:
        """Who leads, unless that is older than what is known.  (Old brokers know no epochs: -1.)"""
        known = self._leaders.get(partition)
        if known is None or led.epoch >= known.epoch or led.epoch == NOBODY:
            self._leaders[partition] = led

    def learn_coordinator(self, coordinator: Coordinator, address: Address) -> None:
        self._coordinators[coordinator] = address

    def answered(self, address: Address) -> None:
        self._answering = address

    def _identify(self, topic: str, id: UUID | None) -> None:
        known = self._topic_ids.get(topic)
        if id is not None and known is not None and id != known:
            for partition in [one for one in self._leaders if one.topic == topic]:
                del self._leaders[partition]
        self._topic_ids[topic] = id

    # --- what is believed no more

    def expire(self, to: To) -> None:
        """It is not `to` that was asked: look it up again.  A leader's epoch stays known."""
        if isinstance(to, Leader):
            known = self._leaders.get(to.partition)
            if known is not None:
                self._leaders[to.partition] = known._replace(broker=NOBODY)
        elif isinstance(to, Coordinator):
            self._coordinators.pop(to, None)
        elif isinstance(to, Controller):
            self._controller = NOBODY

    def expire_all(self) -> None:
        for partition, led in self._leaders.items():
            self._leaders[partition] = led._replace(broker=NOBODY)
        self._coordinators.clear()
        self._controller = NOBODY

    def lost(self, address: Address) -> None:
        """Nobody answers at `address`: whoever was there is looked up again, at another broker first."""
        self._in_doubt.add(address)
        self._coordinators = {one: at for one, at in self._coordinators.items() if at != address}
        if self._answering == address:
            self.ask_another()

    def ask_another(self) -> None:
        """What the broker that last answered knows is of no use: it may be behind."""
        following = self.candidates()[1:]
        self._answering = following[0] if following else None
