"""The classic protocol: groups whose leader, a client, assigns the partitions.

    JoinGroup   classic_join        who is in the next generation
    (waiting)   classic_rebalance   the rebalance itself, and its timers
    SyncGroup   classic_sync        who gets what; and Heartbeat and LeaveGroup
                classic_news        how members hear of a rebalance
                classic_group       the group: its states, its members, its record

Here is where requests, records and timers find their group.  A consumer group is asked
through `ClassicMembers`: members of this protocol may take part in it while a group moves from one to the
other.  A share group never moves.

After a restart a group is what was last written: stable, with members that have one session to be heard
of, or empty.
"""

from collections.abc import Hashable, Sequence
from typing import Protocol

from anabranch.groups import classic_answers as answers
from anabranch.groups import classic_join, classic_rebalance, classic_sync
from anabranch.groups.classic_group import ClassicGroup, State
from anabranch.groups.classic_join import Joining
from anabranch.groups.classic_news import tell_held, tell_news
from anabranch.groups.classic_sync import Identity, Syncing
from anabranch.groups.classic_turn import NAME, Turn
from anabranch.groups.effects import Answer, Effects, Token
from anabranch.groups.group import Group, GroupKind
from anabranch.groups.parts import Surroundings
from anabranch.groups.records import GROUP_KEY, read_group, read_group_key
from anabranch.wire.kafka.schema import ErrorCode

_LONGEST_NAME = 4096
"""Of a group, a protocol, a client or an instance: records take texts of up to 32,767 bytes."""


class ClassicMembers(Protocol):
    """Requests of the classic protocol to groups of another."""

    def join(self, group: Group, who: Joining, token: Token, now_ms: int) -> Effects: ...

    def sync(self, group: Group, who: Syncing, token: Token, now_ms: int) -> Effects: ...

    def heartbeat(
        self, group: Group, who: Identity, generation: int, token: Token, now_ms: int
    ) -> Effects: ...

    def leave(self, group: Group, leaving: Sequence[Identity], token: Token, now_ms: int) -> Effects: ...


