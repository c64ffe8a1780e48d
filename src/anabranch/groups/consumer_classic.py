"""Members of a consumer group that speak the classic protocol, while the group moves from one to the other.

    JoinGroup   is a heartbeat that says everything; it is answered at once, as there is nobody to wait for
    SyncGroup   asks for the partitions that the member holds
    Heartbeat   is told REBALANCE_IN_PROGRESS when there is a reason to join again: a newer target, partitions
                to give up, or partitions that have become free

Nobody leads: the answer to a join names no leader, and so no client assigns.  A member's generation is its
epoch.  One that is told to join again, or to sync, and does not do so in its rebalance timeout is out.
"""

from collections.abc import Sequence

import msgspec

from anabranch.base.errors import Corrupt
from anabranch.groups import classic_answers as answers
from anabranch.groups import consumer_heartbeat
from anabranch.groups.classic_group import CONSUMER
from anabranch.groups.classic_join import Joining
from anabranch.groups.classic_sync import Identity, Syncing
from anabranch.groups.consumer_change import Change
from anabranch.groups.consumer_embedded import Subscription, by_id, read_subscription, write_assignment
from anabranch.groups.consumer_group import ConsumerGroup
from anabranch.groups.consumer_heartbeat import new_member_id
from anabranch.groups.consumer_member import JOINING, ClassicMember, ClassicProtocol, Member, MemberState
from anabranch.groups.consumer_migration import downgrade, may_downgrade, subscription_version
from anabranch.groups.consumer_turn import REJOIN, SYNC, Turn
from anabranch.groups.effects import Answer, Effects, Token
from anabranch.groups.group import Group
from anabranch.groups.parts import Surroundings
from anabranch.wire.kafka.schema import ErrorCode

_ID_FIRST_FROM = 4


class _Refused(Exception):
    def __init__(self, code: ErrorCode, member_id: str = "") -> None:
        super().__init__(code.name)
        self.code = code
        self.member_id = member_id


class ClassicMembersOfConsumerGroups:
    def __init__(self, around: Surroundings, groups: dict[str, Group]) -> None:
        self._around = around
        self._groups = groups

    def _turn(self, group: Group, now_ms: int) -> Turn:
        assert isinstance(group, ConsumerGroup)
        return Turn(group, self._groups, self._around, Effects(), now_ms)

    def join(self, group: Group, who: Joining, token: Token, now_ms: int) -> Effects:
        turn = self._turn(group, now_ms)
        try:
            answer = _join(turn, who)
        except _Refused as refused:
            turn = self._turn(group, now_ms)
            answer = answers.not_joined(refused.code, refused.member_id)
        turn.effects.reply(token, answer)
        turn.effects.reply_if_lost(token, answers.not_joined(ErrorCode.coordinator_not_available))
        return turn.effects

    def sync(self, group: Group, who: Syncing, token: Token, now_ms: int) -> Effects:
        turn = self._turn(group, now_ms)
        try:
            turn.effects.reply(token, _sync(turn, who))
        except _Refused as refused:
            turn.effects.reply(token, answers.not_synced(refused.code))
        return turn.effects

    def heartbeat(self, group: Group, who: Identity, generation: int, token: Token, now_ms: int) -> Effects:
        turn = self._turn(group, now_ms)
        try:
            turn.effects.reply(token, answers.heard(_heartbeat(turn, who, generation)))
        except _Refused as refused:
            turn.effects.reply(token, answers.heard(refused.code))
        return turn.effects

    def leave(self, group: Group, leaving: Sequence[Identity], token: Token, now_ms: int) -> Effects:
        turn = self._turn(group, now_ms)
        told = []
        gone: dict[str, Member] = {}
        for who in leaving:
            try:
                member = _find(turn.group, who, by_instance=not who.member_id)
                gone[member.member_id] = member
                told.append(answers.left(member.member_id, who.instance_id, ErrorCode.none))
            except _Refused as refused:
                told.append(answers.left(*who, refused.code))
        if gone:
            consumer_heartbeat.remove(turn, *gone.values())
        turn.effects.reply(token, {"error_code": ErrorCode.none, "members": told})
        turn.effects.reply_if_lost(token, {"error_code": ErrorCode.coordinator_not_available, "members": []})
        return turn.effects


def _find(group: ConsumerGroup, who: Identity, *, by_instance: bool = False) -> Member:
    """The member, if it is one and speaks this protocol."""
    member = group.members.get(who.member_id)
    if who.instance_id is not None:
        member = group.static_member(who.instance_id)
        if member is not None and member.member_id != who.member_id and not by_instance:
            raise _Refused(ErrorCode.fenced_instance_id)
    if member is None or not member.is_classic:
        raise _Refused(ErrorCode.unknown_member_id)
    return member


# --- join


