"""Topic upkeep: quotas, expiry, compaction and removal, each rule in its own time over the open topics.

    rates        every 10 s, of topics that somebody used since
    sequences    what deduplication has learnt is written down, producers away for long are forgotten
    backlogs     beyond a quota producers are sent away, or the oldest messages are skipped
    expiry       messages older than their time to live are skipped by the subscriptions that have them
    compaction   a topic is compacted when more has come in since the last time than the rules say
    inactive     topics that nobody uses are deleted, if the rules say so
    abandoned    subscriptions that had no consumers for long are deleted, if the rules say so

A round goes through the open topics in slices.  What fails for one is logged and tried again next time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from anabranch.base.errors import AnabranchError
from anabranch.base.rates import PERIOD_S
from anabranch.base.seldom import Seldom
from anabranch.topics.backlog import evict_to, exceeded
from anabranch.topics.errors import SubscriptionBusy
from anabranch.topics.non_persistent import NonPersistentTopic
from anabranch.topics.surroundings import Surroundings
from anabranch.topics.topic import Topic

if TYPE_CHECKING:
    from anabranch.topics.registry import AnyTopic, Topics

log = logging.getLogger(__name__)
_trouble = Seldom(log, 10.0)  # on a broken disk it is every topic's

_SLICE = 64
_EVICTING = "consumer_backlog_eviction"


class TopicUpkeep:
    def __init__(self, topics: "Topics", around: Surroundings) -> None:
        self._topics = topics
        self._around = around

    async def run(self) -> None:
        """For as long as the node lives."""
        told = self._around.upkeep
        rounds: list[tuple[Callable[[AnyTopic], Awaitable[None]], Callable[[], float]]] = [
            (self._look, lambda: PERIOD_S),
            (self.tend, self._tend_interval_s),
            (self.check_backlog, lambda: told().backlog_check_interval_s),
            (self.expire, lambda: told().expiry_check_interval_minutes * 60),
            (self.compact, lambda: told().compaction_check_interval_s),
            (self.check_inactive, lambda: told().inactive_check_interval_s),
            (self.drop_abandoned, lambda: told().subscription_check_interval_minutes * 60),
        ]
        await asyncio.gather(*[self._repeat(work, interval_s) for work, interval_s in rounds])

    async def _repeat(
        self, work: "Callable[[AnyTopic], Awaitable[None]]", interval_s: Callable[[], float]
    ) -> None:
        while True:
            await asyncio.sleep(interval_s())
            await self.round(work)

    async def round(self, work: "Callable[[AnyTopic], Awaitable[None]]") -> None:
        for i, topic in enumerate(self._topics):
            try:
                await work(topic)
            except (AnabranchError, OSError) as error:
                _trouble.warning("%s: %s", topic.full_name, error)
            if i % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)

    # --- the rounds

    async def _look(self, topic: "AnyTopic") -> None:
        if not topic.is_quiet:
            topic.look(self._around.clock.monotonic())

    async def tend(self, topic: "AnyTopic") -> None:
        """Write down what a topic's deduplication has learnt, if it is time."""
        now_s = self._around.clock.monotonic()
        if isinstance(topic, Topic) and now_s - topic.tended_s >= self._tended_every_s(topic):
            topic.tended_s = now_s
            await topic.tend()

    def _tended_every_s(self, topic: Topic) -> int:
        return topic.rules.deduplication_snapshot_s or self._around.upkeep().deduplication_snapshot_interval_s

    def _tend_interval_s(self) -> float:
        """As often as the topic that wants it most often."""
        wanted = [self._tended_every_s(topic) for topic in self._topics if isinstance(topic, Topic)]
        return min(wanted, default=self._around.upkeep().deduplication_snapshot_interval_s)

    async def check_backlog(self, topic: "AnyTopic") -> None:
        """Keep a backlog to its quota."""
        if isinstance(topic, NonPersistentTopic):
            return
        rules = topic.rules
        if rules.backlog_size.limit is None and rules.backlog_age.limit is None:
            return
        now_ms = self._around.clock.now_ms()
        quota = exceeded(topic.partition, topic.subscriptions.slowest(), rules, now_ms)
        if quota is None or quota.limit is None:
            return
        log.info("%s: its backlog exceeds the quota, policy %s is applied", topic.full_name, quota.action)
        if quota.action != _EVICTING:
            topic.send_producers_away()
        elif quota is rules.backlog_size:
            _advance(topic, evict_to(topic.partition, quota.limit))
        else:
            _advance(topic, await topic.offset_for_time(now_ms - quota.limit * 1000))

    async def expire(self, topic: "AnyTopic") -> None:
        """Skip what is older than the topic's time to live."""
        ttl_s = topic.rules.message_ttl_s
        if isinstance(topic, Topic) and ttl_s is not None:
            _advance(topic, await topic.offset_for_time(self._around.clock.now_ms() - ttl_s * 1000))

    async def compact(self, topic: "AnyTopic") -> None:
        """Begin to compact a topic if it is time."""
        if isinstance(topic, Topic) and topic.compacting.is_due(topic.rules.compaction_threshold_bytes):
            topic.compact()

    async def check_inactive(self, topic: "AnyTopic") -> None:
        """Delete a topic that nobody has used for as long as the rules say."""
        rules = topic.rules
        now_s = self._around.clock.monotonic()
        if topic.was_used() or topic.is_active or not rules.delete_inactive:
            topic.active_s = now_s
        elif now_s - topic.active_s >= rules.delete_inactive_after_s and not topic.keeps_data(now_s):
            log.info("%s: deleted, nobody has used it for as long as its policies say", topic.full_name)
            await self._topics.delete(topic.name)

    async def drop_abandoned(self, topic: "AnyTopic") -> None:
        """Delete subscriptions that had no consumers for as long as the rules say."""
        after_s = topic.rules.subscription_expiration_s
        if not isinstance(topic, Topic) or after_s is None:
            return
        before_ms = self._around.clock.now_ms() - after_s * 1000
        for held in topic.subscriptions:
            if held.is_durable and not held.subscription.consumers and held.last_active_ms < before_ms:
                log.info(
                    "%s: subscription %s deleted, it had no consumers for as long as its policies say",
                    topic.full_name,
                    held.subscription.name,
                )
                with suppress(SubscriptionBusy):  # somebody came just now
                    await topic.unsubscribe(held.subscription.name)


def _advance(topic: Topic, offset: int) -> None:
    """Durable subscriptions go on from `offset`, if they are behind it."""
    for held in topic.subscriptions:
        if held.is_durable and held.cursor.mark_delete < offset:
            held.subscription.advance_to(offset)
