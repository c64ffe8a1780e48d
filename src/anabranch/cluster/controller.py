"""Controller: the broker that elects the leaders of partitions and keeps their state, itself elected.

    /controller         ephemeral: whoever makes it first is the controller until its session is over
    /controller-epoch   raised in the same multi; its version is the epoch

Each change of state is one multi that checks this version and that of what was read.  So a controller that
was deposed while it decided is refused, and so is what was decided on a state that is not there any more.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from anabranch.base.errors import Conflict, Exists, NotController, Unavailable, UnknownTopic
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicName
from anabranch.base.turns import Turns
from anabranch.cluster.builder import partition_image
from anabranch.cluster.image_watcher import ImageWatcher
from anabranch.cluster.partition_states import change_isr, elect, new_state
from anabranch.meta import paths
from anabranch.meta.documents import (
    ControllerDocument,
    PartitionState,
    PartitionStatesDocument,
    TopicDocument,
    decode,
    encode,
)
from anabranch.meta.image import NO_BROKER, ImageChange, PartitionImage
from anabranch.meta.session import SessionState
from anabranch.meta.store import MUST_NOT_EXIST, Check, Create, MetadataStore, Put

log = logging.getLogger(__name__)

_CLAIM_AGAIN_S = 1.0

ChangeState = Callable[[PartitionState], PartitionState]


class Controller:
    """This broker's part in it."""

    def __init__(self, store: MetadataStore, watcher: ImageWatcher, node_id: BrokerId) -> None:
        self._store = store
        self._watcher = watcher
        self._node_id = node_id
        self._turns = Turns()
        self._vacant = asyncio.Event()
        self.epoch: int | None = None
        """While this broker is the controller, as far as it knows."""
        watcher.subscribe(self._image_changed)
        store.session.subscribe(self._session_changed)

    async def claim(self) -> None:
        """Become the controller if there is none."""
        document = encode(ControllerDocument(self._node_id))
        while (there := await self._store.get(paths.CONTROLLER)) is None:
            last = await self._store.get(paths.CONTROLLER_EPOCH)
            version = MUST_NOT_EXIST if last is None else last.version
            try:
                await self._store.multi(
                    [
                        Create(paths.CONTROLLER, document, ephemeral=True),
                        Put(paths.CONTROLLER_EPOCH, document, version),
                    ]
                )
            except (Exists, Conflict):
                continue  # another broker was first, and may be gone again
            self.epoch = version + 1
            log.info("broker %d is the controller, at epoch %d", self._node_id, self.epoch)
        if self.epoch is None and there.owner == self._store.session.id:
            await self._find_epoch(document)

    async def _find_epoch(self, document: bytes) -> None:
        """This session has made the node, though the answer did not come."""
        last = await self._store.get(paths.CONTROLLER_EPOCH)
        if last is not None and last.data == document:
            self.epoch = last.version
            log.info("broker %d is the controller after all, at epoch %d", self._node_id, self.epoch)

    async def run(self) -> None:
        """Stand in for a controller that is gone, for ever."""
        if self._watcher.image.controller_id == NO_BROKER:
            self._vacant.set()
        while True:
            await self._vacant.wait()
            self._vacant.clear()
            try:
                await self.claim()
            except Unavailable as error:
                log.warning("there is no controller, and broker %d cannot be it: %s", self._node_id, error)
                await asyncio.sleep(_CLAIM_AGAIN_S)
                self._vacant.set()

    def _image_changed(self, change: ImageChange) -> None:
        if change.new.controller_id == NO_BROKER:
            self._vacant.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.epoch = None

    async def elect_leader(
        self, name: TopicName, index: int, leader: BrokerId, why: str, *, is_unclean: bool = False
    ) -> PartitionImage:
        """`leader` leads the partition, or nobody if it is NO_BROKER, at the next epoch.

        As `partition_states.elect`; NotController if this broker may not say so.
        """
        state = await self._change(name, index, lambda state: elect(state, leader, is_unclean=is_unclean))
        if leader == NO_BROKER:
            log.info("%s-%d: has no leader from epoch %d on: %s", name.kafka, index, state.leader_epoch, why)
        else:
            log.info(
                "%s-%d: broker %d leads from epoch %d on: %s",
                name.kafka,
                index,
                leader,
                state.leader_epoch,
                why,
            )
        return state

    async def change_isr(
        self,
        name: TopicName,
        index: int,
        isr: Sequence[BrokerId],
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
    ) -> PartitionImage:
        """As `partition_states.change_isr`; NotController if this broker may not say so."""
        return await self._change(
            name, index, lambda state: change_isr(state, isr, leader_epoch, partition_epoch)
        )

    async def _change(self, name: TopicName, index: int, change: ChangeState) -> PartitionImage:
        epoch = self.epoch
        if epoch is None:
            raise NotController(f"broker {self._node_id} is not the controller")
        async with self._turns.of(name):
            while True:
                try:
                    return await self._try(name, index, change, epoch)
                except _Overtaken:
                    await self._check_epoch(epoch)

    async def _try(self, name: TopicName, index: int, change: ChangeState, epoch: int) -> PartitionImage:
        topic_path = paths.topic(name)
        stored = await self._store.get(topic_path)
        if stored is None:
            raise UnknownTopic(f"there is no topic '{name.kafka}'")
        topic = decode(stored.data, TopicDocument, topic_path)
        if not 0 <= index < len(topic.replicas):
            raise UnknownTopic(f"topic '{name.kafka}' has no partition {index}")
        path = paths.partition_states(topic.id, paths.page_of(index))
        value = await self._store.get(path)
        version = MUST_NOT_EXIST if value is None else value.version
        states = {} if value is None else decode(value.data, PartitionStatesDocument, path).states
        after = change(states.get(index) or new_state(topic.replicas[index]))
        document = PartitionStatesDocument(states | {index: after})
        try:
            await self._store.multi(
                [
                    Check(paths.CONTROLLER_EPOCH, epoch),
                    Check(topic_path, stored.version),
                    Put(path, encode(document), version),
                ]
            )
        except (Conflict, Exists) as error:
            raise _Overtaken from error
        await self._watcher.refresh(path)
        return partition_image(index, after)

    async def _check_epoch(self, epoch: int) -> None:
        value = await self._store.get(paths.CONTROLLER_EPOCH)
        if value is None or value.version != epoch:
            if self.epoch == epoch:
                self.epoch = None
            raise NotController(f"broker {self._node_id} was the controller at epoch {epoch} and is no more")


class _Overtaken(Exception):
    """Something else was written first."""
