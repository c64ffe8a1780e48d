"""A group changes its protocol while its members go on reading: classic to consumer, and back.

    upgrade     the first consumer of the new protocol joins a classic group: its members are members of a
                consumer group from then on, each with what it had, and speak the classic protocol to it
                (`consumer_classic`) until they are restarted
    downgrade   the last consumer of the new protocol is gone, or comes back as a classic static member, and
                those that are left are classic

Both are one batch of records: the end of the one group and all of the other.  A group that is in the middle
of a classic rebalance is upgraded too; whoever waits for that is told to join again.

`group.consumer.migration.policy` says which of the two are allowed.
"""

from collections.abc import Collection

from anabranch.base.errors import Corrupt
from anabranch.groups import classic_answers as answers
from anabranch.groups import classic_rebalance
from anabranch.groups.classic_group import CONSUMER, ClassicGroup
from anabranch.groups.classic_member import AssignmentProtocol
from anabranch.groups.classic_member import ClassicMember as MemberOfClassic
from anabranch.groups.classic_turn import Turn as ClassicTurn
from anabranch.groups.config import GroupConfig
from anabranch.groups.consumer_embedded import by_id, read_assignment, read_subscription, write_assignment
from anabranch.groups.consumer_group import ConsumerGroup
from anabranch.groups.consumer_member import ClassicMember, ClassicProtocol, Member, partitions_of
from anabranch.groups.consumer_records import (
    epoch_record,
    held_record,
    member_record,
    read_key,
    target_epoch_record,
    target_record,
)
from anabranch.groups.consumer_turn import Turn
from anabranch.groups.effects import Effects
from anabranch.groups.parts import Surroundings, Topics
from anabranch.groups.records import read_group
from anabranch.wire.kafka.schema import ErrorCode


def may_upgrade(group: ClassicGroup, config: GroupConfig) -> bool:
    return (
        config.consumer_migration_policy in ("bidirectional", "upgrade")
        and group.protocol_type == CONSUMER
        and len(group.members) <= config.consumer_max_size
    )


def upgrade(group: ClassicGroup, around: Surroundings, effects: Effects) -> ConsumerGroup:
    """The consumer group that `group` will be.  Corrupt if its members do not say what consumers say."""
    members = [
        _from_classic(member, group.protocol, group.generation, around.topics)
        for member in group.members.values()
    ]
    group_id, epoch = group.group_id, max(group.generation, 1)
    records = [
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, epoch, 0),
        *(target_record(group_id, member.member_id, partitions_of(member.assigned)) for member in members),
        target_epoch_record(group_id, epoch, 0),
        *(held_record(group_id, member) for member in members),
    ]
    upgraded = ConsumerGroup(group_id)
    for record in records:
        upgraded.replay(read_key(record.key), record.value)
    effects.records.extend(group.tombstones())
    effects.records.extend(records)
    for member_id, token in group.joining.items():
        effects.reply(token, answers.not_joined(ErrorCode.rebalance_in_progress, member_id))
    for token in group.syncing.values():
        effects.reply(token, answers.not_synced(ErrorCode.rebalance_in_progress))
    for token in group.held.values():
        effects.reply(token, answers.heard(ErrorCode.rebalance_in_progress))
    return upgraded


def _from_classic(member: MemberOfClassic, protocol: str | None, generation: int, topics: Topics) -> Member:
    subscription = read_subscription(member.metadata(protocol) or member.protocols[0].metadata)
    assigned = by_id(read_assignment(member.assignment), topics)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=subscription.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(
            member.session_timeout_ms,
            tuple(ClassicProtocol(name, metadata) for name, metadata in member.protocols),
        ),
        epoch=generation,
        previous_epoch=generation,
        assigned={topic: dict.fromkeys(indexes, generation) for topic, indexes in assigned.items()},
    )


def may_downgrade(members: Collection[Member], config: GroupConfig) -> bool:
    """Can `members`, those that are left, go on as a classic group?"""
    return (
        config.consumer_migration_policy in ("bidirectional", "downgrade")
        and 0 < len(members) <= config.max_size
        and all(member.is_classic for member in members)
    )


def downgrade(turn: Turn, members: Collection[Member]) -> None:
    """Go on as a classic group of `members`, and have them join again."""
    effects, now_ms = turn.effects, turn.now_ms
    group = ClassicGroup(turn.group.group_id)
    group.generation = turn.group.epoch
    for member in members:
        group.add(_to_classic(member, turn.around.topics), CONSUMER)
    group.protocol = group.select_protocol()
    record = group.record({m.member_id: m.assignment for m in group.members.values()}, now_ms)
    effects.records.extend((*turn.group.tombstones(), record))
    assert record.value is not None
    group.restore(read_group(record.value))
    classic = ClassicTurn(effects, now_ms, turn.around.config())
    for member_of in group.members.values():
        member_of.heard_of(now_ms)
        classic.watch(group, member_of)
    classic_rebalance.begin(classic, group)
    effects.after(lambda: turn.groups.update({group.group_id: group}))  # with all that a record leaves out


def _to_classic(member: Member, topics: Topics) -> MemberOfClassic:
    assert member.classic is not None
    classic = MemberOfClassic(member.member_id, member.instance_id, member.client_id, member.client_host)
    protocols = tuple(AssignmentProtocol(name, metadata) for name, metadata in member.classic.protocols)
    classic.agrees_on(member.classic.session_timeout_ms, member.rebalance_timeout_ms, protocols)
    classic.assignment = write_assignment(subscription_version(member), member.assigned, topics)
    return classic


def subscription_version(member: Member) -> int:
    assert member.classic is not None
    try:
        return read_subscription(member.classic.protocols[0].metadata).version
    except Corrupt:
        return 0
