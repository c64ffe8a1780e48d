"""Offsets of a group, committed and asked for without being a member of it."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from anabranch.client.answers import check
from anabranch.client.blocking import Client
from anabranch.client.destinations import GROUPS, Coordinator, TopicPartition
from anabranch.client.requests import OFFSET_COMMIT, OFFSET_FETCH, Request


class Committed(NamedTuple):
    offset: int
    metadata: str


def by_topic(partitions: Iterable[tuple[TopicPartition, Any]], key: str) -> list[dict[str, Any]]:
    """Items of partitions as requests have them: under the name of their topic."""
    topics: dict[str, list[Any]] = {}
    for partition, item in partitions:
        topics.setdefault(partition.topic, []).append(item)
    return [{"name": name, key: items} for name, items in topics.items()]


def offset_items(offsets: Mapping[TopicPartition, int], metadata: str) -> list[tuple[TopicPartition, Any]]:
    """What a commit says of each partition."""
    return [
        (
            one,
            {
                "partition_index": one.partition,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": metadata,
            },
        )
        for one, offset in offsets.items()
    ]


def check_partitions(answer: Any, what: str) -> None:
    for topic in answer.topics:
        for one in topic.partitions:
            check(one.error_code, f"{what} of {topic.name}-{one.partition_index}")


def commit_offsets(
    client: Client, group: str, offsets: Mapping[TopicPartition, int], *, metadata: str = ""
) -> None:
    """The group has read everything before `offsets`."""
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": by_topic(offset_items(offsets, metadata), "partitions"),
    }
    answer = client.send(Coordinator(GROUPS, group), Request(OFFSET_COMMIT, values))
    check_partitions(answer, f"the offset that group {group!r} commits")


def committed_offsets(
    client: Client,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    stable: bool = True,
) -> dict[TopicPartition, Committed]:
    """What the group has committed, of all partitions unless some are named.

    Nothing that a transaction under way may still change: that is waited for, if it is to be `stable`.
    """
    items = None if partitions is None else [(one, one.partition) for one in partitions]
    values = {
        "group_id": group,
        "topics": None if items is None else by_topic(items, "partition_indexes"),
        "require_stable": stable,
    }
    answer = client.send(Coordinator(GROUPS, group), Request(OFFSET_FETCH, values))
    check(answer.error_code, f"the offsets of group {group!r}")
    check_partitions(answer, f"the offset of group {group!r}")
    return {
        TopicPartition(topic.name, one.partition_index): Committed(one.committed_offset, one.metadata or "")
        for topic in answer.topics
        for one in topic.partitions
        if one.committed_offset >= 0
    }
