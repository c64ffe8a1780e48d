"""Leaving: what an open topic keeps when the leader of its partition has resigned.

What was acknowledged and is not kept yet would be delivered again by whoever serves the topic next, here or
elsewhere.  Coordinators may be without a leader at the same moment, so it is tried until it is kept, for a
while; who asks for the topic here meanwhile waits.
"""

import asyncio
import logging
from contextlib import suppress

from anabranch.base.backoff import Backoff
from anabranch.base.errors import AnabranchError, FencedLeaderEpoch, UnknownTopic
from anabranch.base.ids import TopicName
from anabranch.subscriptions.durable import DurableCursor, GroupInUse, SubscriptionGone
from anabranch.topics.surroundings import Surroundings
from anabranch.topics.topic import Topic

log = logging.getLogger(__name__)

_KEEP_S = 30.0
_FIRST_RETRY_S, _MOST_RETRY_S = 0.02, 0.5
_FOR_GOOD = (FencedLeaderEpoch, GroupInUse, SubscriptionGone, UnknownTopic)
"""Why a position will not come to be kept however often that is tried."""


async def leave(topic: Topic, around: Surroundings) -> None:
    """Keep it, and let go of it."""
    backoff = Backoff(_FIRST_RETRY_S, _MOST_RETRY_S)
    deadline_s = around.clock.monotonic() + _KEEP_S
    while (failure := await _keep(topic, around)) is not None and not _is_gone(topic, around):
        if around.clock.monotonic() > deadline_s:
            log.warning("%s: what was acknowledged last comes again: %s", topic.full_name, failure)
            break
        await asyncio.sleep(backoff.next_s())
    with suppress(AnabranchError, OSError):  # said already; what deduplication knows is in the log
        await topic.close()


async def _keep(topic: Topic, around: Surroundings) -> BaseException | None:
    """Why not everything is kept yet, None if it is."""
    durable = [held.durable for held in topic.subscriptions if held.durable is not None]
    saving = [around.positions.save(cursor) for cursor in durable if _is_ours(cursor)]
    for outcome in await asyncio.gather(*saving, return_exceptions=True):
        if outcome is not None and not isinstance(outcome, _FOR_GOOD):
            return outcome
    return None


def _is_ours(cursor: DurableCursor) -> bool:
    """A position that Kafka's clients have moved since the last consumer went is theirs to keep."""
    return not cursor.is_deleted and bool(cursor.attachments or cursor.is_own)


def _is_gone(topic: Topic, around: Surroundings) -> bool:
    """Deleted, or deleted and made again."""
    still = around.catalog.locate(TopicName.from_pulsar(topic.full_name))
    return still is None or still[0].created_ms != topic.created_ms
