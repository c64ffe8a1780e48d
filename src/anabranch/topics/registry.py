"""Open topics: those that somebody is using, opened when first asked for, closed when told to.

    topic = await topics.open(TopicName.from_pulsar("orders-partition-3"))

A topic is opened once, however many ask at the same time.  They subscribe to the cluster's image: one that is
deleted is closed, one whose rules change is told so.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator

from anabranch.base.backoff import Backoff
from anabranch.base.errors import AnabranchError, NotOwner, UnknownTopic
from anabranch.base.ids import TopicName
from anabranch.meta.image import ImageChange
from anabranch.partition.partition import Partition
from anabranch.topics.errors import TopicClosed
from anabranch.topics.leaving import leave
from anabranch.topics.non_persistent import NonPersistentTopic
from anabranch.topics.surroundings import Surroundings
from anabranch.topics.topic import Topic
from anabranch.topics.upkeep import TopicUpkeep

log = logging.getLogger(__name__)

AnyTopic = Topic | NonPersistentTopic

_AT_ONCE = 64  # topics that are closed at the same time
_ELECTION_S = 10.0  # for which a topic is opened that has no leader
_FIRST_RETRY_S, _MOST_RETRY_S = 0.02, 0.5


class Topics:
    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._open: dict[TopicName, AnyTopic] = {}
        self._parts: dict[TopicName, dict[int, AnyTopic]] = {}  # the same, by whole name and partition
        self._opening: dict[TopicName, asyncio.Task[AnyTopic]] = {}
        self._closing: dict[TopicName, asyncio.Task[None]] = {}
        self._is_stopping = False
        self._started = around.clock.now_ms()
        self._names = 0
        self.upkeep = TopicUpkeep(self, around)

    def new_producer_name(self) -> str:
        """A name that nobody has or had: the cluster's, this start's, a number."""
        self._names += 1
        return f"{self._around.cluster_name}-{self._started:x}-{self._names - 1}"

    # --- finding

    def __iter__(self) -> Iterator[AnyTopic]:
        """Those that are open."""
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def find(self, name: TopicName) -> AnyTopic | None:
        """The topic, if it is open."""
        return self._open.get(name)

    async def open(self, name: TopicName) -> AnyTopic:
        """The topic, or the partition of one, that Pulsar clients mean by `name`.

        UnknownTopic if the cluster has none: making one is the caller's.
        """
        found = self._open.get(name)
        if found is not None:
            return found
        closing = self._closing.get(name)
        if closing is not None:
            await asyncio.wait((closing,))
        if self._is_stopping:
            raise TopicClosed("the broker is stopping; connect to another one")
        opening = self._opening.get(name)
        if opening is None:
            opening = self._opening[name] = asyncio.ensure_future(self._load(name))
            opening.add_done_callback(lambda done: self._opened(name, done))
        return await asyncio.shield(opening)

    def _opened(self, name: TopicName, done: "asyncio.Task[AnyTopic]") -> None:
        self._opening.pop(name, None)
        if not done.cancelled():
            done.exception()  # whoever asked has it, if they are still there

    async def _load(self, name: TopicName) -> AnyTopic:
        located = self._around.catalog.locate(name)
        if located is None:
            raise UnknownTopic(f"Topic {name.pulsar} does not exist")
        facts, index = located
        topic: AnyTopic
        if name.is_persistent:
            topic = Topic(facts.name, index, facts, await self._led(facts.name, index), self._around)
            try:
                await topic.load()
                topic.partition.check_leads()
            except BaseException:
                topic.abandon()
                self._around.positions.abandon(facts.name.kafka, index)
                raise
        else:
            self._around.check_owner(name)
            topic = NonPersistentTopic(facts.name, index, facts, self._around)
        still = self._around.catalog.locate(name)
        if self._is_stopping or still is None or still[0].created_ms != facts.created_ms:
            topic.abandon()
            raise TopicClosed(f"{name.pulsar} was deleted meanwhile")
        self._open[name] = topic
        self._parts.setdefault(topic.name, {})[index] = topic
        if isinstance(topic, Topic):
            topic.partition.on_resign(lambda: self._resigned(name, topic))
        topic.rules_changed()
        return topic

    async def _led(self, name: TopicName, index: int) -> Partition:
        """The partition, once it has a leader.  NotOwner if that is another broker, or none for long.

        The C++ client does not come again if its first SUBSCRIBE is refused, until its operation times out.
        """
        backoff = Backoff(_FIRST_RETRY_S, _MOST_RETRY_S)
        deadline_s = self._around.clock.monotonic() + _ELECTION_S
        while True:
            try:
                return self._around.partition(name, index)
            except NotOwner as error:
                if error.leader >= 0 or self._around.clock.monotonic() > deadline_s:
                    raise
            await asyncio.sleep(backoff.next_s())

    def parts(self, name: TopicName) -> list[AnyTopic]:
        """The partitions that are open of a topic, by its whole name."""
        return list(self._parts.get(name, {}).values())

    async def run(self) -> None:
        """Hold topics to their rules, forever.  Belongs in the node's task group."""
        await self.upkeep.run()

    # --- closing

    async def unload(self, name: TopicName) -> None:
        """Close a topic; its producers and consumers are told to look it up again."""
        topic = self._open.get(name)
        if topic is None:
            return
        await asyncio.shield(self._close_soon(name, topic, topic.close()))

    def _close_soon(
        self, name: TopicName, topic: AnyTopic, close: Coroutine[None, None, None]
    ) -> "asyncio.Task[None]":
        """Whoever asks for it meanwhile waits until it is closed."""
        self._forget(topic)
        closing = self._closing[name] = asyncio.ensure_future(close)
        closing.add_done_callback(lambda _: self._closing.pop(name, None))
        return closing

    def _resigned(self, name: TopicName, topic: Topic) -> None:
        """The leader of its partition has: another one serves it from now on, here or elsewhere."""
        if self._open.get(name) is topic and not isinstance(topic.partition.why, UnknownTopic):
            topic.abandon()
            self._close_soon(name, topic, leave(topic, self._around))

    async def delete(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a topic, by its whole name, from the cluster.  TopicBusy if it is used, unless forced."""
        if not force:
            for topic in self.parts(name):
                topic.check_unused()
        await self._around.catalog.delete(name)

    def _forget(self, topic: AnyTopic) -> None:
        self._open.pop(TopicName.from_pulsar(topic.full_name), None)
        parts = self._parts.get(topic.name, {})
        parts.pop(topic.index, None)
        if not parts:
            self._parts.pop(topic.name, None)

    async def stop(self) -> None:
        """Close every topic, for a clean stop."""
        self._is_stopping = True
        if self._opening:
            await asyncio.wait(list(self._opening.values()))
        topics = list(self)
        for i in range(0, len(topics), _AT_ONCE):
            await asyncio.gather(*[self._close(topic) for topic in topics[i : i + _AT_ONCE]])

    async def _close(self, topic: AnyTopic) -> None:
        try:
            await self.unload(TopicName.from_pulsar(topic.full_name))
        except (AnabranchError, OSError) as error:
            log.warning("%s: could not store all it knows when it was closed: %s", topic.full_name, error)

    # --- what the cluster tells

    def image_changed(self, change: ImageChange) -> None:
        old, new, changes = change
        for before, after in changes:
            if after is None and before is not None:
                self.deleted(before.name)
            elif after is not None and before is not None:
                self.topic_changed(after.name)
        if old.brokers is not new.brokers:
            self._check_owned()
        if old.non_persistent is not new.non_persistent:
            for name, topic in old.non_persistent.items():
                now = new.non_persistent.get(name)
                if now is None:
                    self.deleted(name)
                elif now is not topic:
                    self.topic_changed(name)
        if old.namespaces is not new.namespaces:
            namespaces = new.namespaces.items()
            changed = {space for space, policies in namespaces if old.namespaces.get(space) is not policies}
            for open_topic in self:
                if open_topic.name.in_namespace in changed:
                    open_topic.rules_changed()

    def _check_owned(self) -> None:
        """Topics that are not stored go to other brokers as these come and go."""
        for name, topic in list(self._open.items()):
            if not name.is_persistent:
                try:
                    self._around.check_owner(name)
                except NotOwner:
                    self._close_soon(name, topic, topic.close())

    def deleted(self, name: TopicName) -> None:
        """A topic is no more, by its whole name."""
        for topic in self.parts(name):
            self._forget(topic)
            topic.abandon()
        self._around.positions.topic_deleted(name.kafka)

    def topic_changed(self, name: TopicName) -> None:
        for topic in self.parts(name):
            topic.rules_changed()

    def rules_changed(self) -> None:
        """The broker's own configuration changed: every topic may have other rules."""
        for topic in self:
            topic.rules_changed()
