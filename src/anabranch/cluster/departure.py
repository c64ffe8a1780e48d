"""Departure: a broker that stops says so, waits until others lead its partitions, and is gone.

    /brokers/2   gives_way ─> the controller elects others where it can ─> the image shows it ─> resign, go

A partition without another replica in sync is not waited for, and one broker alone waits for nothing.
"""

import asyncio
import logging

from anabranch.base.errors import AnabranchError
from anabranch.base.ids import BrokerId
from anabranch.cluster.controller import Controller
from anabranch.cluster.elector import steady_of
from anabranch.cluster.image_watcher import ImageWatcher
from anabranch.cluster.registration import Registration
from anabranch.meta import paths
from anabranch.meta.image import ClusterImage, ImageChange
from anabranch.meta.store import MetadataStore

log = logging.getLogger(__name__)


class Departure:
    def __init__(
        self,
        store: MetadataStore,
        watcher: ImageWatcher,
        registration: Registration,
        controller: Controller,
        node_id: BrokerId,
    ) -> None:
        self._store = store
        self._registration = registration
        self._watcher = watcher
        self._controller = controller
        self._node_id = node_id

    async def hand_over(self, most_s: float) -> None:
        """Have others lead what they can, and be the controller.  Gives up when `most_s` is over."""
        me = self._node_id
        image = self._watcher.image
        if me not in image.brokers or not steady_of(image) - {me}:
            return
        try:
            if most_s > 0:
                async with asyncio.timeout(most_s):
                    await self._registration.give_way(me, "it stops")
                    await self._until_handed_over()
            await self._controller.resign()
        except TimeoutError:  # the session's end is that of the controller, too
            left = len(to_hand_over(self._watcher.image, me))
            log.warning("broker %d: stops, and still leads %d partition(s) that others could", me, left)
        except AnabranchError as error:
            log.warning("broker %d: stops without handing over what it leads: %s", me, error)

    async def deregister(self) -> None:
        """It serves no more: the others need not find that out."""
        path = paths.broker(self._node_id)
        try:
            found = await self._store.get(path)
            if found is not None and found.owner == self._store.session.id:
                await self._store.delete(path, found.version)
        except AnabranchError as error:
            log.warning("broker %d: stops without saying so: %s", self._node_id, error)

    async def _until_handed_over(self) -> None:
        done = asyncio.Event()

        def look(change: ImageChange) -> None:
            if not to_hand_over(change.new, self._node_id):
                done.set()

        unsubscribe = self._watcher.subscribe(look)
        try:
            if to_hand_over(self._watcher.image, self._node_id):
                await done.wait()
        finally:
            unsubscribe()


def to_hand_over(image: ClusterImage, broker: BrokerId) -> list[tuple[str, int]]:
    """The partitions that `broker` leads and another one could."""
    others = steady_of(image) - {broker}
    return [
        (topic.name.kafka, state.index)
        for topic in image.topics.values()
        for state in topic.partitions
        if state.leader == broker and not others.isdisjoint(state.isr)
    ]
