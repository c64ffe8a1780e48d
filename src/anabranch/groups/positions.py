"""Positions of subscriptions, which are the committed offsets of the groups of their names.

A subscription commits for itself: it is no member, and its consumers are not the group's.  So only one of
them may commit the offsets of a topic, or each would move what the other goes by: the subscription while
consumers are attached to it, and else the members of the group that read the topic, if there are any.
"""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from anabranch.groups.effects import Effects, Token
from anabranch.groups.group import GroupKind
from anabranch.groups.records import CommittedOffset, OffsetKey, write_offset, write_offset_key
from anabranch.groups.shard import GroupShard

OWN = "subscription"
"""The metadata of a committed offset that a subscription has written; others are Kafka clients'."""


class Position(NamedTuple):
    name: OffsetKey
    offset: int
    topic_id: UUID | None


def has_readers(shard: GroupShard, group_id: str, topic: str) -> bool:
    """Whether members of the group read the topic, and commit how far they got; a share group's do not."""
    group = shard.groups.get(group_id)
    if group is None or group.is_empty or group.kind is GroupKind.SHARE:
        return False
    return group.is_subscribed_to(topic)


def commit_positions(shard: GroupShard, positions: Iterable[Position], token: Token, now_ms: int) -> Effects:
    """Commit them; `refused` are the names of those that are the members' who read the topic."""
    effects = Effects()
    refused = []
    for name, offset, topic_id in positions:
        is_ours = shard.offsets.is_subscriptions(name.group_id, name.topic)
        if not is_ours and has_readers(shard, name.group_id, name.topic):
            refused.append(name)
        else:
            value = CommittedOffset(offset, -1, OWN, now_ms, -1, topic_id)
            effects.write(write_offset_key(name), write_offset(value))
    effects.reply(token, {"refused": refused})
    return effects


def delete_position(shard: GroupShard, name: OffsetKey, token: Token) -> Effects:
    """The subscription is deleted.  Its group goes too if that was all it had."""
    effects = Effects()
    others = [1 for topic, index, _ in shard.offsets.committed(name.group_id) if (topic, index) != name[1:]]
    if shard.offsets.find(name) is not None:
        effects.write(write_offset_key(name), None)
    group = shard.groups.get(name.group_id)
    if (
        group is not None
        and group.is_empty
        and not others
        and not shard.offsets.has_open_transaction(group.group_id)
    ):
        effects.records += group.tombstones()
    effects.reply(token, {})
    return effects
