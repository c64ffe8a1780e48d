"""A cluster as programs see it: which topics there are, their partitions, and offsets by time.

The blocking client with the questions that all have.  Nothing here knows Spark or the command line.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from anabranch.client.answers import check, check_told
from anabranch.client.blocking import Client
from anabranch.client.destinations import ANY, CONTROLLER, Address, Leader, TopicPartition
from anabranch.client.requests import CREATE_TOPICS, LIST_OFFSETS, Request
from anabranch.client.sending import metadata

EARLIEST, LATEST = -2, -1
CONSUMER, DEBUGGER = -1, -2
"""Who asks for offsets: the second is answered by followers, too, and by the log's end."""

Offsets = dict[TopicPartition, int]


class Cluster(Client):
    def topics(self) -> list[str]:
        """All topics but those the cluster keeps for itself."""
        answer = self.metadata(None)
        return sorted(topic.name for topic in answer.topics if not topic.is_internal and not topic.error_code)

    def brokers(self) -> list[int]:
        """The ids of all brokers."""
        return sorted(one.node_id for one in self.metadata([]).brokers)

    def partitions(self, topics: Iterable[str], *, create: bool = False) -> list[TopicPartition]:
        """The partitions of `topics`, in order.  UnknownTopic if one is not there."""
        found = [
            TopicPartition(topic.name, one.partition_index)
            for topic in self._described(topics, create)
            for one in topic.partitions
        ]
        return sorted(found)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """What tells each of `topics` from one of its name that was deleted."""
        return {topic.name: str(topic.topic_id) for topic in self._described(topics, False)}

    def _described(self, topics: Iterable[str], create: bool) -> list[Any]:
        named = sorted(set(topics))

        def ask() -> list[Any]:
            answer = self.send(ANY, metadata(named, create=create))
            for topic in answer.topics:
                check(topic.error_code, f"topic {topic.name!r}")
            self.routing.learn(answer)
            return list(answer.topics)

        return self.persist(ask) if named else []

    def create_topic(
        self, name: str, partitions: int = -1, replication: int = -1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic; -1 is the broker's default.  Exists if it is there."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replication,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        values = {"topics": [topic], "timeout": round(self.settings.timeout_s * 1000), "validate_only": False}
        (made,) = self.send(CONTROLLER, Request(CREATE_TOPICS, values)).topics
        check_told(made.error_code, made.error_message, f"topic {name!r}")

    def offsets_at(self, times: Mapping[TopicPartition, int], *, committed: bool = False) -> Offsets:
        """The first offset at or after a time in ms, or EARLIEST or LATEST, of each partition.

        -1 where no record is as late.  With `committed` the latest is where open transactions begin.
        """
        found: Offsets = {}

        def ask() -> None:
            by_leader = self._by_leader([one for one in times if one not in found])
            started = [
                self.start(leader, list_offsets({one: times[one] for one in theirs}, CONSUMER, committed))
                for leader, theirs in by_leader.items()
            ]
            for pending in started:
                for topic in pending.take(self.settings.timeout_s).topics:
                    for one in topic.partitions:
                        partition = TopicPartition(topic.name, one.partition_index)
                        check(one.error_code, f"offsets of {partition}")
                        found[partition] = one.offset

        self.persist(ask)
        return found

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Address, list[TopicPartition]]:
        grouped: dict[Address, list[TopicPartition]] = {}
        for partition in partitions:
            grouped.setdefault(self.locate(Leader(partition)), []).append(partition)
        return grouped


def list_offsets(times: Mapping[TopicPartition, int], replica: int, committed: bool = False) -> Request:
    by_topic: dict[str, list[dict[str, int]]] = {}
    for partition, time_ms in times.items():
        one = {"partition_index": partition.partition, "current_leader_epoch": -1, "timestamp": time_ms}
        by_topic.setdefault(partition.topic, []).append(one)
    topics = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
    values = {"replica_id": replica, "isolation_level": int(committed), "topics": topics}
    return Request(LIST_OFFSETS, values)
