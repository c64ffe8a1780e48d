"""A consumer group as ConsumerGroupDescribe shows it.

Topics that were deleted are left out of assignments: they have no name to be shown under.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from anabranch.groups.consumer_group import ConsumerGroup, preferred_assignor
from anabranch.groups.consumer_member import Member
from anabranch.groups.effects import Answer
from anabranch.groups.parts import Surroundings, Topics

_CLASSIC, _CONSUMER = 0, 1


def describe(group: ConsumerGroup, around: Surroundings) -> Answer:
    default = around.config().consumer_assignors[0]
    return {
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": preferred_assignor(group.members.values(), default),
        "members": [_member(group, member, around.topics) for member in group.members.values()],
    }


def _member(group: ConsumerGroup, member: Member, topics: Topics) -> Answer:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "subscribed_topic_regex": member.topic_regex,
        "assignment": described_assignment(member.assigned, topics),
        "target_assignment": described_assignment(group.targets.get(member.member_id, {}), topics),
        "member_type": _CLASSIC if member.is_classic else _CONSUMER,
    }


def described_assignment(partitions: Mapping[UUID, Iterable[int]], topics: Topics) -> Answer:
    found = ((topics.by_id(topic_id), indexes) for topic_id, indexes in partitions.items())
    return {
        "topic_partitions": [
            {"topic_id": facts.topic_id, "topic_name": facts.name, "partitions": sorted(indexes)}
            for facts, indexes in found
            if facts is not None
        ]
    }
