"""Seen brokers: the registrations that controllers have gone by, written down for the next one.

A broker may restart while there is no controller, or while the controller is dying.  The next one finds it
registered, with a higher epoch than was written down last, and chooses leaders as if it had been gone.  Its
data folder is written down, too: a broker that is back with another one has lost what it had.  By the same
document all know of the brokers that are away (`ClusterImage.away`), and can give them replicas.
"""

import logging
from collections.abc import Awaitable, Callable

from anabranch.base.errors import Conflict, Corrupt, Exists
from anabranch.base.ids import BrokerId
from anabranch.meta import paths
from anabranch.meta.documents import BrokerPlace, BrokersSeenDocument, decode, encode
from anabranch.meta.image import BrokerImage, ClusterImage
from anabranch.meta.store import MUST_NOT_EXIST, Check, MetadataStore, Put, Versioned

log = logging.getLogger(__name__)

_Seen = BrokersSeenDocument


class SeenBrokers:
    def __init__(self, store: MetadataStore, check_epoch: Callable[[], Awaitable[int]]) -> None:
        self._store = store
        self._check_epoch = check_epoch
        self._known: _Seen | None = None
        """What is written down, as far as this controller knows."""

    async def restarted(self, image: ClusterImage) -> list[BrokerId]:
        """Of the brokers that are there, those that are not the ones that were seen last."""
        known = (await self._read()).epochs
        return [id for id, broker in image.brokers.items() if known.get(id) != broker.epoch]

    def has_lost_its_data(self, broker: BrokerImage) -> bool:
        """Whether it was seen with another data folder."""
        known = self._known.directories.get(broker.id, "") if self._known is not None else ""
        return known not in ("", broker.directory)

    async def registered(self) -> frozenset[BrokerId]:
        """All that were ever there, and were not unregistered since."""
        return frozenset((await self._read()).epochs)

    async def note(self, image: ClusterImage) -> None:
        """Leaders are chosen by these brokers."""
        known = self._known if self._known is not None else await self._read()
        now = _with(known, image)
        if now != known and (known.epochs or len(now.epochs) > 1):  # who was always alone needs no elections
            await self._write(lambda before: _with(before, image))

    async def forget(self, id: BrokerId) -> None:
        await self._write(
            lambda before: _Seen(
                {one: epoch for one, epoch in before.epochs.items() if one != id},
                {one: directory for one, directory in before.directories.items() if one != id},
                {one: place for one, place in before.places.items() if one != id},
            )
        )

    async def _read(self) -> _Seen:
        self._known = _decoded(await self._store.get(paths.CONTROLLER_BROKERS))
        return self._known

    async def _write(self, change: Callable[[_Seen], _Seen]) -> None:
        path = paths.CONTROLLER_BROKERS
        while True:
            epoch = await self._check_epoch()
            value = await self._store.get(path)
            version = MUST_NOT_EXIST if value is None else value.version
            after = change(_decoded(value))
            try:
                await self._store.multi(
                    [Check(paths.CONTROLLER_EPOCH, epoch), Put(path, encode(after), version)]
                )
            except (Conflict, Exists):
                continue
            self._known = after
            return


def _decoded(value: Versioned | None) -> _Seen:
    if value is None:
        return _Seen({})
    try:
        return decode(value.data, _Seen, paths.CONTROLLER_BROKERS)
    except Corrupt as error:  # the next controller, too, would end by it
        log.error("%s; all brokers are taken for new", error)
        return _Seen({})


def _with(seen: _Seen, image: ClusterImage) -> _Seen:
    brokers = image.brokers.values()
    return _Seen(
        seen.epochs | {broker.id: broker.epoch for broker in brokers},
        seen.directories | {broker.id: broker.directory for broker in brokers if broker.directory},
        seen.places | {broker.id: BrokerPlace(broker.host, broker.port, broker.rack) for broker in brokers},
    )
