"""Suspicion: a broker whose process died is found out by its peers at once, before its session is over.

    an idle connection to each peer ─> closed ─> connect again ─┬─> accepted: it lives, watch that one
                                                                ├─> no answer: slow or cut off, it may live
                                                                └─> refused: nobody listens there any more
                                                                      └─> remove its registration, and that it
                                                                          was the controller

A killed process closes its sockets, and its port refuses.  Whoever sees both removes what the dead session
left in the store, checked by the epoch and the session, so that the next process of that broker is never
removed for the death of the one before.  From there on it is as if the session had ended: the controller
elects, or another broker claims to be it.  Until that is over, it is doubted (`doubted_brokers`).

A broker that was removed and lives, since a network may refuse as well, registers again.  Its partitions have
other leaders then, and epochs fence what it still does.
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random

from anabranch.base.backoff import Backoff
from anabranch.base.errors import AnabranchError, Conflict, Exists, NotFound, Refused, Unavailable
from anabranch.base.ids import BrokerId
from anabranch.base.network import Link, Network
from anabranch.cluster.doubted_brokers import DoubtedBrokers
from anabranch.cluster.registration import document_of
from anabranch.meta import paths
from anabranch.meta.documents import encode
from anabranch.meta.image import BrokerImage, ClusterImage, ImageChange
from anabranch.meta.session import SessionState
from anabranch.meta.store import Delete, MetadataStore

log = logging.getLogger(__name__)

_CONNECT_S = 5.0
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_REGISTER_AGAIN_S = 1.0
_LIVED_S = 10.0  # a connection that held so long makes a later one that fails a new trouble


class Peers:
    """Watches the other brokers, for as long as they are registered."""

    def __init__(
        self,
        node_id: BrokerId,
        store: MetadataStore,
        network: Network,
        image: Callable[[], ClusterImage],
        random: Random,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._network = network
        self._image = image
        self._random = random
        self._watches: dict[BrokerId, tuple[BrokerImage, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        self.doubted = DoubtedBrokers()
        self._lost: BrokerImage | None = None
        """This broker's own registration, if others removed it."""
        self.is_leaving = False

    def image_changed(self, change: ImageChange) -> None:
        self.doubted.image_changed(change)
        old, new = change.old.brokers, change.new.brokers
        if old is new:
            return
        me = self._node_id
        if me in new:
            self._lost = None
        elif me in old:
            self._lost = old[me]
        self._changed.set()

    async def run(self) -> None:
        self._changed.set()
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._reconcile()
                if self._lost is not None and not self.is_leaving:
                    await self._register_again(self._lost)
        finally:
            for _, task in self._watches.values():
                task.cancel()
            await asyncio.gather(*(task for _, task in self._watches.values()), return_exceptions=True)

    def _reconcile(self) -> None:
        brokers = self._image().brokers
        for id, (watched, task) in list(self._watches.items()):
            now = brokers.get(id)
            if now is None or (now.epoch, now.for_brokers) != (watched.epoch, watched.for_brokers):
                task.cancel()
                del self._watches[id]
        for id, broker in brokers.items():
            if id != self._node_id and id not in self._watches:
                self._watches[id] = broker, asyncio.ensure_future(self._watch(broker))

    async def _watch(self, broker: BrokerImage) -> None:
        """Hold a connection to `broker`, until it is gone."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, self._random)
        loop = asyncio.get_running_loop()
        was_there = False
        while True:
            idle = _Idle()
            try:
                address = broker.for_brokers
                await self._network.connect(address.host, address.port, idle, _CONNECT_S)
                was_there = True
                self.doubted.trust(broker.id)
                since = loop.time()
                await idle.until_closed()
                self.doubted.doubt(broker.id)
                if loop.time() - since > _LIVED_S:
                    backoff.reset()
                    continue
            except Refused:
                if was_there:
                    await self._remove(broker)
            except Unavailable:
                pass
            finally:
                idle.close()
            await asyncio.sleep(backoff.next_s())

    async def _remove(self, broker: BrokerImage) -> None:
        """Remove what the dead process of `broker` left in the store, if that is still what is there."""
        path = paths.broker(broker.id)
        try:
            found = await self._store.get(path)
            if found is None or found.czxid != broker.epoch:
                return
            gone = [Delete(path, found.version)]
            controller = await self._store.get(paths.CONTROLLER)
            if controller is not None and controller.owner == found.owner:
                gone.append(Delete(paths.CONTROLLER, controller.version))
            await self._store.multi(gone)
        except (Conflict, NotFound):
            return  # another peer was faster, or the broker is back
        except AnabranchError as error:
            log.warning(
                "broker %d: is dead, and stays registered until its session is over: %s", broker.id, error
            )
            return
        log.info(
            "broker %d: closed its connection and refuses another one; broker %d removed its registration",
            broker.id,
            self._node_id,
        )

    async def _register_again(self, broker: BrokerImage) -> None:
        if self._store.session.state is not SessionState.CONNECTED:
            return  # whoever has the session registers in the next one
        log.warning("broker %d: lives, but its registration was removed; it registers again", broker.id)
        try:
            await self._store.create(paths.broker(broker.id), encode(document_of(broker)), ephemeral=True)
        except Exists:
            return
        except Unavailable as error:
            log.warning("broker %d: not registered: %s", broker.id, error)
            await asyncio.sleep(_REGISTER_AGAIN_S)
            self._changed.set()


class _Idle:
    """The upper half of a connection on which nothing is said."""

    def __init__(self) -> None:
        self._link: Link | None = None
        self._closed = asyncio.get_running_loop().create_future()
        self._buffer = memoryview(bytearray(256))

    def opened(self, link: Link) -> None:
        self._link = link

    def buffer(self) -> memoryview:
        return self._buffer

    def received(self, size: int) -> None:
        """Nothing was asked."""

    def drained(self) -> None:
        """Nothing was sent."""

    def closed(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    async def until_closed(self) -> None:
        await self._closed

    def close(self) -> None:
        if self._link is not None:
            self._link.abort()
