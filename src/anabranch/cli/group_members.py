"""Groups of consumers in `anabranch group`: which there are, their members, and what each reads.

Two protocols, two questions: ConsumerGroupDescribe knows groups of the newer one (KIP-848), DescribeGroups
the classic ones, whose assignments are bytes between members.
"""

from typing import Any, NamedTuple

from anabranch.base.errors import Invalid
from anabranch.client.answers import check, check_told
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import GROUPS, Broker, Coordinator, TopicPartition
from anabranch.client.requests import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS, LIST_GROUPS, Request
from anabranch.groups.consumer_embedded import read_assignment
from anabranch.wire.kafka.schema import ErrorCode

CLASSIC, CONSUMER = "classic", "consumer"
_STATES = {
    "PreparingRebalance": "preparing rebalancing",
    "CompletingRebalance": "completing rebalancing",
    "Assigning": "rebalancing",
    "Reconciling": "rebalancing",
}
_PROTOCOL_TYPES = ("consumer", "")  # Connect's workers and others are in groups, too


class Member(NamedTuple):
    id: str
    instance: str | None
    client: str
    host: str
    reads: list[TopicPartition]


class Group(NamedTuple):
    protocol: str
    state: str
    assignor: str
    members: list[Member]


def consumer_groups(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Protocol and state of every group of consumers by its name; share groups are elsewhere."""
    found = {}
    for broker in cluster.brokers():
        answer = cluster.send(Broker(broker), Request(LIST_GROUPS, {"states_filter": [], "types_filter": []}))
        check(answer.error_code, "the groups")
        for group in answer.groups:
            if group.protocol_type in _PROTOCOL_TYPES:
                protocol = group.group_type.lower() or CLASSIC
                found[group.group_id] = (protocol, state_name(group.group_state))
    return found


def find_group(cluster: Cluster, name: str) -> Group | None:
    """The group, None if there is none."""
    return _consumer_group(cluster, name) or _classic_group(cluster, name)


def _consumer_group(cluster: Cluster, name: str) -> Group | None:
    asked = {"group_ids": [name], "include_authorized_operations": False}
    try:
        answer = cluster.send(Coordinator(GROUPS, name), Request(CONSUMER_GROUP_DESCRIBE, asked))
    except Invalid:
        return None  # the broker has no such groups
    (group,) = answer.groups
    if not _is_there(group, name):
        return None
    members = [
        Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            sorted(
                TopicPartition(topic.topic_name, partition)
                for topic in member.assignment.topic_partitions
                for partition in topic.partitions
            ),
        )
        for member in group.members
    ]
    return Group(CONSUMER, state_name(group.group_state), group.assignor_name, members)


def _classic_group(cluster: Cluster, name: str) -> Group | None:
    asked = {"groups": [name], "include_authorized_operations": False}
    (group,) = cluster.send(Coordinator(GROUPS, name), Request(DESCRIBE_GROUPS, asked)).groups
    if not _is_there(group, name):
        return None
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assigned(group.protocol_type, bytes(member.member_assignment)),
        )
        for member in group.members
    ]
    return Group(CLASSIC, state_name(group.group_state), group.protocol_data, members)


def _is_there(group: Any, name: str) -> bool:
    if group.error_code == ErrorCode.group_id_not_found or group.group_state == "Dead":
        return False
    check_told(group.error_code, group.error_message, name)
    return True


def _assigned(protocol_type: str, assignment: bytes) -> list[TopicPartition]:
    if protocol_type not in _PROTOCOL_TYPES:
        return []
    return sorted(
        TopicPartition(topic, partition)
        for topic, partitions in read_assignment(assignment).items()
        for partition in partitions
    )


def state_name(state: str) -> str:
    return _STATES.get(state, state.lower())
