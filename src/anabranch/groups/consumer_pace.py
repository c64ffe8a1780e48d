"""Heartbeat and assignment intervals: shorter than Kafka's where a group is small or members wait.

Kafka tells every member the configured interval, five seconds, so a partition takes up to ten to move:
its owner has to hear that it should give it up, and its next owner that it has.  The answer to a
heartbeat may say any interval, so ours says what fits:

    a member that waits for others, or that others wait for     100 ms    news is near
    otherwise     20 ms per member of the group, from 500 ms up to the configured interval

A group of any size thus costs fifty heartbeats per second at most, a few milliseconds of one core.
Assignments are spaced likewise: 10 ms per member, up to what is configured.
"""

_NEWS_MS = 100
_LEAST_MS = 500
_HEARTBEAT_MS_A_MEMBER = 20
_ASSIGN_MS_A_MEMBER = 10


def heartbeat_interval_ms(configured_ms: int, members: int, *, expects_news: bool) -> int:
    paced_ms = max(_LEAST_MS, _HEARTBEAT_MS_A_MEMBER * members)
    if expects_news:
        # Of many members that wait at once each is heard less often.
        paced_ms = max(_NEWS_MS, _HEARTBEAT_MS_A_MEMBER * members // 5)
    return min(configured_ms, paced_ms)


def assignment_interval_ms(configured_ms: int, members: int) -> int:
    return min(configured_ms, _ASSIGN_MS_A_MEMBER * members)
