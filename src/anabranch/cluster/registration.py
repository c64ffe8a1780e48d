"""Registration: a broker's ephemeral node, by which the others know that it lives and where to find it.

    /brokers/1      BrokerDocument; its czxid is the broker's epoch, higher at each registration

A node of this id may be there when a broker registers:

    of another living process                     refused: two brokers cannot have one id
    of an earlier start of this very data folder  removed at once, so that a quick restart need not wait until
    of a process that had this very port          the session of the process that was killed is over

Whose it is, is told by the data folder, which only one process can have: it writes down each start's random
`instance` before it registers (`partition/instances.py`).  If the folder was lost with its disk, the port
tells: the broker listens there before it registers, so nobody else on this machine does.

When the session was lost and the store has opened another, the broker registers again, until it works.
Meanwhile it goes on serving: what it leads is fenced by epochs, not by this node.
"""

import asyncio
import logging
from collections.abc import Collection
from random import Random

import msgspec

from anabranch.base.backoff import Backoff
from anabranch.base.errors import Conflict, Exists, NotFound, Unavailable
from anabranch.base.ids import BrokerId
from anabranch.cluster.image_watcher import ImageWatcher
from anabranch.meta import paths
from anabranch.meta.documents import BrokerDocument, decode, encode
from anabranch.meta.image import BrokerImage
from anabranch.meta.session import SessionState
from anabranch.meta.store import Delete, MetadataStore

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_PATIENCE_S = 30.0


class Registration:
    """Of the brokers of this process, which is one."""

    def __init__(self, store: MetadataStore, watcher: ImageWatcher, chance: Random) -> None:
        self._store = store
        self._watcher = watcher
        self._chance = chance
        self._brokers: dict[BrokerId, tuple[BrokerImage, Collection[str]]] = {}
        self._give_way: set[str] = set()
        """Why they lead no more where others can."""
        self._session_id = store.session.id
        """In which the brokers are registered."""
        self._connected = asyncio.Event()
        store.session.subscribe(self._session_changed)

    async def register(self, broker: BrokerImage, former: Collection[str] = ()) -> None:
        """Tell the cluster that this broker, which listens, is there.  Exists if another process has its id.

        `former` are the instances that its data folder has seen.  A session that is not there is waited
        for: the start may have taken longer than it lasts.
        """
        broker = msgspec.structs.replace(broker, gives_way=bool(self._give_way))
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, self._chance)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_S
        while True:
            session, changes = self._store.session, dict(self._store.session.changes)
            try:
                await self._enter(broker, former)
                break
            except Unavailable as error:
                is_connected = session.state is SessionState.CONNECTED and session.changes == changes
                if is_connected or loop.time() > deadline:
                    raise
                log.warning("broker %d: not registered yet: %s", broker.id, error)
            await asyncio.sleep(backoff.next_s())
        self._brokers[broker.id] = broker, former

    async def give_way(self, id: BrokerId, why: str) -> None:
        """Tell the cluster that this broker leads no more where another can.

        NotFound if it is not registered: it will be told when it registers.
        """
        await self._tell(id, self._give_way | {why})

    async def lead_again(self, id: BrokerId, why: str) -> None:
        """It is not so any more, unless there is another reason."""
        await self._tell(id, self._give_way - {why})

    async def run(self) -> None:
        """Register again in each new session, forever."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, self._chance)
        while True:
            await self._connected.wait()
            self._connected.clear()
            while self._session_id != (current := self._store.session.id):
                try:
                    for broker, former in self._brokers.values():
                        await self._enter(broker, former)
                except (Unavailable, Exists) as error:
                    log.warning("metadata session %x: not registered yet: %s", current, error)
                    await asyncio.sleep(backoff.next_s())
                else:
                    self._session_id = current
                    backoff.reset()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._connected.set()

    async def _tell(self, id: BrokerId, give_way: set[str]) -> None:
        self._give_way = give_way
        if id not in self._brokers:
            raise NotFound(f"broker {id} is not registered")
        broker, former = self._brokers[id]
        broker = msgspec.structs.replace(broker, gives_way=bool(give_way))
        self._brokers[id] = broker, former
        path, data = paths.broker(id), encode(document_of(broker))
        found = await self._store.get(path)
        if found is None or found.owner != self._store.session.id:
            raise NotFound(f"broker {id} is not registered")
        if found.data != data:
            await self._store.put(path, data, found.version)
            await self._watcher.refresh(path)

    async def _enter(self, broker: BrokerImage, former: Collection[str]) -> None:
        path = paths.broker(broker.id)
        data = encode(document_of(broker))
        while not await self._create(path, data):
            found = await self._store.get(path)
            if found is None:
                continue  # it went in between
            if found.owner == self._store.session.id and found.data == data:
                break  # an earlier call of ours failed, and was carried out
            if not is_stale(decode(found.data, BrokerDocument, path), broker, former):
                raise Exists(f"broker id {broker.id} is in use by another process; set another node.id")
            await self._remove(path, found.version, found.owner)
            log.info("broker %d: removed what an earlier start of it had registered", broker.id)
        await self._watcher.refresh(path)
        registered = self._watcher.image.brokers.get(broker.id)
        if registered is not None:
            log.info("broker %d: registered, epoch %d", broker.id, registered.epoch)

    async def _create(self, path: str, data: bytes) -> bool:
        """False if there is such a node."""
        try:
            await self._store.create(path, data, ephemeral=True)
        except Exists:
            return False
        return True

    async def _remove(self, path: str, version: int, session: int) -> None:
        """Remove a node, and what else of its dead session others wait for: that it was the controller."""
        gone = [Delete(path, version)]
        controller = await self._store.get(paths.CONTROLLER)
        if controller is not None and controller.owner == session:
            gone.append(Delete(paths.CONTROLLER, controller.version))
        try:
            await self._store.multi(gone)
        except (Conflict, NotFound):
            return  # the session ended in between: look again


def document_of(broker: BrokerImage) -> BrokerDocument:
    told = msgspec.structs.asdict(broker)
    return BrokerDocument(**{name: told[name] for name in BrokerDocument.__struct_fields__})


def is_stale(found: BrokerDocument, broker: BrokerImage, former: Collection[str]) -> bool:
    """Whether what was `found` is of this process, or of an earlier one that had its data folder or port."""
    if broker.host_id and (found.host_id, found.host, found.port) == (
        broker.host_id,
        broker.host,
        broker.port,
    ):
        return True
    if not broker.directory or found.directory != broker.directory:
        return False
    return found.instance == broker.instance or found.instance in former
