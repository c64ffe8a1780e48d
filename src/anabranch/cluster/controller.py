"""Controller: the broker that elects the leaders of partitions and keeps their state, itself elected.

    /controller         ephemeral: what registered broker makes it first is it until its session is over
    /controller-epoch   raised in the same multi; its version is the epoch

Each change of state is one multi that checks this version and that of what was read (`state_writer`).  So a
controller that was deposed while it decided is refused, and so is what was decided on a state that is not
there any more.  What it decides by itself, as brokers come and go, is the `elector`'s; what it is asked for
is here.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from anabranch.base.errors import (
    Conflict,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    Exists,
    IneligibleReplica,
    NotController,
    NotFound,
    PreferredLeaderNotAvailable,
    Unavailable,
    UnknownBroker,
)
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from anabranch.base.metrics import Histogram
from anabranch.cluster.builder import partition_image
from anabranch.cluster.elections import brokers_of, elect_preferred, settle
from anabranch.cluster.elector import Elector, Rules, steady_of
from anabranch.cluster.image_watcher import ImageWatcher
from anabranch.cluster.partition_states import change_isr, elect
from anabranch.cluster.reassignment import cancel, complete, reassign
from anabranch.cluster.seen_brokers import SeenBrokers
from anabranch.cluster.state_writer import ChangeState, StateWriter
from anabranch.meta import paths
from anabranch.meta.documents import ControllerDocument, PartitionState, encode
from anabranch.meta.image import NO_BROKER, BrokerImage, ImageChange, PartitionImage
from anabranch.meta.session import SessionState
from anabranch.meta.store import MUST_NOT_EXIST, Create, MetadataStore, Put

log = logging.getLogger(__name__)

_CLAIM_AGAIN_S = 1.0
_NO_EPOCHS: Mapping[BrokerId, int] = {}


class Controller:
    """This broker's part in it."""

    def __init__(
        self, store: MetadataStore, watcher: ImageWatcher, node_id: BrokerId, rules: Rules | None = None
    ) -> None:
        self._store = store
        self._watcher = watcher
        self._node_id = node_id
        self._writer = StateWriter(store, watcher.refresh, self._check_epoch)
        self._seen = SeenBrokers(store, self._check_epoch)
        self._elector = Elector(watcher, self._writer, self._seen, node_id, rules or Rules())
        self._vacant = asyncio.Event()
        self._elected = asyncio.Event()
        self._has_resigned = False
        self.epoch: int | None = None
        """While this broker is the controller, as far as it knows."""
        watcher.subscribe(self._image_changed)
        store.session.subscribe(self._session_changed)

    # --- who is the controller

    async def claim(self) -> None:
        """Become the controller if there is none."""
        while not self._has_resigned:
            there = await self._store.get(paths.CONTROLLER)
            if there is not None:
                if self.epoch is None and there.owner == self._store.session.id:
                    await self._find_epoch()
                return
            last = await self._store.get(paths.CONTROLLER_EPOCH)
            version = MUST_NOT_EXIST if last is None else last.version
            document = encode(ControllerDocument(self._node_id, version + 1))
            try:
                await self._store.multi(
                    [
                        Create(paths.CONTROLLER, document, ephemeral=True),
                        Put(paths.CONTROLLER_EPOCH, document, version),
                    ]
                )
            except (Exists, Conflict):
                continue  # another broker was first, and may be gone again
            self._take_office(version + 1)

    async def _find_epoch(self) -> None:
        """This session has made the node, though the answer did not come."""
        last = await self._store.get(paths.CONTROLLER_EPOCH)
        if last is not None and last.data == encode(ControllerDocument(self._node_id, last.version)):
            self._take_office(last.version)

    def _take_office(self, epoch: int) -> None:
        self.epoch = epoch
        self._elected.set()
        self._elector.wake()
        log.info("broker %d is the controller, at epoch %d", self._node_id, epoch)

    async def run(self) -> None:
        """Stand in for a controller that is gone, and be it, forever."""
        await asyncio.gather(self._stand_in(), self._serve())

    async def resign(self) -> None:
        """Be the controller no more, nor claim it: this broker stops."""
        self._has_resigned = True
        if self.epoch is None:
            return
        self.epoch = None
        self._elector.wake()
        value = await self._store.get(paths.CONTROLLER)
        if value is None or value.owner != self._store.session.id:
            return
        try:
            await self._store.delete(paths.CONTROLLER, value.version)
        except (Conflict, NotFound):
            return
        log.info("broker %d stops, and is the controller no more", self._node_id)

    async def _stand_in(self) -> None:
        if self._watcher.image.controller_id == NO_BROKER:
            self._vacant.set()
        while True:
            await self._vacant.wait()
            self._vacant.clear()
            if self._node_id not in self._watcher.image.brokers:
                continue  # it would choose no leaders; `_image_changed` comes back to it
            try:
                await self.claim()
            except Unavailable as error:
                log.warning("there is no controller, and broker %d cannot be it: %s", self._node_id, error)
                await asyncio.sleep(_CLAIM_AGAIN_S)
                self._vacant.set()

    async def _serve(self) -> None:
        """Choose leaders whenever this broker is the controller, and is registered itself."""
        while True:
            await self._elected.wait()
            self._elected.clear()
            epoch = self.epoch
            if epoch is None:
                continue
            if self._node_id not in self._watcher.image.brokers:
                continue  # `_image_changed` comes back to it
            await self._elector.serve(lambda epoch=epoch: self.epoch == epoch)  # type: ignore[misc]

    def _image_changed(self, change: ImageChange) -> None:
        if change.new.controller_id == NO_BROKER:
            self._vacant.set()
        me = self._node_id
        if me in change.new.brokers and me not in change.old.brokers:
            self._elected.set()
            self._vacant.set()
        self._elector.image_changed(change)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            if self.epoch is not None:
                log.info(
                    "broker %d is the controller no more, at epoch %d: its metadata session is over",
                    self._node_id,
                    self.epoch,
                )
            self.epoch = None
            self._elector.wake()

    async def _check_epoch(self) -> int:
        """The epoch in which this broker is the controller; NotController if it is not."""
        epoch = self.epoch
        if epoch is None:
            raise NotController(f"broker {self._node_id} is not the controller")
        value = await self._store.get(paths.CONTROLLER_EPOCH)
        if value is None or value.version != epoch:
            if self.epoch == epoch:
                self.epoch = None
            raise NotController(f"broker {self._node_id} was the controller at epoch {epoch} and is no more")
        return epoch

    # --- standing

    @property
    def due(self) -> int:
        """How many partitions have a leader or an ISR to be decided."""
        return self._elector.due

    @property
    def elections(self) -> Histogram:
        return self._writer.elections

    @property
    def unclean_elections(self) -> int:
        return self._writer.unclean_elections

    # --- what it is asked for; NotController if this broker may not say so

    async def elect_leader(
        self, name: TopicName, index: int, leader: BrokerId, why: str, *, is_unclean: bool = False
    ) -> PartitionImage:
        """`leader` leads the partition, or nobody if it is NO_BROKER, at the next epoch.

        As `partition_states.elect`.
        """
        return await self._change(name, index, lambda state: elect(state, leader, is_unclean=is_unclean), why)

    async def change_isr(
        self,
        name: TopicName,
        index: int,
        isr: Sequence[BrokerId],
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        *,
        topic_id: TopicId | None = None,
        broker_epochs: Mapping[BrokerId, int] = _NO_EPOCHS,
    ) -> PartitionImage:
        """As `partition_states.change_isr`; it ends a reassignment that has only waited for that.

        IneligibleReplica for one that would join and whose broker is gone, stops, or has another epoch than
        the leader knows it by.
        """

        let_in: dict[BrokerId, BrokerImage] = {}

        def change(state: PartitionState) -> PartitionState:
            let_in.clear()
            after = change_isr(state, isr, leader_epoch, partition_epoch)
            image = self._watcher.image
            steady = steady_of(image)
            for broker in set(after.isr) - set(state.isr):
                if broker not in steady:
                    raise IneligibleReplica(f"broker {broker} is not there, or stops")
                if broker_epochs.get(broker, -1) not in (-1, image.brokers[broker].epoch):
                    raise IneligibleReplica(f"broker {broker} has restarted since")
                let_in[broker] = image.brokers[broker]
            return complete(after, image.brokers)

        try:
            return await self._change(name, index, change, "its leader says so", topic_id)
        finally:  # it may be written even if that is not known
            self._elector.look_again(let_in.values())

    async def elect_preferred(self, name: TopicName, index: int) -> PartitionImage:
        """ElectionNotNeeded if the first replica leads, PreferredLeaderNotAvailable if it cannot."""

        def change(state: PartitionState) -> PartitionState:
            after = elect_preferred(state, steady_of(self._watcher.image))
            if after is None:
                raise PreferredLeaderNotAvailable(
                    f"broker {state.replicas[0]} is the preferred leader, and is away or not in sync"
                )
            if after is state:
                raise ElectionNotNeeded(f"broker {state.leader} is the preferred leader, and leads")
            return after

        return await self._change(name, index, change, "the preferred leader was asked for")

    async def elect_any(self, name: TopicName, index: int) -> PartitionImage:
        """A leader for a partition that has none, one that is not in sync if need be.

        ElectionNotNeeded if there is one, EligibleLeadersNotAvailable if no replica is there.
        """

        def change(state: PartitionState) -> PartitionState:
            if state.leader != NO_BROKER:
                raise ElectionNotNeeded(f"broker {state.leader} leads")
            after = settle(state, brokers_of(self._watcher.image), is_unclean=True)
            if after is state:
                raise EligibleLeadersNotAvailable("none of its replicas is on a broker that is there")
            return after

        return await self._change(name, index, change, "an unclean election was asked for")

    async def reassign(
        self, name: TopicName, index: int, target: Sequence[BrokerId] | None, *, same_factor: bool = False
    ) -> PartitionImage:
        """Begin to move a partition to these brokers, or call off what moves it."""

        def change(state: PartitionState) -> PartitionState:
            image = self._watcher.image
            if target is None:
                return cancel(state, image.brokers)
            away = [broker.id for broker in image.away]
            return reassign(state, target, image.brokers, same_factor=same_factor, away=away)

        return await self._change(name, index, change, "a reassignment was asked for")

    async def unregister(self, id: BrokerId) -> None:
        """Forget a broker; one that is there registers again.  UnknownBroker if there was none."""
        path = paths.broker(id)
        await self._check_epoch()
        if id not in await self._seen.registered() and id not in self._watcher.image.brokers:
            raise UnknownBroker(f"no broker {id} is registered")
        value = await self._store.get(path)
        if value is not None:
            await self._store.delete(path, value.version)
            await self._watcher.refresh(path)
        await self._seen.forget(id)
        log.info("broker %d was unregistered", id)

    async def _change(
        self, name: TopicName, index: int, change: ChangeState, why: str, topic_id: TopicId | None = None
    ) -> PartitionImage:
        if self.epoch is None:
            raise NotController(f"broker {self._node_id} is not the controller")
        return partition_image(index, await self._writer.ask(name, index, change, why, topic_id))
