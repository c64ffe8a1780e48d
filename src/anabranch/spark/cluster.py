"""A cluster as a client sees it: which topics there are, who leads and who coordinates; questions to them.

Questions are asked again, after a look at who serves the partition or the coordinator now, while the answer
is one that time may change, until `timeout_s` is over.  Connections are kept, one a broker.  Nothing here
knows Spark.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from anabranch.base.errors import Unavailable, UnknownTopic
from anabranch.spark.answers import check
from anabranch.spark.connection import (
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    Address,
    Connection,
    addresses,
)

EARLIEST, LATEST = -2, -1
GROUPS, TRANSACTIONS = 0, 1
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0

T = TypeVar("T")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]


class Settings(NamedTuple):
    """How a cluster is reached.  Small and plain: it travels to executors."""

    bootstrap: str
    client_id: str = "anabranch-spark"
    timeout_s: float = 30.0


class Cluster:
    def __init__(self, settings: Settings) -> None:
        self._bootstrap = addresses(settings.bootstrap)
        self._settings = settings
        self._connections: dict[Address, Connection] = {}
        self._leaders: dict[TopicPartition, Address] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}

    def topics(self) -> list[str]:
        """All topics but those the cluster keeps for itself."""
        answer = self.persist(lambda: self.ask_any(METADATA, _metadata(None, False)))
        return sorted(topic.name for topic in answer.topics if not topic.is_internal and not topic.error_code)

    def partitions(self, topics: Iterable[str], *, create: bool = False) -> list[TopicPartition]:
        """The partitions of `topics`, in order.  UnknownTopic if one is not there."""
        named = sorted(set(topics))
        found: list[TopicPartition] = []
        if named:
            answer = self.persist(lambda: self._described(named, create))
            for topic in answer.topics:
                found += [TopicPartition(topic.name, one.partition_index) for one in topic.partitions]
        return sorted(found)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """What tells each of `topics` from one of its name that was deleted."""
        named = sorted(set(topics))
        answer = self.persist(lambda: self._described(named, False)) if named else None
        return {topic.name: str(topic.topic_id) for topic in answer.topics} if answer else {}

    def _described(self, topics: list[str], create: bool) -> Any:
        answer = self.ask_any(METADATA, _metadata(topics, create))
        brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            check(topic.error_code, f"topic {topic.name!r}")
            for one in topic.partitions:
                leads = TopicPartition(topic.name, one.partition_index)
                if one.leader_id in brokers:
                    self._leaders[leads] = brokers[one.leader_id]
                else:
                    self._leaders.pop(leads, None)
        return answer

    def offsets_at(self, times: Mapping[TopicPartition, int], *, committed: bool = False) -> Offsets:
        """The first offset at or after a time in ms, or EARLIEST or LATEST, of each partition.

        -1 where no record is as late.  With `committed` the latest is where open transactions begin.
        """
        found: Offsets = {}

        def ask() -> None:
            for leader, theirs in self._by_leader([one for one in times if one not in found]).items():
                values = _list_offsets({one: times[one] for one in theirs}, committed)
                for topic in self.connection(leader).ask(LIST_OFFSETS, values).topics:
                    for one in topic.partitions:
                        partition = TopicPartition(topic.name, one.partition_index)
                        check(one.error_code, f"offsets of {partition}")
                        found[partition] = one.offset

        self.persist(ask)
        return found

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Address, list[TopicPartition]]:
        grouped: dict[Address, list[TopicPartition]] = {}
        for partition in partitions:
            grouped.setdefault(self.leader(partition), []).append(partition)
        return grouped

    def leader(self, partition: TopicPartition) -> Address:
        """Who leads `partition`, as last heard; Unavailable if nobody does."""
        if partition not in self._leaders:
            answer = self._described([partition.topic], False)
            if partition not in self._leaders:
                known = {one.partition_index for topic in answer.topics for one in topic.partitions}
                if partition.partition not in known:
                    raise UnknownTopic(f"topic {partition.topic!r} has no partition {partition.partition}")
                raise Unavailable(f"{partition} has no leader")
        return self._leaders[partition]

    def to_coordinator(
        self, kind: int, key: str, api_key: int, values: Mapping[str, Any], read: Callable[[Any], T]
    ) -> T:
        """What `read` makes of the answer of the coordinator of the group or transaction `key`."""

        def ask() -> T:
            if (kind, key) not in self._coordinators:
                found = self.ask_any(FIND_COORDINATOR, {"key": key, "key_type": kind})
                check(found.error_code, f"the coordinator of {key!r}")
                self._coordinators[kind, key] = Address(found.host, found.port)
            return read(self.connection(self._coordinators[kind, key]).ask(api_key, values))

        return self.persist(ask)

    def persist(self, ask: Callable[[], T]) -> T:
        """What `ask` returns, asked again as long as the time and the error allow."""
        deadline = time.monotonic() + self._settings.timeout_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return ask()
            except Unavailable:
                self.forget()
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def forget(self) -> None:
        """Who serves what is looked up again, over new connections."""
        self._leaders.clear()
        self._coordinators.clear()
        self.close()

    def connection(self, address: Address) -> Connection:
        if address not in self._connections:
            self._connections[address] = self.connect(address)
        return self._connections[address]

    def connect(self, address: Address) -> Connection:
        """A connection of the caller's own, to be closed by it."""
        return Connection(address, self._settings.client_id, self._settings.timeout_s)

    def ask_any(self, api_key: int, values: Mapping[str, Any]) -> Any:
        """The answer of some broker."""
        for address in [*self._connections, *self._bootstrap]:
            try:
                return self.connection(address).ask(api_key, values)
            except Unavailable:
                if lost := self._connections.pop(address, None):
                    lost.close()
                if address == self._bootstrap[-1]:
                    raise
        raise AssertionError("a bootstrap without addresses")

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _metadata(topics: list[str] | None, create: bool) -> dict[str, Any]:
    return {
        "topics": None if topics is None else [{"name": topic} for topic in topics],
        "allow_auto_topic_creation": create,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def _list_offsets(times: Mapping[TopicPartition, int], committed: bool) -> dict[str, Any]:
    by_topic: dict[str, list[dict[str, int]]] = {}
    for partition, time_ms in times.items():
        one = {"partition_index": partition.partition, "current_leader_epoch": -1, "timestamp": time_ms}
        by_topic.setdefault(partition.topic, []).append(one)
    topics = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
    return {"replica_id": -1, "isolation_level": int(committed), "topics": topics}
