"""JoinGroup: becoming a member of a classic group, or one of its next generation.

    no id        dynamic   is promised an id, and comes again with it (from v4; before, joins at once)
                 static    takes the place of whoever bears its instance id, or joins
    with an id   promised  joins
                 a member  joins again

Whoever is new, or has other things to say than before, makes a new generation; so does a leader, who has
seen something change (topics grow).  A follower that asks again with nothing new is told what is.

A static member that comes back to a stable group under a new id, without changing which protocol is in use,
causes no rebalance: it gets its old assignment.  A leader among them must not assign again then; from v9
it can be told so.
"""

from random import Random
from typing import NamedTuple
from uuid import UUID

from anabranch.groups import classic_answers as answers
from anabranch.groups.classic_group import ClassicGroup, State
from anabranch.groups.classic_member import AssignmentProtocol, ClassicMember
from anabranch.groups.classic_news import gather_longer, tell_held, tell_news
from anabranch.groups.classic_rebalance import begin, begin_or_go_on, maybe_complete_join
from anabranch.groups.classic_turn import NAME, Turn
from anabranch.groups.effects import Token
from anabranch.wire.kafka.schema import ErrorCode

_ID_FIRST_FROM = 4
_SKIPS_FROM = 9
_LONGEST_CLIENT_ID = 1024
"""As far as it goes into a member id."""


