"""Seen brokers: the registrations that controllers have gone by, written down for the next one.

A broker may restart while there is no controller, or while the controller is dying.  The next one finds it
registered, with a higher epoch than was written down last, and chooses leaders as if it had been gone.
"""

from collections.abc import Awaitable, Callable

from anabranch.base.errors import Conflict, Exists
from anabranch.base.ids import BrokerId
from anabranch.meta import paths
from anabranch.meta.documents import BrokersSeenDocument, decode, encode
from anabranch.meta.image import ClusterImage
from anabranch.meta.store import MUST_NOT_EXIST, Check, MetadataStore, Put


class SeenBrokers:
    def __init__(self, store: MetadataStore, check_epoch: Callable[[], Awaitable[int]]) -> None:
        self._store = store
        self._check_epoch = check_epoch
        self._known: dict[BrokerId, int] | None = None
        """What is written down, as far as this controller knows."""

    async def restarted(self, image: ClusterImage) -> list[BrokerId]:
        """Of the brokers that are there, those that are not the ones that were seen last."""
        known = await self._read()
        return [id for id, broker in image.brokers.items() if known.get(id) != broker.epoch]

    async def registered(self) -> frozenset[BrokerId]:
        """All that were ever there, and were not unregistered since."""
        return frozenset(await self._read())

    async def note(self, image: ClusterImage) -> None:
        """Leaders are chosen by these brokers."""
        known = self._known if self._known is not None else await self._read()
        now = known | {id: broker.epoch for id, broker in image.brokers.items()}
        if now != known and (known or len(now) > 1):  # a broker that was always alone needs no elections
            await self._write(lambda before: before | now)

    async def forget(self, id: BrokerId) -> None:
        await self._write(lambda before: {one: epoch for one, epoch in before.items() if one != id})

    async def _read(self) -> dict[BrokerId, int]:
        value = await self._store.get(paths.CONTROLLER_BROKERS)
        path = paths.CONTROLLER_BROKERS
        self._known = {} if value is None else decode(value.data, BrokersSeenDocument, path).epochs
        return self._known

    async def _write(self, change: Callable[[dict[BrokerId, int]], dict[BrokerId, int]]) -> None:
        path = paths.CONTROLLER_BROKERS
        while True:
            epoch = await self._check_epoch()
            value = await self._store.get(path)
            version = MUST_NOT_EXIST if value is None else value.version
            after = change({} if value is None else decode(value.data, BrokersSeenDocument, path).epochs)
            data = encode(BrokersSeenDocument(after))
            try:
                await self._store.multi([Check(paths.CONTROLLER_EPOCH, epoch), Put(path, data, version)])
            except (Conflict, Exists):
                continue
            self._known = after
            return
