"""Schemas of Pulsar's topics: the registry by topic, under the rules that hold for it.

    producer brings     none     let in, unless the topic has one and validation is enforced
                        one      its version; a new one if it may follow and updates are allowed
    consumer brings     none     let in
                        one      must read what is written; the topic takes it if nothing is there yet

What may follow what is said by the first of these that says something:

    the subject's level            set by Kafka's users
    the topic's own strategy, or   set by Pulsar's
        its namespace's
    the level of all subjects      set by Kafka's users
    the default                    for Pulsar's clients FULL, or what the broker is told; for Kafka's BACKWARD

The other rules are the topic's own, else its namespace's, else the broker's.

What a topic's clients registered goes with the topic.  Whoever asks for a subject waits until what a topic of
that name left behind is cleared, and `run` clears what nobody asks for; at the start it looks for topics that
went while the node was down.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING

from anabranch.base.errors import AnabranchError
from anabranch.base.ids import NON_PERSISTENT, PERSISTENT, TopicName, split_partition
from anabranch.base.turns import Turns
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.pulsar_topics import PulsarTopics
from anabranch.meta.image import ImageChange
from anabranch.meta.policies import NO_TOPIC_POLICIES, TopicPolicies
from anabranch.meta.policy_defaults import PolicyDefaults
from anabranch.schemas.definition import Definition
from anabranch.schemas.errors import IncompatibleSchema
from anabranch.schemas.strategy import (
    DEFAULT_FOR_KAFKA,
    Rules,
    Strategy,
    said_of,
    strategy_of,
    strategy_of_level,
)
from anabranch.schemas.subject_store import FOR_ALL, SubjectStore
from anabranch.schemas.subjects import subject_of, topic_of, value_subject

if TYPE_CHECKING:
    from anabranch.schemas.registry import Registry
    from anabranch.schemas.subject_deletion import SubjectDeletion
    from anabranch.schemas.subject_lists import SubjectLists
    from anabranch.schemas.subject_registry import SubjectRegistry

log = logging.getLogger(__name__)

LENIENT = "LENIENT"
"""The policy by which JSON Schemas may say what open objects hold."""


class TopicSchemas:
    def __init__(
        self,
        store: SubjectStore,
        cluster: Cluster,
        catalog: PulsarTopics,
        defaults: Callable[[], PolicyDefaults],
    ) -> None:
        self.store = store
        self._catalog = catalog
        self._defaults = defaults
        self._turns = Turns()
        self._gone: set[str] = set()  # subjects whose topics are, not cleared yet
        self._has_news = asyncio.Event()
        cluster.subscribe(self._image_changed)

    # --- the registry's faces, each loaded when somebody first asks: many a broker has no schemas

    @cached_property
    def registry(self) -> "Registry":
        """For Pulsar's clients."""
        from anabranch.schemas.registry import Registry

        return Registry(self.store)

    @cached_property
    def subjects(self) -> "SubjectRegistry":
        """For Kafka's clients."""
        from anabranch.schemas.subject_registry import SubjectRegistry

        return SubjectRegistry(self.store)

    @cached_property
    def lists(self) -> "SubjectLists":
        from anabranch.schemas.subject_lists import SubjectLists

        return SubjectLists(self.store)

    @cached_property
    def deletion(self) -> "SubjectDeletion":
        from anabranch.schemas.subject_deletion import SubjectDeletion

        return SubjectDeletion(self.store)

    # --- rules

    async def strategy(self, name: TopicName) -> Strategy:
        """For what Pulsar's clients bring."""
        told = await self._told(subject_of(name), name)
        return told or strategy_of(self._defaults().schema_compatibility_strategy)

    async def rules(self, subject: str, *, normalize: bool = False) -> Rules:
        """For what Kafka's clients bring."""
        settings = await self.store.settings_in_scope(subject)
        name = topic_of(subject)
        is_topic = name is not None and self._is_there(name)
        return Rules(
            await self._told(subject, name if is_topic else None) or DEFAULT_FOR_KAFKA,
            normalize or bool(settings.normalize),
            settings.policy == LENIENT,
            settings.group,
        )

    async def _told(self, subject: str, name: TopicName | None) -> Strategy | None:
        """What somebody has said, for a subject that is a topic's or none's."""
        own, of_all = await self.store.settings(subject), await self.store.settings(FOR_ALL)
        if own.level is not None:
            return strategy_of_level(own.level)
        if name is not None:
            namespace = self._catalog.policies(name.in_namespace)
            told = said_of(
                self._own(name).schema_compatibility_strategy,
                namespace.schema_compatibility_strategy,
                namespace.schema_auto_update_compatibility_strategy,
            )
            if told is not None:
                return told
        return None if of_all.level is None else strategy_of_level(of_all.level)

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
            return await self.registry.register(subject, definition, await self.strategy(name), topic=topic)
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
            await self.registry.check_reader(subject, definition, await self.strategy(name))

    # --- topics that go

    async def subject(self, name: TopicName) -> str:
        """The topic's subject, without anything that a topic of that name had which is gone."""
        return await self.cleared(subject_of(name))

    async def cleared(self, subject: str) -> str:
        """A subject, without anything of a topic that is gone."""
        if value_subject(subject) in self._gone:
            await self._clear(value_subject(subject))
        return subject

    async def _clear(self, subject: str) -> None:
        async with self._turns.of(subject):
            if subject not in self._gone:
                return  # somebody else has, and it may be in use again
            if await self.registry.topic_of(subject):
                await self.registry.remove(subject)
            self._gone.discard(subject)

    def _image_changed(self, change: ImageChange) -> None:
        old, new, _ = change
        gone = [topic.name for topic in change.deleted]
        if old.non_persistent is not new.non_persistent:
            gone += [name for name in old.non_persistent if name not in new.non_persistent]
        for name in gone:
            if new.topic(_twin(name)) is None:
                self._gone.add(subject_of(name))
                self._has_news.set()

    async def run(self) -> None:
        for subject in await self.store.subjects():
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
        if topic and not self._is_there(name := TopicName.from_pulsar(topic)):
            self._gone.add(subject_of(name))
            await self._clear(subject_of(name))

    async def _try(self, subject: str, work: Callable[[str], Awaitable[None]]) -> None:
        try:
            await work(subject)
        except (AnabranchError, OSError) as error:  # whoever uses it next hears of it
            log.warning(
                "subject %s: could not be removed, although its topic may be gone: %s", subject, error
            )

    def _is_there(self, name: TopicName) -> bool:
        return self._catalog.find(name) is not None or self._catalog.find(_twin(name)) is not None


def _twin(name: TopicName) -> TopicName:
    """The topic of the other kind that has the same schemas."""
    domain = NON_PERSISTENT if name.is_persistent else PERSISTENT
    return TopicName(name.tenant, name.namespace, name.local, domain)
