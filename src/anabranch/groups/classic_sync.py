"""SyncGroup, Heartbeat and LeaveGroup: what members do between two joins.

A follower's SyncGroup waits for the leader's, which brings the assignments.  They are written to the
log before anybody is told.  If that fails the leader is told so and asks again, or its time to sync runs
out; followers are told too, and join or sync again, whichever their client does.
"""

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.groups import classic_answers as answers
from anabranch.groups.classic_group import ClassicGroup, State
from anabranch.groups.classic_news import hold
from anabranch.groups.classic_rebalance import go_on_without, maybe_complete_join
from anabranch.groups.classic_turn import NAME, Turn
from anabranch.groups.effects import Answer, Token
from anabranch.wire.kafka.schema import ErrorCode


class Syncing(NamedTuple):
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    """None, as in `protocol`: an older client, that does not say."""
    protocol: str | None
    assignments: dict[str, bytes]


class Identity(NamedTuple):
    member_id: str
    """Empty, of one who leaves: whoever bears the instance id, removed by somebody else."""
    instance_id: str | None


def sync(turn: Turn, group: ClassicGroup, who: Syncing, token: Token) -> None:
    code = _check_sync(group, who)
    if code:
        turn.say(token, answers.not_synced(code))
    elif group.state is State.STABLE:
        _has_synced(turn, group, who.member_id)
        turn.say(token, answers.synced(group, group.members[who.member_id].assignment))
    elif who.member_id == group.leader:
        _assign(turn, group, who.assignments, token)
    else:
        stale = group.syncing.get(who.member_id)
        if stale is not None:
            turn.say(stale, answers.not_synced(ErrorCode.rebalance_in_progress))
        group.syncing[who.member_id] = token
        _has_synced(turn, group, who.member_id)


def _check_sync(group: ClassicGroup, who: Syncing) -> ErrorCode:
    code = group.check_member(who.member_id, who.instance_id)
    if code:
        return code
    if who.generation != group.generation:
        return ErrorCode.illegal_generation
    differs = who.protocol_type is not None and who.protocol_type != group.protocol_type
    if differs or (who.protocol is not None and group.protocol not in (None, who.protocol)):
        return ErrorCode.inconsistent_group_protocol
    return ErrorCode.rebalance_in_progress if group.state is State.PREPARING else ErrorCode.none


def _has_synced(turn: Turn, group: ClassicGroup, member_id: str) -> None:
    group.unsynced.discard(member_id)
    if not group.unsynced:
        turn.effects.cancel((NAME, "sync", group.group_id))


def _assign(turn: Turn, group: ClassicGroup, given: dict[str, bytes], token: Token) -> None:
    """The leader has worked out who gets what."""
    assert group.leader is not None
    effects = turn.effects
    effects.records.append(group.record(given, turn.now_ms))
    for member_id, waiting in [*group.syncing.items(), (group.leader, token)]:
        effects.reply(waiting, answers.synced(group, given.get(member_id, b"")))
        member = group.members[member_id]
        member.heard_of(turn.now_ms)
        turn.watch(group, member)
    effects.after(lambda: _assigned(group))


def _assigned(group: ClassicGroup) -> None:
    group.syncing.clear()
    group.unsynced -= {group.leader}


def heartbeat(
    turn: Turn, group: ClassicGroup, who: Identity, generation: int, token: Token, *, may_hold: bool
) -> None:
    code = group.check_member(who.member_id, who.instance_id)
    if not code and generation != group.generation:
        code = ErrorCode.illegal_generation
    if code:
        turn.say(token, answers.heard(code))
        return
    member = group.members[who.member_id]
    group.heard_of(who.member_id, turn.now_ms)
    may_hold = may_hold and not member.is_restored
    member.is_restored = False
    if may_hold and (group.state is State.STABLE or group.news_ms is not None):
        hold(turn, group, member, token)
    else:
        rebalances = group.state is State.PREPARING
        code = ErrorCode.rebalance_in_progress if rebalances else ErrorCode.none
        turn.say(token, answers.heard(code))


def leave(turn: Turn, group: ClassicGroup, leaving: Sequence[Identity], token: Token) -> None:
    told: list[Answer] = []
    members_before = len(group.members)
    for who in leaving:
        member_id, code = _leaver(group, who)
        told.append(answers.left(who.member_id, who.instance_id, code))
        if not code:
            turn.forget(group, member_id)
    if len(group.members) < members_before:
        go_on_without(turn, group)
    else:
        maybe_complete_join(turn, group)  # one who was promised an id does not come
    turn.say(token, {"error_code": ErrorCode.none, "members": told})


def _leaver(group: ClassicGroup, who: Identity) -> tuple[str, ErrorCode]:
    if not who.member_id:
        holder = None if who.instance_id is None else group.static.get(who.instance_id)
        return ("", ErrorCode.unknown_member_id) if holder is None else (holder, ErrorCode.none)
    if who.member_id in group.promised:
        return who.member_id, ErrorCode.none
    return who.member_id, group.check_member(who.member_id, who.instance_id)
