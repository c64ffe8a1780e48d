"""A share group member's heartbeat: who is it, what does it ask for, what is it told.

    find      the member, new or known, at the epoch it should be at
    update    what it asks for; a change of subscription is a new group epoch and a new target
    arrive    at its target: a partition may have several readers, so there is nobody to wait for
    answer    its epoch, its partitions if they changed, and when to come again

Most heartbeats change nothing: they write nothing, and cost a comparison.
"""

from typing import NamedTuple

import msgspec

from anabranch.groups.consumer_member import JOINING, LEFT
from anabranch.groups.consumer_pace import heartbeat_interval_ms
from anabranch.groups.effects import Answer, Effects
from anabranch.groups.heartbeats import assignment, group_is_full, left, not_a_member, wrong_epoch
from anabranch.groups.parts import Surroundings
from anabranch.groups.share_change import NAME, ShareChange
from anabranch.groups.share_group import ShareGroup
from anabranch.groups.share_records import ShareMember
from anabranch.groups.share_requests import ShareHeartbeat

SESSION = "session"


class ShareTurn(NamedTuple):
    """A decision about a share group while it is being taken."""

    group: ShareGroup
    around: Surroundings
    effects: Effects
    now_ms: int

    def change(self) -> ShareChange:
        return ShareChange(self.group, self.around, self.effects, self.now_ms)

    def timer(self, member_id: str) -> tuple[str, ...]:
        return (NAME, SESSION, self.group.group_id, member_id)

    def watch(self, member_id: str) -> None:
        """Have the member's session end unless it is heard of again."""
        timeout_ms = self.around.config_of(self.group.group_id).share_session_timeout_ms
        self.effects.at(self.timer(member_id), self.now_ms + timeout_ms)


def heartbeat(turn: ShareTurn, request: ShareHeartbeat) -> Answer:
    """Refused if the member is not who or where it thinks."""
    member = _find(turn, request)
    change = turn.change()
    asks = _asking(member, request)
    change.put(asks)
    change.follow_topics()
    change.settle()
    has = change.arrive(asks)
    turn.watch(has.member_id)
    says_all = request.epoch == JOINING or request.topic_names is not None
    is_told = says_all or member.assigned != has.assigned
    return {
        "member_id": has.member_id,
        "member_epoch": has.epoch,
        "heartbeat_interval": _interval_ms(turn, change),
        "assignment": assignment(has.assigned) if is_told else None,
    }


def _find(turn: ShareTurn, request: ShareHeartbeat) -> ShareMember:
    group, most = turn.group, turn.around.config().share_max_size
    member = group.members.get(request.member_id)
    if member is None:
        if len(group.members) >= most:
            raise group_is_full(NAME, most)
        if request.epoch != JOINING:
            raise not_a_member(group.group_id, request.member_id)
        return ShareMember(member_id=request.member_id)
    if request.epoch not in (JOINING, member.epoch, member.previous_epoch) or request.epoch > member.epoch:
        raise wrong_epoch(NAME, request.epoch, member.epoch)
    return member


def _asking(member: ShareMember, request: ShareHeartbeat) -> ShareMember:
    """The member as it asks now; what it does not say stays."""
    return msgspec.structs.replace(
        member,
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        topic_names=request.topic_names if request.topic_names is not None else member.topic_names,
        client_id=request.client_id,
        client_host=request.client_host,
    )


def _interval_ms(turn: ShareTurn, change: ShareChange) -> int:
    """Soon, while there are partitions about to be assigned."""
    waits = change.target_epoch < change.epoch or bool(change.topics.initialising)
    configured_ms = turn.around.config_of(turn.group.group_id).share_heartbeat_interval_ms
    return heartbeat_interval_ms(configured_ms, len(change.members), expects_news=waits)


def leave(turn: ShareTurn, request: ShareHeartbeat) -> Answer:
    member = turn.group.members.get(request.member_id)
    if member is None:
        raise not_a_member(turn.group.group_id, request.member_id)
    remove(turn, member.member_id)
    return left(member.member_id, LEFT)


def remove(turn: ShareTurn, member_id: str) -> None:
    """It is a member no more: it left, or was not heard of."""
    turn.effects.cancel(turn.timer(member_id))
    change = turn.change()
    change.remove(member_id)
    change.settle()
