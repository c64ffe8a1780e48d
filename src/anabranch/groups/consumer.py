"""The consumer protocol (KIP-848): groups whose coordinator, the broker, assigns the partitions.

    consumer_requests    the heartbeat: what may be asked, refusals, answers
    consumer_heartbeat   what is decided about it
    consumer_change      the group as it will be, and the records that say so
    epoch_*              what share groups have and write alike;  heartbeats
    consumer_reconcile   a member's way from what it holds to its target
    consumer_group       the group as the log says it is;  consumer_member, consumer_records
    consumer_pace        how soon members come again
    consumer_migration   from the classic protocol and back;  consumer_classic, consumer_embedded
    assignors/           who gets what

A group has one request, the heartbeat, and no moment at which everybody stops: each member moves by
itself from what it holds to what it should, and partitions that do not move are read on.

After a restart a group is where it was, down to each member's epoch, and members have one session to be
heard of.
"""

from collections.abc import Hashable

from anabranch.base.errors import Corrupt
from anabranch.groups import consumer_heartbeat
from anabranch.groups import consumer_requests as requests
from anabranch.groups.classic_group import ClassicGroup
from anabranch.groups.consumer_change import NAME
from anabranch.groups.consumer_describe import describe
from anabranch.groups.consumer_group import ConsumerGroup
from anabranch.groups.consumer_member import AWAY, JOINING, LEFT, MemberState
from anabranch.groups.consumer_migration import may_upgrade, upgrade
from anabranch.groups.consumer_records import EPOCH, KEY_VERSIONS, TOPICS, read_key
from anabranch.groups.consumer_requests import Heartbeat
from anabranch.groups.consumer_turn import REBALANCE, Turn
from anabranch.groups.effects import Answer, Effects, Token
from anabranch.groups.epoch_change import ASSIGN
from anabranch.groups.group import Group
from anabranch.groups.heartbeats import decided
from anabranch.groups.parts import Surroundings


class ConsumerGroups:
    name = NAME
    key_versions = KEY_VERSIONS

    def __init__(self, around: Surroundings, groups: dict[str, Group]) -> None:
        self._around = around
        self._groups = groups

    # --- requests

    def heartbeat(self, request: Heartbeat, token: Token, now_ms: int) -> Effects:
        return decided(token, lambda effects: self._heartbeat(request, effects, now_ms))

    def _heartbeat(self, request: Heartbeat, effects: Effects, now_ms: int) -> Answer:
        requests.check(request, self._around.config())
        turn = self._turn(self._group_for(request, effects, now_ms), effects, now_ms)
        if request.epoch in (LEFT, AWAY):
            return consumer_heartbeat.leave(turn, request)
        return consumer_heartbeat.heartbeat(turn, request)

    def _group_for(self, request: Heartbeat, effects: Effects, now_ms: int) -> ConsumerGroup:
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if request.epoch == JOINING:
            if group is None:
                return ConsumerGroup(request.group_id)
            if isinstance(group, ClassicGroup):
                if group.is_empty:
                    effects.records.extend(group.tombstones())
                    return ConsumerGroup(request.group_id)
                if may_upgrade(group, self._around.config()):
                    return self._upgraded(group, effects, now_ms)
        if group is None:
            raise requests.no_such_group(request)
        raise requests.not_a_consumer_group(request.group_id, exists=True)

    def _upgraded(self, group: ClassicGroup, effects: Effects, now_ms: int) -> ConsumerGroup:
        try:
            upgraded = upgrade(group, self._around, effects)
        except Corrupt as error:
            raise requests.not_a_consumer_group(group.group_id, exists=True) from error
        turn = self._turn(upgraded, effects, now_ms)
        for member in upgraded.members.values():
            turn.watch(member)
        return upgraded

    def _turn(self, group: ConsumerGroup, effects: Effects, now_ms: int) -> Turn:
        return Turn(group, self._groups, self._around, effects, now_ms)

    def describe(self, group_id: str) -> Answer:
        """As ConsumerGroupDescribe tells it."""
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            refused = requests.not_a_consumer_group(group_id, exists=group is not None)
            return {"group_id": group_id, "error_code": refused.code, "error_message": refused.message}
        return describe(group, self._around)

    # --- records and timers

    def replay(self, key: bytes, value: bytes | None) -> None:
        what = read_key(key)
        group = self._groups.get(what.group_id)
        if value is None:
            if isinstance(group, ConsumerGroup):
                if what.kind == EPOCH:
                    del self._groups[what.group_id]
                elif what.kind != TOPICS:
                    group.replay(what, None)
        elif what.kind != TOPICS:
            if not isinstance(group, ConsumerGroup):
                group = self._groups[what.group_id] = ConsumerGroup(what.group_id)
            group.replay(what, value)

    def loaded(self, effects: Effects, now_ms: int) -> None:
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                turn = self._turn(group, effects, now_ms)
                for member in group.members.values():
                    turn.watch(member)
                    if member.state is MemberState.UNREVOKED:
                        timer = turn.timer(REBALANCE, member.member_id)
                        effects.at(timer, now_ms + member.rebalance_timeout_ms)
                if group.target_epoch < group.epoch:
                    effects.at((NAME, ASSIGN, group.group_id), now_ms)

    def timeout(self, timer: Hashable, now_ms: int) -> Effects:
        assert isinstance(timer, tuple)
        effects = Effects()
        _, what, group_id, member_id = (*timer, "")[:4]
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            turn = self._turn(group, effects, now_ms)
            member = group.members.get(member_id)
            if what == ASSIGN:
                turn.change().settle()
            elif member is not None and (what != REBALANCE or member.state is MemberState.UNREVOKED):
                consumer_heartbeat.remove(turn, member)
        return effects
