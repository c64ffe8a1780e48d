"""Share groups in `anabranch group`: their state, and where they are with each partition.

A share group has no committed offsets.  A partition has a start offset: what is below it is done with, and
the lag is what from there on is not.
"""

from typing import Any, NamedTuple

from anabranch.client.answers import check
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import GROUPS, Broker, Coordinator, TopicPartition
from anabranch.client.requests import (
    ALTER_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    LIST_GROUPS,
    SHARE_GROUP_DESCRIBE,
    Request,
)
from anabranch.wire.kafka.schema import ErrorCode

KIND = "share"
_UNKNOWN = -1


class Start(NamedTuple):
    """Where a share group is with a partition."""

    offset: int | None
    lag: int | None


def share_groups(cluster: Cluster) -> dict[str, str]:
    """The state of every share group by its name."""
    asked = {"states_filter": [], "types_filter": [KIND]}
    found = {}
    for broker in cluster.brokers():
        answer = cluster.send(Broker(broker), Request(LIST_GROUPS, asked))
        check(answer.error_code, "the groups")
        found.update(
            {
                group.group_id: group.group_state.lower()
                for group in answer.groups
                if group.group_type.lower() == KIND
            }
        )
    return found


def find_share(cluster: Cluster, name: str) -> Any | None:
    """The share group, None if there is none, or one of another kind."""
    if name not in share_groups(cluster):  # of a broker that has none nothing else is asked
        return None
    asked = {"group_ids": [name], "include_authorized_operations": False}
    group = cluster.send(Coordinator(GROUPS, name), Request(SHARE_GROUP_DESCRIBE, asked)).groups[0]
    if group.error_code == ErrorCode.group_id_not_found:
        return None
    check(group.error_code, name)
    return group


def starts(cluster: Cluster, name: str) -> dict[TopicPartition, Start]:
    asked = {"groups": [{"group_id": name, "topics": None}]}
    answer = cluster.send(Coordinator(GROUPS, name), Request(DESCRIBE_SHARE_GROUP_OFFSETS, asked)).groups[0]
    check(answer.error_code, name)
    found = {}
    for topic in answer.topics:
        for part in topic.partitions:
            check(part.error_code, f"{topic.topic_name} partition {part.partition_index}")
            place = TopicPartition(topic.topic_name, part.partition_index)
            found[place] = Start(_known(part.start_offset), _known(part.lag))
    return found


def start_at(cluster: Cluster, name: str, moves: dict[TopicPartition, int]) -> None:
    """Have the group go on at these offsets, with nothing of what is behind them done."""
    topics: dict[str, list[dict[str, int]]] = {}
    for place, offset in moves.items():
        part = {"partition_index": place.partition, "start_offset": offset}
        topics.setdefault(place.topic, []).append(part)
    asked = {
        "group_id": name,
        "topics": [{"topic_name": topic, "partitions": parts} for topic, parts in topics.items()],
    }
    answer = cluster.send(Coordinator(GROUPS, name), Request(ALTER_SHARE_GROUP_OFFSETS, asked))
    check(answer.error_code, name)
    for topic in answer.responses:
        for part in topic.partitions:
            check(part.error_code, f"{topic.topic_name} partition {part.partition_index}")


def shown(cluster: Cluster, group: Any) -> dict[str, Any]:
    """The group as `anabranch group describe` shows it."""
    readers: dict[TopicPartition, list[str]] = {}
    members = []
    for member in sorted(group.members, key=lambda member: member.member_id):
        reads = sorted(
            [topic.topic_name, partition]
            for topic in member.assignment.topic_partitions
            for partition in topic.partitions
        )
        for topic, partition in reads:
            readers.setdefault(TopicPartition(topic, partition), []).append(member.member_id)
        members.append(
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.client_host,
                "reads": reads,
            }
        )
    known = starts(cluster, group.group_id)
    nowhere = Start(None, None)
    return {
        "group": group.group_id,
        "state": group.group_state.lower(),
        "protocol": KIND,
        "assignor": group.assignor_name,
        "members": members,
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "start": known.get(place, nowhere).offset,
                "lag": known.get(place, nowhere).lag,
                "members": readers.get(place, []),
            }
            for place in sorted({*known, *readers})
        ],
    }


def _known(number: int) -> int | None:
    return None if number == _UNKNOWN else number
