"""Topics that are not stored: what there is to know about them is, their messages are not.

One without partitions lives as long as the broker that made it (an ephemeral node of the metadata store);
how many partitions a partitioned one has is kept.
"""

import logging
from collections.abc import Callable, Mapping

import msgspec

from anabranch.base.clock import Clock
from anabranch.base.errors import InvalidPartitions, UnknownTopic
from anabranch.base.ids import TopicName
from anabranch.base.turns import Turns
from anabranch.cluster.builder import non_persistent_image
from anabranch.cluster.image_watcher import ImageWatcher
from anabranch.cluster.tenants import Tenants
from anabranch.cluster.topics import check_name_is_free
from anabranch.meta import paths
from anabranch.meta.documents import NonPersistentDocument, decode, encode
from anabranch.meta.image import ClusterImage, NonPersistentImage
from anabranch.meta.policies import NO_TOPIC_POLICIES, TopicPolicies
from anabranch.meta.store import MetadataStore

log = logging.getLogger(__name__)


class NonPersistentTopics:
    def __init__(
        self, store: MetadataStore, watcher: ImageWatcher, clock: Clock, tenants: Tenants, turns: Turns
    ) -> None:
        self._store = store
        self._watcher = watcher
        self._clock = clock
        self._tenants = tenants
        self._turns = turns

    @property
    def _image(self) -> ClusterImage:
        return self._watcher.image

    async def create(
        self, name: TopicName, partitions: int | None, properties: Mapping[str, str]
    ) -> NonPersistentImage:
        """Make a topic with so many partitions, or one without if that is None."""
        document = NonPersistentDocument(
            partitions or 1, partitions is not None, self._clock.now_ms(), properties=dict(properties)
        )
        path = paths.topic(name)
        async with self._turns.of(name), self._tenants.made_in(name.in_namespace):
            check_name_is_free(self._image, name, for_pulsar=True)
            await self._store.create(path, encode(document), ephemeral=not document.partitioned)
            log.info("%s: created, its messages are not stored", name.pulsar)
            await self._watcher.refresh(path)
        return non_persistent_image(name, document)

    async def delete(self, name: TopicName) -> None:
        async with self._turns.of(name):
            if name not in self._image.non_persistent:
                raise UnknownTopic(f"there is no topic '{name.pulsar}'")
            await self._store.delete(paths.topic(name))
            log.info("%s: deleted", name.pulsar)
            await self._watcher.refresh(paths.topic(name))

    async def add_partitions(self, name: TopicName, total: int) -> None:
        def grown(document: NonPersistentDocument) -> NonPersistentDocument:
            if not document.partitioned:
                raise InvalidPartitions(f"topic '{name.pulsar}' was made without partitions and stays so")
            if total <= document.partitions:
                raise InvalidPartitions(
                    f"topic '{name.pulsar}' has {document.partitions} partition(s), {total} is no increase"
                )
            return msgspec.structs.replace(document, partitions=total)

        await self._change(name, grown)

    async def alter_policies(self, name: TopicName, change: Callable[[TopicPolicies], TopicPolicies]) -> None:
        def changed(document: NonPersistentDocument) -> NonPersistentDocument:
            policies = change(document.policies or NO_TOPIC_POLICIES)
            kept = None if policies == NO_TOPIC_POLICIES else policies
            return msgspec.structs.replace(document, policies=kept)

        await self._change(name, changed)

    async def alter_properties(
        self, name: TopicName, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        await self._change(
            name, lambda before: msgspec.structs.replace(before, properties=dict(change(before.properties)))
        )

    async def _change(
        self, name: TopicName, change: Callable[[NonPersistentDocument], NonPersistentDocument]
    ) -> None:
        path = paths.topic(name)
        async with self._turns.of(name):
            value = await self._store.get(path)
            if value is None:
                raise UnknownTopic(f"there is no topic '{name.pulsar}'")
            document = change(decode(value.data, NonPersistentDocument, path))
            await self._store.put(path, encode(document), value.version)
            await self._watcher.refresh(path)
