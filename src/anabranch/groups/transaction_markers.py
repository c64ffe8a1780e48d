"""Markers: the ends of a transaction, written to every partition that took part.

    led here       appended, and waited for
    led elsewhere  sent to its leader (`marker_queues`)

A marker for `__consumer_offsets` goes by the group coordinator, since the offsets that were pending there
count from then on, or are forgotten.  What Pulsar's transactions have acknowledged is in partitions of
`__subscription_state`: there is no marker there, the subscriptions are told.  A partition needs none once the
image, read again, has its topic no more: as the coordinator first saw it, by its id.

Markers of a transaction are written until all are there, also after a restart, so a partition may get one
twice: the second finds nothing open and changes nothing.  The partition sees to it that a late one does not
end the next transaction (`strict`, by the epoch that the second protocol moves with each end).

A coordinator that was replaced is told so by partitions that have heard of its successor, which writes the
markers by then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol
from uuid import UUID

from anabranch.base.errors import (
    AnabranchError,
    InvalidProducerEpoch,
    NotOwner,
    TimedOut,
    TransactionCoordinatorFenced,
    Unavailable,
    UnknownTopic,
)
from anabranch.base.seldom import Seldom
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.effects import Producer
from anabranch.groups.marker_queues import TIMEOUT_S, End, MarkerQueues
from anabranch.groups.other_brokers import heard
from anabranch.groups.subscription_states import SUBSCRIPTION_TOPIC
from anabranch.groups.transaction_records import State, TopicPartition, Transaction
from anabranch.groups.transactions import EPOCH_BUMP
from anabranch.partition.host import PartitionHost
from anabranch.records.control import Marker

_trouble = Seldom(logging.getLogger(__name__), 10.0)


class TransactionalOffsets(Protocol):
    """What markers need of the group coordinator."""

    def end_transaction(
        self,
        partition: int,
        producer: Producer,
        coordinator_epoch: int,
        *,
        commit: bool,
        strict: bool = False,
    ) -> "asyncio.Future[None] | None":
        """End `producer`'s transaction in a partition of `__consumer_offsets`."""


class SubscriptionEnds(Protocol):
    """What markers need of subscriptions."""

    async def end(self, index: int, producer_id: int, *, commit: bool) -> None:
        """End the producer's transaction in the subscriptions of a partition of `__subscription_state`."""


class NoSubscriptions:
    """Of a broker that only Kafka's clients use."""

    async def end(self, index: int, producer_id: int, *, commit: bool) -> None:
        """There is nothing to end."""


def end_of(prepared: Transaction, coordinator_epoch: int) -> End:
    commit = prepared.state is State.PREPARE_COMMIT
    return End(
        Producer(prepared.producer_id, prepared.epoch),
        Marker(commit, coordinator_epoch),
        prepared.client_version >= EPOCH_BUMP,
    )


class Writing:
    """The markers of one end: what became of each so far."""

    def __init__(self, end: End, prepared: "asyncio.Future[None] | None" = None) -> None:
        """`prepared` is done once nobody can lose that it is to end so; before no marker is written."""
        self.end = end
        self.prepared = prepared
        self.places: dict[TopicPartition, asyncio.Future[None] | None] = {}
        """Those that are on their way, and None for those that need nothing more."""
        self.topic_ids: dict[str, UUID] = {}


