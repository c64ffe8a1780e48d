"""Elector: chooses leaders as brokers come and go, while this broker is the controller.

    image: broker 2 is gone ─> what has a replica there, by the index ─> due ─┐
    image: broker 3 is back ─> what has no leader                     ─> due ─┼─> settle ─> few multis
    a new controller        ─> everything that is not as it should be ─> due ─┘

What is due is decided on the state that is written and the brokers that there are then (`elections`), so an
image that lags costs a look, never a wrong leader.  What could not be written, because the store is away,
stays due.

A broker that restarts too fast for anybody to see it gone has a higher epoch than the last controller went
by, which is written down for the next one (`/controller-brokers`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.base.errors import AnabranchError, Corrupt, NotController, NotFound, Unavailable
from anabranch.base.ids import BrokerId, TopicId
from anabranch.cluster.config import ControlConfig
from anabranch.cluster.elections import Brokers, brokers_of, elect_preferred, is_settled, settle
from anabranch.cluster.image_watcher import ImageWatcher
from anabranch.cluster.internal_replication import Factors, lacking, replicated
from anabranch.cluster.leader_balance import to_move_back
from anabranch.cluster.placement import Replicas
from anabranch.cluster.replica_index import Place, ReplicaIndex
from anabranch.cluster.seen_brokers import SeenBrokers
from anabranch.cluster.state_writer import StateWriter
from anabranch.meta.documents import PartitionState
from anabranch.meta.image import (
    NO_BROKER,
    BrokerImage,
    ClusterImage,
    ImageChange,
    Overrides,
    PartitionImage,
    TopicImage,
    appearance,
)

log = logging.getLogger(__name__)

_AGAIN_S = 0.5
_TOPICS_A_TURN = 500
_SETTLED_AT_ONCE = 2048


class Rules(NamedTuple):
    """What elections go by, as it is configured now."""

    config: Callable[[], ControlConfig] = ControlConfig
    allows_unclean: Callable[[Overrides], bool] = lambda overrides: (
        overrides.get("unclean.leader.election.enable", "").lower() == "true"
    )
    internal_factors: Callable[[], Factors] = dict


@dataclass(slots=True)
class _Due:
    """Why a partition is to be settled, and which of its brokers were gone since."""

    why: str
    gone: frozenset[BrokerId]
    emptied: frozenset[BrokerId] = frozenset()
    """Which came back with nothing of what they had."""


class Elector:
    def __init__(
        self, watcher: ImageWatcher, writer: StateWriter, seen: SeenBrokers, node_id: BrokerId, rules: Rules
    ) -> None:
        self._watcher = watcher
        self._writer = writer
        self._seen = seen
        self._node_id = node_id
        self._rules = rules
        self._index: ReplicaIndex | None = None
        """While this broker is the controller."""
        self._due: dict[Place, _Due] = {}
        self._may_lack = True
        """Internal topics may have fewer replicas than they could."""
        self._work = asyncio.Event()

    async def serve(self, is_in_office: Callable[[], bool]) -> None:
        """Be the controller until another one is."""
        loop = asyncio.get_running_loop()
        try:
            await self._take_over()
            balance_at = loop.time() + self._rules.config().imbalance_check_interval_seconds
            while is_in_office():
                self._work.clear()
                try:
                    await self._settle_all()
                    if self._may_lack:
                        await self._replicate()
                    if loop.time() >= balance_at:
                        balance_at = loop.time() + self._rules.config().imbalance_check_interval_seconds
                        await self._balance()
                except NotController as error:
                    log.info("broker %d: %s", self._node_id, error)
                    return
                except Unavailable as error:
                    log.warning("broker %d: leaders are not elected yet: %s", self._node_id, error)
                    await asyncio.sleep(_AGAIN_S)
                    self._work.set()
                except AnabranchError as error:  # the next controller would fare no better
                    log.error("broker %d: some leaders cannot be elected: %s", self._node_id, error)
                await self._rest(balance_at - loop.time())
        finally:
            self._index = None
            self._due.clear()

    def wake(self) -> None:
        """It may be over, or there is more to do."""
        self._work.set()

    @property
    def due(self) -> int:
        """How many partitions are to be settled still."""
        return len(self._due)

    async def _rest(self, most_s: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, most_s)):
                await self._work.wait()
        except TimeoutError:
            return

    # --- what is due

    async def _take_over(self) -> None:
        """Go over everything once."""
        image = self._watcher.image
        self._may_lack = True
        self._index = index = ReplicaIndex()
        index.apply(appearance(image))
        for start, topic in enumerate(list(image.topics.values())):
            self._look_at(topic, topic.partitions, "a new controller looked at it")
            if start % _TOPICS_A_TURN == _TOPICS_A_TURN - 1:
                await asyncio.sleep(0)
        for id in await self._restarted():
            broker = self._watcher.image.brokers.get(id)
            if broker is not None:
                self._broker_restarted(index, broker)

    async def _restarted(self) -> list[BrokerId]:
        while True:
            try:
                return await self._seen.restarted(self._watcher.image)
            except Unavailable as error:
                log.warning("broker %d: taking over as the controller waits: %s", self._node_id, error)
                await asyncio.sleep(_AGAIN_S)

    def image_changed(self, change: ImageChange) -> None:
        index = self._index
        if index is None:
            return
        index.apply(change)
        for before, after in change.topics:
            if after is None:
                continue
            self._may_lack |= after.is_internal and before is None
            known = 0 if before is None else before.partition_count
            if known < after.partition_count:
                self._look_at(after, after.partitions[known:], "it is new")
            self._written_come_due(before, after, change.new)
            if before is not None and before.config is not after.config:
                self._leaderless_due(index, after.id, "its configuration changed")
        old, new = change.old, change.new
        if old.default_broker_config is not new.default_broker_config or (
            old.broker_configs is not new.broker_configs
        ):
            self._leaderless_due(index, None, "the configuration of brokers changed")
        if old.brokers is not new.brokers:
            self._brokers_changed(index, old, new)
            self._work.set()
        if self._due or self._may_lack:
            self._work.set()

    def _brokers_changed(self, index: ReplicaIndex, old: ClusterImage, new: ClusterImage) -> None:
        for id in old.brokers.keys() - new.brokers.keys():
            self._broker_gone(index, id, f"broker {id} is gone")
        came = [id for id, now in new.brokers.items() if old.brokers.get(id) != now]
        for id in came:
            was, now = old.brokers.get(id), new.brokers[id]
            if (
                was is None or now.epoch != was.epoch
            ):  # it was gone, even if nobody decided anything meanwhile
                self._broker_restarted(index, now)
            elif now.gives_way and not was.gives_way:
                self._broker_gone(index, id, f"broker {id} gives way", is_gone=False)
        if came:
            why = f"broker {', '.join(map(str, came))} is there"
            self._leaderless_due(index, None, why)
            self._may_lack = True

    def look_again(self, let_in: Iterable[BrokerImage]) -> None:
        """These brokers were let into an ISR.  Those that went before that was written leave it again.

        When they went it did not concern that partition yet.
        """
        index = self._index
        if index is None:
            return
        for broker in let_in:
            now = self._watcher.image.brokers.get(broker.id)
            if now is None:
                self._broker_gone(index, broker.id, f"broker {broker.id} is gone")
            elif now.epoch != broker.epoch:
                self._broker_restarted(index, now)
        if self._due:
            self._work.set()

    def _broker_restarted(self, index: ReplicaIndex, broker: BrokerImage) -> None:
        if self._seen.has_lost_its_data(broker):
            log.warning(
                "broker %d: has another data folder than it had, and is in sync with nothing", broker.id
            )
            why = f"broker {broker.id} has another data folder"
            self._broker_gone(index, broker.id, why, is_emptied=True)
        else:
            self._broker_gone(index, broker.id, f"broker {broker.id} has restarted")

    def _broker_gone(
        self, index: ReplicaIndex, id: BrokerId, why: str, *, is_gone: bool = True, is_emptied: bool = False
    ) -> None:
        gone = frozenset((id,)) if is_gone else frozenset[BrokerId]()
        emptied = frozenset((id,)) if is_emptied else frozenset[BrokerId]()
        is_there = id in self._watcher.image.brokers
        for place in index.of(id):
            state = self._state(place)
            if state is not None and is_there and len(state.replicas) == 1 and id == state.leader:
                continue  # there is no other, and nothing that it could differ from
            if state is None or id in state.isr or id == state.leader:
                self._put(place, why, gone, emptied)

    def _leaderless_due(self, index: ReplicaIndex, topic: TopicId | None, why: str) -> None:
        for place in index.leaderless:
            if topic is None or place.topic == topic:
                self._put(place, why)

    def _written_come_due(self, before: TopicImage | None, topic: TopicImage, image: ClusterImage) -> None:
        """Those that nobody leads and somebody could, and those whose leader is gone.

        A broker that was away when that was decided may be back before it is written, and one that was there
        may have gone: nobody says so again.
        """
        there = image.brokers.keys()
        known = () if before is None else before.partitions
        for state in topic.partitions:
            if state.leader == NO_BROKER:
                if not there.isdisjoint(state.isr):
                    self._put(Place(topic.id, state.index), "a replica in sync is there")
            elif state.leader not in there and state not in known[state.index : state.index + 1]:
                self._put(Place(topic.id, state.index), f"broker {state.leader} is gone")

    def _look_at(self, topic: TopicImage, states: Iterable[PartitionImage], why: str) -> None:
        brokers = brokers_of(self._watcher.image)
        for state in states:
            if not is_settled(state, brokers):
                self._put(Place(topic.id, state.index), why)

    def _put(
        self,
        place: Place,
        why: str,
        gone: frozenset[BrokerId] = frozenset(),
        emptied: frozenset[BrokerId] = frozenset(),
    ) -> None:
        known = self._due.get(place)
        if known is not None:
            gone |= known.gone
            emptied |= known.emptied
        self._due[place] = _Due(why, gone, emptied)

    def _state(self, place: Place) -> PartitionImage | None:
        topic = self._watcher.image.topics_by_id.get(place.topic)
        return None if topic is None else topic.partitions[place.partition]

    # --- what is done

    async def _settle_all(self) -> None:
        while self._due:
            due, self._due = self._due, {}
            try:
                await self._settle(due)
            except (NotController, Unavailable):
                for place, one in due.items():
                    self._put(place, one.why, one.gone, one.emptied)
                raise
        await self._seen.note(self._watcher.image)

    async def _settle(self, due: dict[Place, _Due]) -> None:
        """A part at a time: leaders of the first are there before the last are decided."""
        outcomes: list[object] = []
        places = list(due)
        for start in range(0, len(places), _SETTLED_AT_ONCE):
            topics = self._watcher.image.topics_by_id
            asked = [
                self._writer.ask(
                    topic.name, place.partition, self._settling(topic, due[place]), due[place].why, topic.id
                )
                for place in places[start : start + _SETTLED_AT_ONCE]
                if (topic := topics.get(place.topic)) is not None
            ]
            outcomes += await asyncio.gather(*asked, return_exceptions=True)
        _raise_first(outcomes)

    def _settling(self, topic: TopicImage, due: _Due) -> Callable[[PartitionState], PartitionState]:
        def change(state: PartitionState) -> PartitionState:
            image = self._watcher.image
            there = image.brokers.keys()
            brokers = brokers_of(image, due.gone & there, due.emptied & there)
            config = image.topics_by_id.get(topic.id, topic).config
            return settle(state, brokers, is_unclean=self._rules.allows_unclean(config))

        return change

    async def _replicate(self) -> None:
        """Add the replicas that internal topics lack."""
        image = self._watcher.image
        self._may_lack = False
        why = "more brokers can have replicas of it"
        asked = [
            self._writer.ask(image.topics_by_id[topic].name, index, self._replicating(target), why, topic)
            for (topic, index), target in lacking(image, self._rules.internal_factors())
        ]
        try:
            _raise_first(await asyncio.gather(*asked, return_exceptions=True))
        except Unavailable:
            self._may_lack = True
            raise

    def _replicating(self, target: Replicas) -> Callable[[PartitionState], PartitionState]:
        return lambda state: replicated(state, target, self._watcher.image)

    async def _balance(self) -> None:
        """Elect preferred leaders where too many partitions of a broker are led by others."""
        config = self._rules.config()
        if not config.auto_leader_rebalance:
            return
        image = self._watcher.image
        why = "it is the preferred leader"
        asked = [
            self._writer.ask(image.topics_by_id[topic].name, index, self._preferring, why, topic)
            for topic, index in to_move_back(image, brokers_of(image), config.imbalance_percentage)
        ]
        _raise_first(await asyncio.gather(*asked, return_exceptions=True))

    def _preferring(self, state: PartitionState) -> PartitionState:
        return elect_preferred(state, steady_of(self._watcher.image)) or state


def steady_of(image: ClusterImage) -> frozenset[BrokerId]:
    """The brokers that may be given partitions to lead."""
    brokers: Brokers = brokers_of(image)
    return frozenset(filter(brokers.is_steady, image.brokers))


def _raise_first(outcomes: Iterable[object]) -> None:
    """What failed, unless it is that a topic was deleted meanwhile, or that its documents are damaged."""
    for outcome in outcomes:
        if isinstance(outcome, Corrupt):
            log.error("no leaders can be elected where a document cannot be read: %s", outcome)
        elif isinstance(outcome, AnabranchError) and not isinstance(outcome, NotFound):
            raise outcome
        if isinstance(outcome, BaseException) and not isinstance(outcome, AnabranchError):
            raise outcome