def _join(turn: Turn, who: Joining) -> Answer:
    group, most = turn.group, turn.around.config().consumer_max_size
    if len(group.members) >= most and who.member_id not in group.members:
        raise _Refused(ErrorCode.group_max_size_reached)
    subscription = _check_protocols(group, who)
    member_id = who.member_id or new_member_id(turn.around.chance)
    if not who.member_id and who.instance_id is None and who.version >= _ID_FIRST_FROM:
        raise _Refused(ErrorCode.member_id_required, member_id)
    change = turn.change()
    member = _member_for(change, who, member_id)
    asks = msgspec.structs.replace(
        member,
        instance_id=who.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=who.client_id,
        client_host=who.client_host,
        topic_names=subscription.topics,
        topic_regex="",
        rebalance_timeout_ms=who.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicMember(who.session_timeout_ms, tuple(ClassicProtocol(*p) for p in who.protocols)),
    )
    change.put(asks)
    gone = [member for member in group.members.values() if member.member_id not in change.members]
    changes_protocol = any(not member.is_classic for member in gone)
    if changes_protocol and may_downgrade(change.members.values(), turn.around.config()):
        return _join_last(turn, who, change, asks)
    change.follow_topics()
    change.settle()
    holds = turn.settle(change, asks, by_id(subscription.owned, turn.around.topics))
    turn.watch(holds)
    turn.effects.cancel(turn.timer(REJOIN, holds.member_id))
    turn.effects.after(lambda: _has_rejoined(group, holds.member_id))
    turn.effects.at(turn.timer(SYNC, holds.member_id), turn.now_ms + who.rebalance_timeout_ms)
    return _joined(who, holds.member_id, holds.epoch)


def _join_last(turn: Turn, who: Joining, change: Change, member: Member) -> Answer:
    """The last one of the new protocol is back as a classic member, and the group is a classic one again."""
    turn.effects.records.clear()  # what was to change of a group that is no more
    for member_id in turn.group.members.keys() - change.members.keys():
        turn.forget(member_id)
    downgrade(turn, change.members.values())
    return _joined(who, member.member_id, turn.group.epoch)


def _joined(who: Joining, member_id: str, generation: int) -> Answer:
    return {
        "error_code": ErrorCode.none,
        "generation_id": generation,
        "protocol_type": CONSUMER,
        "protocol_name": who.protocols[0].name,
        "leader": "",
        "skip_assignment": False,
        "member_id": member_id,
        "members": [],
    }


def _check_protocols(group: ConsumerGroup, who: Joining) -> Subscription:
    """All classic members of a group must have a way of assigning in common, should it go back to that."""
    names = {protocol.name for protocol in who.protocols}
    for member in group.members.values():
        if member.classic is not None and member.member_id != who.member_id:
            names &= {protocol.name for protocol in member.classic.protocols}
    if who.protocol_type != CONSUMER or not names:
        raise _Refused(ErrorCode.inconsistent_group_protocol, who.member_id)
    try:
        return read_subscription(who.protocols[0].metadata)
    except Corrupt:
        raise _Refused(ErrorCode.inconsistent_group_protocol, who.member_id) from None


def _member_for(change: Change, who: Joining, member_id: str) -> Member:
    if who.instance_id is None:
        return change.members.get(member_id) or Member(member_id=member_id)
    holder = change.group.static_member(who.instance_id)
    if who.member_id:
        if holder is None:
            raise _Refused(ErrorCode.unknown_member_id, who.member_id)
        if holder.member_id != who.member_id:
            raise _Refused(ErrorCode.fenced_instance_id, who.member_id)
        return holder
    if holder is None:
        return Member(member_id=member_id)
    successor = msgspec.structs.replace(holder, member_id=member_id, epoch=JOINING, previous_epoch=JOINING)
    change.replace(holder, successor)
    return successor


def _has_rejoined(group: ConsumerGroup, member_id: str) -> None:
    group.told_to_rejoin.discard(member_id)


# --- sync and heartbeat


def _sync(turn: Turn, who: Syncing) -> Answer:
    member = _find(turn.group, Identity(who.member_id, who.instance_id))
    assert member.classic is not None
    if who.generation != member.epoch:
        raise _Refused(ErrorCode.illegal_generation)
    name = member.classic.protocols[0].name
    if who.protocol_type not in (None, CONSUMER) or who.protocol not in (None, name):
        raise _Refused(ErrorCode.inconsistent_group_protocol)
    if member.state is not MemberState.UNREVOKED and member.epoch < turn.group.target_epoch:
        _tell_to_rejoin(turn, member)
        raise _Refused(ErrorCode.rebalance_in_progress)
    turn.effects.cancel(turn.timer(SYNC, member.member_id))
    turn.watch(member)
    return {
        "error_code": ErrorCode.none,
        "protocol_type": CONSUMER,
        "protocol_name": name,
        "assignment": write_assignment(subscription_version(member), member.assigned, turn.around.topics),
    }


def _heartbeat(turn: Turn, who: Identity, generation: int) -> ErrorCode:
    member = _find(turn.group, who)
    if generation != member.epoch:
        raise _Refused(ErrorCode.illegal_generation)
    turn.watch(member)
    if member.epoch >= turn.group.target_epoch and not _has_reason_to_rejoin(turn.group, member):
        return ErrorCode.none
    _tell_to_rejoin(turn, member)
    return ErrorCode.rebalance_in_progress


def _has_reason_to_rejoin(group: ConsumerGroup, member: Member) -> bool:
    if member.state is not MemberState.UNRELEASED:
        return member.state is MemberState.UNREVOKED
    target = group.targets.get(member.member_id, {})
    return all(
        group.owners.get((topic, partition), member.member_id) == member.member_id
        for topic, partitions in target.items()
        for partition in partitions
    )


def _tell_to_rejoin(turn: Turn, member: Member) -> None:
    """Its time for that runs from when it is told first."""
    told = turn.group.told_to_rejoin
    if member.member_id not in told:
        turn.effects.after(lambda: told.add(member.member_id))
        turn.effects.at(turn.timer(REJOIN, member.member_id), turn.now_ms + member.rebalance_timeout_ms)
