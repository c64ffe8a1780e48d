"""The registry as Pulsar's topics use it: by topic, under the rules that hold for it.

    producer brings     none     let in, unless the topic has one and validation is enforced
                        one      its version; a new one if it may follow and updates are allowed
    consumer brings     none     let in
                        one      must read what is written; the topic takes it if nothing is there yet

A rule is the topic's own, else its namespace's, else the broker's.

What a topic's clients registered goes with the topic.  Whoever asks for a subject waits until what a topic of
that name left behind is cleared, and `run` clears what nobody asks for; at the start it looks for topics that
went while the node was down.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from anabranch.base.errors import AnabranchError
from anabranch.base.ids import NON_PERSISTENT, PERSISTENT, TopicName, split_partition
from anabranch.base.turns import Turns
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.image import ClusterImage, topic_changes
from anabranch.cluster.pulsar_topics import PulsarTopics
from anabranch.meta.policies import NO_TOPIC_POLICIES, TopicPolicies
from anabranch.meta.policy_defaults import PolicyDefaults
from anabranch.schemas.definition import Definition
from anabranch.schemas.errors import IncompatibleSchema
from anabranch.schemas.registry import Registry
from anabranch.schemas.strategy import Strategy, strategy_of
from anabranch.schemas.subjects import subject_of

log = logging.getLogger(__name__)


class TopicSchemas:
    def __init__(
        self,
        registry: Registry,
        cluster: Cluster,
        catalog: PulsarTopics,
        defaults: Callable[[], PolicyDefaults],
    ) -> None:
        self.registry = registry
        self._catalog = catalog
        self._defaults = defaults
        self._turns = Turns()
        self._gone: set[str] = set()  # subjects whose topics are, not cleared yet
        self._has_news = asyncio.Event()
        cluster.subscribe(self._image_changed)

    # --- rules

    def strategy(self, name: TopicName) -> Strategy:
        namespace = self._catalog.policies(name.in_namespace)
        return strategy_of(
            self._own(name).schema_compatibility_strategy,
            namespace.schema_compatibility_strategy,
            namespace.schema_auto_update_compatibility_strategy,
            self._defaults().schema_compatibility_strategy,
        )

    def _may_update(self, name: TopicName) -> bool:
        told = self._catalog.policies(name.in_namespace).is_allow_auto_update_schema
        return self._defaults().allow_auto_update_schema if told is None else told

    def _is_enforced(self, name: TopicName) -> bool:
        told = self._own(name).schema_validation_enforced
        if told is not None:
            return told
        is_asked = self._catalog.policies(name.in_namespace).schema_validation_enforced
        return is_asked or self._defaults().schema_validation_enforced

    def _own(self, name: TopicName) -> TopicPolicies:
        topic = self._catalog.find(split_partition(name)[0]) or self._catalog.find(name)
        return (topic.policies if topic is not None else None) or NO_TOPIC_POLICIES

    # --- clients

    async def written_by(self, name: TopicName, definition: Definition | None) -> int | None:
        """The version that a producer's messages have; None if they have none.

        IncompatibleSchema if it may not write so.
        """
        subject = await self.subject(name)
        if definition is None:
            if self._is_enforced(name) and await self.registry.has_any(subject):
                raise IncompatibleSchema(
                    "Producers cannot connect or send message without a schema to topics with a schema when "
                    "SchemaValidationEnforced is enabled"
                )
            return None
        if self._may_update(name):
            topic = split_partition(name)[0].pulsar
            return await self.registry.register(subject, definition, self.strategy(name), topic=topic)
        known = await self.registry.find(subject, definition)
        if known is None:
            raise IncompatibleSchema("Schema not found and schema auto updating is disabled.")
        return known

    async def read_by(self, name: TopicName, definition: Definition, *, is_untouched: bool) -> None:
        """IncompatibleSchema if who has this one cannot read the topic."""
        subject = await self.subject(name)
        if is_untouched and not await self.registry.has_any(subject):
            await self.written_by(name, definition)
        else:
            await self.registry.check_reader(subject, definition, self.strategy(name))

    # --- topics that go

    async def subject(self, name: TopicName) -> str:
        """The topic's subject, without anything that a topic of that name had which is gone."""
        subject = subject_of(name)
        if subject in self._gone:
            await self._clear(subject)
        return subject

    async def _clear(self, subject: str) -> None:
        async with self._turns.of(subject):
            if subject not in self._gone:
                return  # somebody else has, and it may be in use again
            if await self.registry.topic_of(subject):
                await self.registry.remove(subject)
            self._gone.discard(subject)

    def _image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        gone = [before.name for before, after in topic_changes(old, new) if before and not after]
        if old.non_persistent is not new.non_persistent:
            gone += [name for name in old.non_persistent if name not in new.non_persistent]
        for name in gone:
            if new.topic(_twin(name)) is None:
                self._gone.add(subject_of(name))
                self._has_news.set()

    async def run(self) -> None:
        for subject in await self.registry.subjects():
            await self._try(subject, self._look)
            await asyncio.sleep(0)  # there may be many
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            for subject in list(self._gone):
                await self._try(subject, self._clear)

    async def _look(self, subject: str) -> None:
        """Clear a subject whose topic went when nobody was there to see it."""
        topic = await self.registry.topic_of(subject)
        if topic and not self._is_there(TopicName.from_pulsar(topic)):
            self._gone.add(subject)
            await self._clear(subject)

    async def _try(self, subject: str, work: Callable[[str], Awaitable[None]]) -> None:
        try:
            await work(subject)
        except (AnabranchError, OSError) as error:  # whoever uses it next hears of it
            log.warning("subject %s stays, although its topic may be gone: %s", subject, error)

    def _is_there(self, name: TopicName) -> bool:
        return self._catalog.find(name) is not None or self._catalog.find(_twin(name)) is not None


def _twin(name: TopicName) -> TopicName:
    """The topic of the other kind that has the same schemas."""
    domain = NON_PERSISTENT if name.is_persistent else PERSISTENT
    return TopicName(name.tenant, name.namespace, name.local, domain)
