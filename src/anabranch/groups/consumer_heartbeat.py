"""A member's heartbeat: who is it, what does it ask for, what does it hold, what is it told.

    find      the member, new or known, at the epoch it should be at
    update    what it asks for; a change of subscription is a new group epoch and a new target
    reconcile what it holds with its target, as far as others let it
    answer    its epoch, its partitions if they changed, and when to come again

Most heartbeats change nothing: they write nothing, and cost a comparison.
"""

import base64
from random import Random

import msgspec

from anabranch.base.errors import Invalid
from anabranch.groups import consumer_requests as requests
from anabranch.groups.consumer_change import NAME, Change
from anabranch.groups.consumer_member import AWAY, JOINING, Member, MemberState
from anabranch.groups.consumer_migration import downgrade, may_downgrade
from anabranch.groups.consumer_pace import heartbeat_interval_ms
from anabranch.groups.consumer_reconcile import owns_only
from anabranch.groups.consumer_requests import Heartbeat
from anabranch.groups.consumer_turn import REBALANCE, Turn
from anabranch.groups.effects import Answer
from anabranch.groups.heartbeats import assignment, group_is_full, left, not_a_member, wrong_epoch


def heartbeat(turn: Turn, request: Heartbeat) -> Answer:
    """Refused if the member is not who or where it thinks."""
    change = turn.change()
    member = _find(turn, change, request)
    asks = _asking(member, request)
    _resolve(change, asks)
    change.put(asks)
    change.follow_topics()
    change.settle()
    holds = turn.settle(change, asks, request.owned)
    turn.watch(holds)
    known = turn.group.members.get(member.member_id)
    is_told = request.says_all or known is None or known.assigned != holds.assigned
    return {
        "member_id": holds.member_id,
        "member_epoch": holds.epoch,
        "heartbeat_interval": _interval_ms(turn, change, holds),
        "assignment": assignment(holds.assigned) if is_told else None,
    }


# --- who


def _find(turn: Turn, change: Change, request: Heartbeat) -> Member:
    group, most = turn.group, turn.around.config().consumer_max_size
    if len(group.members) >= most and request.member_id not in group.members:
        raise group_is_full(NAME, most)
    if request.instance_id is not None:
        return _find_static(change, request)
    member = group.members.get(request.member_id)
    if member is None:
        if request.epoch != JOINING:
            raise not_a_member(group.group_id, request.member_id)
        return Member(member_id=request.member_id or new_member_id(turn.around.chance))
    _check_epoch(member, request)
    return member


def _find_static(change: Change, request: Heartbeat) -> Member:
    assert request.instance_id is not None
    holder = change.group.static_member(request.instance_id)
    if request.epoch != JOINING:
        if holder is None:
            raise requests.no_such_instance(request.instance_id)
        if holder.member_id != request.member_id:
            raise requests.fenced_by(request, holder.member_id)
        _check_epoch(holder, request)
        return holder
    if holder is None:
        return change.group.members.get(request.member_id) or Member(member_id=request.member_id)
    if holder.member_id == request.member_id and holder.epoch != AWAY:
        return holder
    if holder.epoch != AWAY and not holder.is_classic:
        raise requests.unreleased(request, holder.member_id)
    successor = msgspec.structs.replace(
        holder, member_id=request.member_id, epoch=JOINING, previous_epoch=JOINING
    )
    change.replace(holder, successor)
    return successor


def new_member_id(chance: Random) -> str:
    """As Kafka writes its ids."""
    return base64.urlsafe_b64encode(chance.randbytes(16)).rstrip(b"=").decode()


def _check_epoch(member: Member, request: Heartbeat) -> None:
    """One epoch behind is where a lost answer leaves a member; who joins again may come from anywhere."""
    if request.epoch in (member.epoch, JOINING):
        return
    is_behind = request.epoch < member.epoch and request.epoch == member.previous_epoch
    if not is_behind or not owns_only(request.owned, member.assigned):
        raise wrong_epoch(NAME, request.epoch, member.epoch)


# --- what


def _asking(member: Member, request: Heartbeat) -> Member:
    """The member as it asks now; what it does not say stays."""
    said = request.rebalance_timeout_ms != -1
    return msgspec.structs.replace(
        member,
        instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms if said else member.rebalance_timeout_ms,
        topic_names=request.topic_names if request.topic_names is not None else member.topic_names,
        topic_regex=request.topic_regex if request.topic_regex is not None else member.topic_regex,
        assignor=request.assignor if request.assignor is not None else member.assignor,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _resolve(change: Change, member: Member) -> None:
    if member.topic_regex:
        try:
            change.resolve(member.topic_regex)
        except Invalid as error:
            raise requests.no_expression(member.topic_regex, error) from error


# --- when


def _interval_ms(turn: Turn, change: Change, member: Member) -> int:
    """Soon, for a member that waits for somebody or for whom somebody waits."""
    waits = member.state is not MemberState.STABLE or change.target_epoch < change.epoch
    configured_ms = turn.around.config_of(turn.group.group_id).consumer_heartbeat_interval_ms
    return heartbeat_interval_ms(configured_ms, len(change.members), expects_news=waits)


# --- and away


def leave(turn: Turn, request: Heartbeat) -> Answer:
    group = turn.group
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None:
            raise not_a_member(group.group_id, request.member_id)
    else:
        member = group.static_member(request.instance_id)
        if member is None:
            raise requests.no_such_instance(request.instance_id)
        if member.member_id != request.member_id:
            raise requests.fenced_by(request, member.member_id)
    if request.epoch == AWAY:
        _be_away(turn, member)
    else:
        remove(turn, member)
    return left(member.member_id, request.epoch)


def _be_away(turn: Turn, member: Member) -> None:
    """Its session runs on, and its partitions wait for it until that ends."""
    kept = {topic: dict.fromkeys(partitions, 0) for topic, partitions in member.assigned.items()}
    away = msgspec.structs.replace(member, epoch=AWAY, assigned=kept, revoking={})
    turn.change().hold(away)
    turn.effects.cancel(turn.timer(REBALANCE, member.member_id))


def remove(turn: Turn, *gone: Member) -> None:
    """They are members no more: they left, or were not heard of."""
    for member in gone:
        turn.forget(member.member_id)
    stay = [member for member in turn.group.members.values() if member not in gone]
    if may_downgrade(stay, turn.around.config()):
        downgrade(turn, stay)
        return
    change = turn.change()
    for member in gone:
        change.remove(member.member_id)
    change.settle()