class ClassicGroups:
    name = NAME
    key_versions = frozenset((GROUP_KEY,))

    def __init__(
        self, around: Surroundings, groups: dict[str, Group], elsewhere: ClassicMembers | None = None
    ) -> None:
        """`elsewhere` serves classic members of groups that are not classic."""
        self._around = around
        self._groups = groups
        self._elsewhere = elsewhere

    # --- requests

    def join(self, group_id: str, who: Joining, token: Token, now_ms: int) -> Effects:
        turn = self._turn(now_ms)
        code = self._check_join(group_id, who)
        if code:
            turn.say(token, answers.not_joined(code, who.member_id))
            return turn.effects
        group = self._groups.get(group_id)
        if group is not None and self._is_closed(group):
            turn.say(token, answers.not_joined(ErrorCode.inconsistent_group_protocol))
            return turn.effects
        elsewhere = self._elsewhere_of(group)
        if group is not None and elsewhere is not None and not group.is_empty:
            return elsewhere.join(group, who, token, now_ms)
        if not isinstance(group, ClassicGroup):
            if who.member_id:
                answer = answers.not_joined(ErrorCode.unknown_member_id, who.member_id)
                turn.say(token, answer)
                return turn.effects
            group = self._new_group(turn, group_id, token)
        classic_join.join(turn, group, who, token, self._around.chance)
        return turn.effects

    def _is_closed(self, group: Group) -> bool:
        """Members of this protocol cannot be in it, nor take its place."""
        if group.kind is GroupKind.SHARE:
            return True
        return not isinstance(group, ClassicGroup) and not group.is_empty and self._elsewhere is None

    def _elsewhere_of(self, group: Group | None) -> ClassicMembers | None:
        """Who serves members of this protocol in a group of another."""
        is_consumers = group is not None and group.kind is GroupKind.CONSUMER
        return self._elsewhere if is_consumers else None

    def _new_group(self, turn: Turn, group_id: str, token: Token) -> ClassicGroup:
        """A group of this protocol, in the place of an empty one of the other if there is one."""
        group = ClassicGroup(group_id)
        before = self._groups.get(group_id)
        if before is not None:
            turn.effects.records.extend(before.tombstones())
            turn.effects.reply_if_lost(token, answers.not_joined(ErrorCode.coordinator_not_available))

        def put() -> None:
            if group.members or group.promised:
                self._groups[group_id] = group

        turn.effects.after(put)
        return group

    def sync(self, group_id: str, who: Syncing, token: Token, now_ms: int) -> Effects:
        turn = self._turn(now_ms)
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            classic_sync.sync(turn, group, who, token)
        elif group is not None and not group.is_empty and (elsewhere := self._elsewhere_of(group)):
            return elsewhere.sync(group, who, token, now_ms)
        else:
            turn.say(token, answers.not_synced(_no_such(group_id)))
        return turn.effects

    def heartbeat(
        self,
        group_id: str,
        who: Identity,
        generation: int,
        token: Token,
        now_ms: int,
        *,
        may_hold: bool = False,
    ) -> Effects:
        turn = self._turn(now_ms)
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            classic_sync.heartbeat(turn, group, who, generation, token, may_hold=may_hold)
        elif group is not None and (elsewhere := self._elsewhere_of(group)):
            return elsewhere.heartbeat(group, who, generation, token, now_ms)
        else:
            turn.say(token, answers.heard(_no_such(group_id)))
        return turn.effects

    def leave(self, group_id: str, leaving: Sequence[Identity], token: Token, now_ms: int) -> Effects:
        turn = self._turn(now_ms)
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            classic_sync.leave(turn, group, leaving, token)
        elif group is not None and (elsewhere := self._elsewhere_of(group)):
            return elsewhere.leave(group, leaving, token, now_ms)
        elif not group_id:
            turn.say(token, {"error_code": ErrorCode.invalid_group_id, "members": []})
        else:
            gone = [answers.left(*who, ErrorCode.unknown_member_id) for who in leaving]
            turn.say(token, {"error_code": ErrorCode.none, "members": gone})
        return turn.effects

    def describe(self, group_id: str) -> Answer | None:
        """As DescribeGroups tells it; None if there is no such classic group."""
        group = self._groups.get(group_id)
        return group.describe() if isinstance(group, ClassicGroup) else None

    # --- records and timers

    def replay(self, key: bytes, value: bytes | None) -> None:
        group_id = read_group_key(key)
        group = self._groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                group.state = State.DEAD
                del self._groups[group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self._groups[group_id] = ClassicGroup(group_id)
        group.restore(read_group(value))

    def loaded(self, effects: Effects, now_ms: int) -> None:
        turn = self._turn(now_ms)._replace(effects=effects)
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    member.heard_of(now_ms)
                    turn.watch(group, member)
                if len(group.members) > turn.config.max_size:
                    classic_rebalance.begin(turn, group)  # the limit was lowered: some must go

    def timeout(self, timer: Hashable, now_ms: int) -> Effects:
        assert isinstance(timer, tuple)
        turn = self._turn(now_ms)
        _, what, group_id, member_id = (*timer, "")[:4]
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            match what:
                case "join":
                    classic_rebalance.join_timer(turn, group)
                case "sync":
                    classic_rebalance.sync_timer(turn, group)
                case "session":
                    classic_rebalance.session_timer(turn, group, member_id)
                case "news":
                    tell_news(turn, group)
                case "held":
                    tell_held(turn, group, member_id, ErrorCode.none)
        return turn.effects

    def _turn(self, now_ms: int) -> Turn:
        return Turn(Effects(), now_ms, self._around.config())

    def _check_join(self, group_id: str, who: Joining) -> ErrorCode:
        config = self._around.config()
        if not 0 < len(group_id) <= _LONGEST_NAME:
            return ErrorCode.invalid_group_id
        if not config.min_session_timeout_ms <= who.session_timeout_ms <= config.max_session_timeout_ms:
            return ErrorCode.invalid_session_timeout
        names = [who.protocol_type, who.instance_id or "", who.client_id, *(p.name for p in who.protocols)]
        if max(len(name) for name in names) > _LONGEST_NAME:
            return ErrorCode.invalid_request
        return ErrorCode.none


def _no_such(group_id: str) -> ErrorCode:
    return ErrorCode.unknown_member_id if group_id else ErrorCode.invalid_group_id
