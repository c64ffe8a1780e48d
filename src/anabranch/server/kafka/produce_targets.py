"""Produce targets: the partitions of a request's batches, and which batches are in a transaction.

A batch of a transaction may be stored if its partition is in it.  While its producer has one open there the
partition knows; other batches are in doubt, and the coordinator is asked (`joining`).

Whoever waits, for an answer or for a batch to be unpacked, may find the transaction ended.  A marker of the
second protocol fences what is late by its epoch; in the first the partition must have seen no end since.
"""

import struct
from typing import NamedTuple

from anabranch.base.errors import InvalidTransactionState
from anabranch.groups.effects import Producer
from anabranch.groups.transaction_records import TopicPartition
from anabranch.partition.partition import Partition
from anabranch.records.batch import HEADER_SIZE, TRANSACTIONAL
from anabranch.server.kafka import joining
from anabranch.server.kafka.joining import Joining
from anabranch.server.kafka.registry import RequestContext
from anabranch.wire.kafka.current_leader import CurrentLeader
from anabranch.wire.kafka.produce import ProducePartition
from anabranch.wire.kafka.schema import ErrorCode

_ATTRIBUTES_LOW_BYTE = 22
_PRODUCER = struct.Struct(">qh")
_PRODUCER_AT = 43
_FIRST_ABORTABLE = 11
_FIRST_ADDED = 12
_NOT_IN = "the producer has no transaction open that the partition is in"
LATER = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


class Target(NamedTuple):
    """Where one batch goes, or why it cannot."""

    part: ProducePartition
    partition: Partition | None
    error: int
    message: str | None
    topic: str = ""
    leader: CurrentLeader | None = None

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.part.partition


Topics = list[tuple[bytes, list[Target]]]
Ends = dict[TopicPartition, int]
"""By partition, the last end of a transaction of the batch's producer."""


def is_transactional(records: memoryview | None) -> bool:
    return (
        records is not None
        and len(records) >= HEADER_SIZE
        and bool(records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL)
    )


def producer_of(records: memoryview) -> Producer:
    return Producer(*_PRODUCER.unpack_from(records, _PRODUCER_AT))


def in_doubt(topics: Topics) -> dict[TopicPartition, Producer]:
    """Transactional batches whose producer has, as far as the partition knows, no transaction open."""
    return {
        target.place: producer
        for _, targets in topics
        for target in targets
        if target.partition is not None
        and target.part.records is not None
        and is_transactional(target.part.records)
        and not target.partition.has_open_transaction(*(producer := producer_of(target.part.records)))
    }


def verified(
    topics: Topics, doubtful: dict[TopicPartition, Producer], id: str, ctx: RequestContext
) -> Topics:
    """The same, less the batches of partitions that are not in their producer's transaction."""
    if not ctx.services.config.current.transactions.verify_partitions:
        return topics
    return _allowed(topics, joining.look(ctx.services.participation, id, doubtful, _way(ctx)))


async def verified_elsewhere(
    topics: Topics, doubtful: dict[TopicPartition, Producer], id: str, ctx: RequestContext
) -> Topics:
    """The same, asked of a coordinator on another broker."""
    if not ctx.services.config.current.transactions.verify_partitions:
        return topics
    return _allowed(topics, await joining.verify(ctx.services.participation, id, doubtful, _way(ctx)))


def _way(ctx: RequestContext) -> Joining:
    return Joining.ABORTABLE if ctx.version >= _FIRST_ABORTABLE else Joining.VERIFIED


def _allowed(topics: Topics, codes: dict[TopicPartition, ErrorCode]) -> Topics:
    return without(topics, {place: as_told(code) for place, code in codes.items() if code})


def ends_before(topics: Topics, id: str | None, version: int) -> Ends:
    """What has ended, before anybody waits.  Nothing where epochs fence what is late."""
    if id is None or version >= _FIRST_ADDED:
        return {}
    return {
        target.place: target.partition.last_end(producer_of(target.part.records).producer_id)
        for _, targets in topics
        for target in targets
        if target.partition is not None and is_transactional(target.part.records)
        if target.part.records is not None
    }


def check_still_in(target: Target, producer: Producer, ends: Ends) -> None:
    """The transaction may have ended meanwhile: the batch must not open another."""
    assert target.partition is not None
    before = ends.get(target.place)
    if before is not None and target.partition.last_end(producer.producer_id) != before:
        raise InvalidTransactionState("the transaction ended before its records were stored")


def without(topics: Topics, codes: dict[TopicPartition, ErrorCode]) -> Topics:
    return [
        (
            name,
            [
                target._replace(partition=None, error=codes[target.place], message=_NOT_IN)
                if target.place in codes
                else target
                for target in targets
            ],
        )
        for name, targets in topics
    ]


def as_told(code: ErrorCode) -> ErrorCode:
    """What a producer that was refused for a moment tries again after, whatever its age."""
    if code in LATER or code == ErrorCode.concurrent_transactions:
        return ErrorCode.not_enough_replicas
    return code