class Joining(NamedTuple):
    """Who asks, and with what."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[AssignmentProtocol, ...]
    version: int


def join(turn: Turn, group: ClassicGroup, who: Joining, token: Token, chance: Random) -> None:
    if not _has_room(turn, group, who.member_id):
        turn.forget(group, who.member_id)
        turn.say(token, answers.not_joined(ErrorCode.group_max_size_reached))
        maybe_complete_join(turn, group)
    elif not group.can_take(who.protocol_type, (protocol.name for protocol in who.protocols)):
        turn.say(token, answers.not_joined(ErrorCode.inconsistent_group_protocol, who.member_id))
    elif who.member_id:
        _join_with_id(turn, group, who, token)
    elif who.instance_id is not None:
        _join_static(turn, group, who, token, chance)
    elif who.version >= _ID_FIRST_FROM:
        _promise(turn, group, who, token, chance)
    else:
        _add(turn, group, who, _new_id(who, chance), token)


def _has_room(turn: Turn, group: ClassicGroup, member_id: str) -> bool:
    most = turn.config.max_size
    if group.state is State.PREPARING:
        # Those who wait are counted, not the members: the limit may have been lowered, and the last to
        # join again are then the ones who are out.
        return member_id in group.joining or len(group.joining) < most
    return group.is_empty or member_id in group.members or len(group.members) < most


def _new_id(who: Joining, chance: Random) -> str:
    name = who.client_id[:_LONGEST_CLIENT_ID] if who.instance_id is None else who.instance_id
    return f"{name}-{UUID(int=chance.getrandbits(128), version=4)}"


def _promise(turn: Turn, group: ClassicGroup, who: Joining, token: Token, chance: Random) -> None:
    member_id = _new_id(who, chance)
    group.promised.add(member_id)
    turn.effects.at((NAME, "session", group.group_id, member_id), turn.now_ms + who.session_timeout_ms)
    turn.say(token, answers.not_joined(ErrorCode.member_id_required, member_id))


def _add(turn: Turn, group: ClassicGroup, who: Joining, member_id: str, token: Token) -> None:
    member = ClassicMember(member_id, who.instance_id, who.client_id, who.client_host)
    member.agrees_on(who.session_timeout_ms, who.rebalance_timeout_ms, who.protocols)
    member.is_new = True
    group.has_grown = group.gathering_until_ms is not None
    group.add(member, who.protocol_type)
    group.joining[member_id] = token
    # It cannot heartbeat before it has its answer.  A client that gave up asks again as somebody else, so
    # whoever waits for very long is not there.
    member.session_ends_ms = turn.now_ms + turn.config.new_member_join_timeout_ms
    turn.watch(group, member)
    gather_longer(turn, group)
    begin_or_go_on(turn, group)


def _join_with_id(turn: Turn, group: ClassicGroup, who: Joining, token: Token) -> None:
    if who.member_id in group.promised and who.instance_id is None:
        _add(turn, group, who, who.member_id, token)
        return
    code = group.check_member(who.member_id, who.instance_id)
    if code or group.is_empty:
        turn.say(token, answers.not_joined(code or ErrorCode.unknown_member_id, who.member_id))
        return
    member = group.members[who.member_id]
    is_leader = group.leader == who.member_id
    is_news = member.protocols != who.protocols or (group.state is State.STABLE and is_leader)
    if group.state is State.PREPARING or is_news:
        _join_again(turn, group, member, who, token)
        begin_or_go_on(turn, group)
        if is_news:
            tell_news(turn, group)  # others need not come first: there is nobody new to gather
    else:
        turn.say(token, answers.joined(group, who.member_id, is_told_all=is_leader))


def _join_again(turn: Turn, group: ClassicGroup, member: ClassicMember, who: Joining, token: Token) -> None:
    group.update(member, who.session_timeout_ms, who.rebalance_timeout_ms, who.protocols)
    stale = group.joining.get(member.member_id)
    if stale is not None:
        turn.say(stale, answers.not_joined(ErrorCode.rebalance_in_progress, member.member_id))
    group.joining[member.member_id] = token


def _join_static(turn: Turn, group: ClassicGroup, who: Joining, token: Token, chance: Random) -> None:
    assert who.instance_id is not None
    new_id = _new_id(who, chance)
    old_id = group.static.get(who.instance_id)
    if old_id is None:
        _add(turn, group, who, new_id, token)
        return
    successor = group.members[old_id].successor(new_id)
    if group.state is State.STABLE and _keeps_protocol(group, old_id, who):
        _take_over(turn, group, who, successor, token)
        return
    _fence(turn, group, old_id)
    group.replace(old_id, successor)
    _join_again(turn, group, successor, who, token)
    successor.heard_of(turn.now_ms)
    turn.watch(group, successor)
    if group.state is State.PREPARING:
        maybe_complete_join(turn, group)
    else:
        begin(turn, group)


def _fence(turn: Turn, group: ClassicGroup, old_id: str) -> None:
    """Whoever waits under the old id is told that somebody has taken its place."""
    token = group.joining.get(old_id)
    if token is not None:
        turn.say(token, answers.not_joined(ErrorCode.fenced_instance_id, old_id))
    token = group.syncing.get(old_id)
    if token is not None:
        turn.say(token, answers.not_synced(ErrorCode.fenced_instance_id))
    tell_held(turn, group, old_id, ErrorCode.fenced_instance_id)
    turn.effects.cancel((NAME, "session", group.group_id, old_id))


def _keeps_protocol(group: ClassicGroup, old_id: str, who: Joining) -> bool:
    """Would the next generation use the same protocol if the member joined as `who` says?"""
    member = group.members[old_id]
    before = member.session_timeout_ms, member.rebalance_timeout_ms, member.protocols
    group.update(member, who.session_timeout_ms, who.rebalance_timeout_ms, who.protocols)
    selected = group.select_protocol()
    group.update(member, *before)
    return selected == group.protocol


def _take_over(turn: Turn, group: ClassicGroup, who: Joining, successor: ClassicMember, token: Token) -> None:
    """Go on with a stable group, `successor` in the place of the member before it."""
    assert who.instance_id is not None
    old_id, new_id = group.static[who.instance_id], successor.member_id
    successor.agrees_on(who.session_timeout_ms, who.rebalance_timeout_ms, who.protocols)
    members = [successor if member.member_id == old_id else member for member in group.members.values()]
    leads = group.leader == old_id
    leader = new_id if leads else group.leader
    assignments = {member.member_id: member.assignment for member in members}
    turn.effects.records.append(group.record_of(members, leader, assignments, turn.now_ms))
    told = answers.joined(group, new_id, is_told_all=False)
    if who.version >= _SKIPS_FROM:
        told["leader"] = leader or ""
        told["skip_assignment"] = leads
        told["members"] = answers.members_told(members, group.protocol) if leads else []
    # Before that version a leader is told that somebody else leads (its own old id), so that it
    # does not assign.
    turn.effects.reply(token, told)
    held = group.held.pop(old_id, None)
    if held is not None:
        turn.effects.reply(held, answers.heard(ErrorCode.fenced_instance_id))
        turn.effects.reply_if_lost(held, answers.heard(ErrorCode.none))
    successor.heard_of(turn.now_ms)
    turn.watch(group, successor)
    turn.effects.after(lambda: group.put_in_place(successor))