class Markers:
    def __init__(
        self,
        host: PartitionHost,
        offsets: TransactionalOffsets,
        elsewhere: MarkerQueues | None = None,
        is_gone: Callable[[str, int], Awaitable[bool]] | None = None,
    ) -> None:
        """`is_gone` tells, having read the image again, whether a partition of a topic is there no more."""
        self._host = host
        self._offsets = offsets
        self._elsewhere = elsewhere
        self._is_gone = is_gone
        self.subscriptions: SubscriptionEnds = NoSubscriptions()

    async def write_all(self, prepared: Transaction, writing: Writing, most_s: float = TIMEOUT_S) -> bool:
        """Write the markers of a transaction that `writing` has not got; whether all are there now.

        Those that are on their way when `most_s` is over stay so.  TransactionCoordinatorFenced if another
        coordinator has the transaction.
        """
        for place in sorted(prepared.partitions):
            if place not in writing.places:
                await self._begin(place, writing)
        waiting = [one for one in writing.places.values() if one is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=most_s)
        for place, acknowledged in list(writing.places.items()):
            if acknowledged is not None and acknowledged.done():
                self._note(place, writing, _outcome(acknowledged))
        return len(writing.places) == len(prepared.partitions) and not any(writing.places.values())

    def close(self) -> None:
        if self._elsewhere is not None:
            self._elsewhere.close()

    async def _begin(self, place: TopicPartition, writing: Writing) -> None:
        topic = self._host.find(place[0])
        if topic is not None and writing.topic_ids.setdefault(place[0], topic.topic_id) != topic.topic_id:
            writing.places[place] = None  # it was deleted, and another has its name
            return
        try:
            acknowledged = await self._append_anywhere(place, writing.end)
        except UnknownTopic as error:
            if self._is_gone is None or await self._is_gone(*place):
                writing.places[place] = None
            else:
                self._note(place, writing, error)
        except (AnabranchError, OSError) as error:
            self._note(place, writing, error)
        else:
            if acknowledged is not None:
                acknowledged.add_done_callback(heard)
            writing.places[place] = acknowledged

    async def _append_anywhere(self, place: TopicPartition, end: End) -> "asyncio.Future[None] | None":
        try:
            return await self.append(*place, end)
        except NotOwner:
            if self._elsewhere is None:
                raise
            return self._elsewhere.send(place, end)

    def _note(self, place: TopicPartition, writing: Writing, error: BaseException | None) -> None:
        """What became of a marker: one that is not there goes out again the next time."""
        if isinstance(error, TransactionCoordinatorFenced):
            raise error
        if error is None or _is_settled(*place, error):
            writing.places[place] = None
        else:
            writing.places.pop(place, None)

    async def append(self, topic: str, index: int, end: End) -> "asyncio.Future[None] | None":
        """Write a marker.  What is still to be waited for, if anything."""
        if topic == SUBSCRIPTION_TOPIC:
            await self.subscriptions.end(index, end.producer.producer_id, commit=end.marker.commit)
            return None
        partition = self._host.partition(topic, index)
        if topic != OFFSETS_TOPIC:
            return partition.end_transaction(*end.producer, end.marker, strict=end.strict).acknowledged
        return self._offsets.end_transaction(
            index,
            end.producer,
            end.marker.coordinator_epoch,
            commit=end.marker.commit,
            strict=end.strict,
        )


async def outcomes(
    waiting: Sequence["asyncio.Future[None]"], most_s: float = TIMEOUT_S
) -> list[BaseException | None]:
    """What became of acknowledgements: None, what was wrong, TimedOut if that is not known in time."""
    if waiting:
        await asyncio.wait(waiting, timeout=most_s)
    return [_outcome(acknowledged) for acknowledged in waiting]


def _outcome(acknowledged: "asyncio.Future[None]") -> BaseException | None:
    if not acknowledged.done():
        acknowledged.add_done_callback(heard)
        return TimedOut("not acknowledged in time")
    if acknowledged.cancelled():
        return Unavailable("the partition is not served here any more")
    return acknowledged.exception()


def _is_settled(topic: str, index: int, error: BaseException) -> bool:
    """Whether a partition that refused a marker needs none."""
    if isinstance(error, InvalidProducerEpoch):
        # A later epoch has written there, which it could not before this marker was there.
        _trouble.warning("%s-%d: a transaction's marker is not needed any more: %s", topic, index, error)
        return True
    _trouble.warning(
        "%s-%d: a transaction's marker could not be written, tried again soon: %s", topic, index, error
    )
    return False
