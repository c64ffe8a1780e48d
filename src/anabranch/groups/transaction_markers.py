"""Markers: the ends of a transaction, written to every partition that took part.

A marker for `__consumer_offsets` goes by the group coordinator, since the offsets that were pending there
count from then on, or are forgotten.  What Pulsar's transactions have acknowledged is in partitions of
`__subscription_state`: there is no marker there, the subscriptions are told.  A partition that is gone needs
none.

Markers of a transaction are written until all are there, also after a restart, so a partition may get one
twice: the second finds nothing open and changes nothing.  That a late one does not end the transaction
after is the partition's to see (`strict`, by the epoch that the second protocol moves with each end).

One that is not acknowledged within `TIMEOUT_S` is written again.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from anabranch.base.errors import AnabranchError, InvalidProducerEpoch, TimedOut, Unavailable, UnknownTopic
from anabranch.base.seldom import Seldom
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.effects import Producer
from anabranch.groups.subscription_states import SUBSCRIPTION_TOPIC
from anabranch.groups.transaction_records import State, Transaction
from anabranch.groups.transactions import EPOCH_BUMP
from anabranch.partition.host import PartitionHost
from anabranch.records.control import Marker

_trouble = Seldom(logging.getLogger(__name__), 10.0)

TIMEOUT_S = 30.0  # Kafka's request.timeout.ms, which brokers give each other for markers


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


class End(NamedTuple):
    """How a producer's transaction ends."""

    producer: Producer
    marker: Marker
    strict: bool
    """Refuse it where the producer has a transaction open in this very epoch: that is the next one."""


def end_of(prepared: Transaction, coordinator_epoch: int) -> End:
    commit = prepared.state is State.PREPARE_COMMIT
    return End(
        Producer(prepared.producer_id, prepared.epoch),
        Marker(commit, coordinator_epoch),
        prepared.client_version >= EPOCH_BUMP,
    )


class Markers:
    def __init__(self, host: PartitionHost, offsets: TransactionalOffsets) -> None:
        self._host = host
        self._offsets = offsets
        self.subscriptions: SubscriptionEnds = NoSubscriptions()

    async def write_all(self, prepared: Transaction, coordinator_epoch: int) -> bool:
        """Write the markers of a transaction.  Whether every partition that needs one has it now."""
        end = end_of(prepared, coordinator_epoch)
        waiting: list[asyncio.Future[None]] = []
        written = True
        for topic, index in sorted(prepared.partitions):
            try:
                acknowledged = await self.append(topic, index, end)
            except (AnabranchError, OSError) as error:
                written &= _is_settled(topic, index, error)
            else:
                if acknowledged is not None:
                    waiting.append(acknowledged)
        return all(outcome is None for outcome in await outcomes(waiting)) and written

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


async def outcomes(waiting: Sequence["asyncio.Future[None]"]) -> list[BaseException | None]:
    """What became of acknowledgements: None, what was wrong, TimedOut if that is not known in time."""
    if waiting:
        await asyncio.wait(waiting, timeout=TIMEOUT_S)
    return [_outcome(acknowledged) for acknowledged in waiting]


def _outcome(acknowledged: "asyncio.Future[None]") -> BaseException | None:
    if not acknowledged.done():
        acknowledged.add_done_callback(_outcome)  # or the loop would complain that nobody has heard it
        return TimedOut(f"not acknowledged within {TIMEOUT_S:.0f} s")
    if acknowledged.cancelled():
        return Unavailable("the partition is not served here any more")
    return acknowledged.exception()


def _is_settled(topic: str, index: int, error: Exception) -> bool:
    """Whether a partition that refused a marker needs none."""
    if isinstance(error, UnknownTopic):
        return True
    if isinstance(error, InvalidProducerEpoch):
        # A later epoch has written there, which it could not before this marker was there.
        _trouble.warning("%s-%d: a transaction's marker is not needed any more: %s", topic, index, error)
        return True
    _trouble.warning(
        "%s-%d: a transaction's marker could not be written, tried again soon: %s", topic, index, error
    )
    return False
