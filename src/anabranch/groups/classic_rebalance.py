"""A rebalance of a classic group: from the first reason for one to the assignments of a generation.

    begin ─> everybody joins ─> complete_join ─> the leader syncs ─> everybody has an assignment
                │ join timer                        │ sync timer
                └─ whoever has not joined is out    └─ whoever has not synced is out, and all over again

The join timer is the longest rebalance timeout of the members (`max.poll.interval.ms` of consumers), as a
member may be busy with what it has fetched.  The first rebalance of a group waits for a moment
(`group.initial.rebalance.delay.ms`), and again for as long as members keep coming, up to that timeout: so a
group that is started at once has one generation.

Soft state changes as it is decided.  A record that is lost leaves a group in its rebalance, whose timers
run, so that it cannot be stuck.
"""

from anabranch.groups import classic_answers as answers
from anabranch.groups.classic_group import ClassicGroup, State
from anabranch.groups.classic_news import spread_news, tell_news
from anabranch.groups.classic_turn import NAME, Turn
from anabranch.wire.kafka.schema import ErrorCode

_LEAST_WAIT_MS = 1000
"""Of a join timer that is set again because nobody came: no member's timeout makes it spin."""


def begin_or_go_on(turn: Turn, group: ClassicGroup) -> None:
    """Something has changed that takes a new generation."""
    if group.may_rebalance:
        begin(turn, group)
    else:
        maybe_complete_join(turn, group)


def begin(turn: Turn, group: ClassicGroup) -> None:
    effects, now_ms, config = turn
    for member_id, token in group.syncing.items():
        turn.say(token, answers.not_synced(ErrorCode.rebalance_in_progress))
        group.heard_of(member_id, now_ms)  # until now it was we who kept it waiting
        turn.watch(group, group.members[member_id])
    group.syncing.clear()
    group.unsynced.clear()
    effects.cancel((NAME, "sync", group.group_id))
    is_first = group.is_empty
    group.go(State.PREPARING, now_ms)
    spread_news(turn, group)
    if is_first:
        delay_ms = config.initial_rebalance_delay_ms
        group.gathering_until_ms = now_ms + max(delay_ms, group.rebalance_timeout_ms)
        effects.at((NAME, "join", group.group_id), now_ms + delay_ms)
    elif group.have_all_joined:
        complete_join(turn, group)
    else:
        effects.at((NAME, "join", group.group_id), now_ms + group.rebalance_timeout_ms)


def maybe_complete_join(turn: Turn, group: ClassicGroup) -> None:
    if group.state is State.PREPARING and group.gathering_until_ms is None and group.have_all_joined:
        complete_join(turn, group)


def join_timer(turn: Turn, group: ClassicGroup) -> None:
    """The time to join is over, or that to gather the first members."""
    if group.state is not State.PREPARING:
        return
    end_ms = group.gathering_until_ms
    if end_ms is not None and group.has_grown and turn.now_ms < end_ms:
        group.has_grown = False
        next_ms = min(turn.now_ms + turn.config.initial_rebalance_delay_ms, end_ms)
        turn.effects.at((NAME, "join", group.group_id), next_ms)
    else:
        complete_join(turn, group)


def complete_join(turn: Turn, group: ClassicGroup) -> None:
    """A generation of those who have joined, and of static members, who may be away for their session."""
    effects, now_ms, _ = turn
    absent = [m for m in group.members.values() if m.member_id not in group.joining]
    for member in absent:
        if member.instance_id is None:
            turn.forget(group, member.member_id)
    if group.members and not group.elect_leader():
        # Static members only, all of them away: until one comes back, or the last one's session ends.
        wait_ms = max(group.rebalance_timeout_ms, _LEAST_WAIT_MS)
        effects.at((NAME, "join", group.group_id), now_ms + wait_ms)
        return
    tell_news(turn, group)
    effects.cancel((NAME, "join", group.group_id))
    group.next_generation(now_ms)
    if group.is_empty:
        effects.records.append(group.record({}, now_ms))
        return
    for member in group.members.values():
        token = group.joining.pop(member.member_id, None)
        if token is not None:
            is_leader = member.member_id == group.leader
            turn.say(token, answers.joined(group, member.member_id, is_told_all=is_leader))
        member.is_new = False
        member.heard_of(now_ms)
        turn.watch(group, member)
    group.unsynced = set(group.members)
    effects.at((NAME, "sync", group.group_id), now_ms + group.rebalance_timeout_ms)


def sync_timer(turn: Turn, group: ClassicGroup) -> None:
    """Whoever has not asked for its assignment by now is gone."""
    if group.unsynced and group.state in (State.COMPLETING, State.STABLE):
        for member_id in list(group.unsynced):
            turn.forget(group, member_id)
        go_on_without(turn, group)


def session_timer(turn: Turn, group: ClassicGroup, member_id: str) -> None:
    """A member's session was to end now, unless it was heard of since."""
    member = group.members.get(member_id)
    if member is None:
        if member_id in group.promised:
            group.promised.discard(member_id)
            maybe_complete_join(turn, group)
        return
    waits = not member.is_new and (member_id in group.joining or member_id in group.syncing)
    if waits:
        member.heard_of(turn.now_ms)  # it is we who keep it waiting
    if member.session_ends_ms == member.watched_ms:
        turn.forget(group, member_id)
        go_on_without(turn, group)
        return
    if not turn.now_ms < member.session_ends_ms <= turn.now_ms + member.session_timeout_ms:
        member.heard_of(turn.now_ms)  # the clock was set since
    turn.watch(group, member)


def go_on_without(turn: Turn, group: ClassicGroup) -> None:
    """Members are gone, by their own will or for lack of a sign of life."""
    if group.state in (State.STABLE, State.COMPLETING):
        begin(turn, group)
    else:
        maybe_complete_join(turn, group)
