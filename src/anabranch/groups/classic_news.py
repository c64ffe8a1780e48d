"""Rebalance news: a member learns of it in the answer to a heartbeat, held back until there is some.

A classic member hears of a rebalance when it next heartbeats, three seconds by default; the whole group
waits for the last one.  So a heartbeat to a stable group is not answered at once but held, for a third of
the session at most, and a rebalance is told to all members together:

    heartbeat ─> held ──┬─ nothing happens: answered after `hold_ms`, and the client sends the next
                        ├─ the client asks something else on that connection: answered first, in order
                        └─ a rebalance begins: answered `_GATHER_MS` later

That delay is for others who come or go at the same time: it grows with each who comes, so that ten members
that are started together are one rebalance, not ten.  A member with something new to say waits for nobody.

Only a heartbeat that says it may be held is held; the others are answered as Kafka does.  So is the first one
after the group was read from the log: clients measure their session from the last answer, and a coordinator
that restarts again and again would otherwise give none.
"""

from anabranch.groups import classic_answers as answers
from anabranch.groups.classic_group import ClassicGroup
from anabranch.groups.classic_member import ClassicMember
from anabranch.groups.classic_turn import NAME, Turn
from anabranch.groups.effects import Token
from anabranch.wire.kafka.schema import ErrorCode

_GATHER_MS = 200
_GATHER_AT_MOST_MS = 1000
_HOLD_AT_MOST_MS = 3000
"""Clients heartbeat every three seconds by default."""


def hold(turn: Turn, group: ClassicGroup, member: ClassicMember, token: Token) -> None:
    """Answer the member's heartbeat when there is news, or after a while."""
    tell_held(turn, group, member.member_id, ErrorCode.none)
    group.held[member.member_id] = token
    hold_ms = min(member.session_timeout_ms // 3, _HOLD_AT_MOST_MS)
    turn.effects.at(_held_timer(group, member.member_id), turn.now_ms + hold_ms)


def spread_news(turn: Turn, group: ClassicGroup) -> None:
    """A rebalance has begun."""
    if group.held:
        group.news_by_ms = turn.now_ms + _GATHER_AT_MOST_MS
        _tell_at(turn, group, turn.now_ms + _GATHER_MS)


def gather_longer(turn: Turn, group: ClassicGroup) -> None:
    """Somebody else has come while a rebalance begins."""
    if group.news_ms is not None:
        _tell_at(turn, group, min(turn.now_ms + _GATHER_MS, group.news_by_ms))


def tell_news(turn: Turn, group: ClassicGroup) -> None:
    """Everybody who can hear is told that the group rebalances."""
    for member_id in list(group.held):
        tell_held(turn, group, member_id, ErrorCode.rebalance_in_progress)
    group.news_ms = None
    turn.effects.cancel((NAME, "news", group.group_id))


def tell_held(turn: Turn, group: ClassicGroup, member_id: str, code: ErrorCode) -> None:
    token = group.held.pop(member_id, None)
    if token is not None:
        turn.say(token, answers.heard(code))
        turn.effects.cancel(_held_timer(group, member_id))


def _tell_at(turn: Turn, group: ClassicGroup, time_ms: int) -> None:
    group.news_ms = time_ms
    turn.effects.at((NAME, "news", group.group_id), time_ms)


def _held_timer(group: ClassicGroup, member_id: str) -> tuple[str, ...]:
    return (NAME, "held", group.group_id, member_id)
