"""Transaction verification: whether what a producer sends belongs to its transaction.

Without it a late batch would open a transaction that nobody ends, and readers would wait for it forever
(KIP-890).  The coordinator may be on another broker.  What is asked, and which refusals a client understands,
goes by its version:

    version of Produce   of TxnOffsetCommit
    up to 10             up to 3              is the partition in the transaction?  INVALID_TXN_STATE if not
    11                   4                    the same, TRANSACTION_ABORTABLE if not
    from 12              from 5               the second protocol: the partition is added
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from anabranch.base.errors import AnabranchError
from anabranch.groups.effects import Producer
from anabranch.groups.participation import Codes, Participation
from anabranch.groups.transaction_records import TopicPartition
from anabranch.server.kafka.errors import code_of
from anabranch.wire.kafka.schema import ErrorCode


class Joining(IntEnum):
    """What a client's version lets the broker do for it."""

    VERIFIED = 0
    ABORTABLE = 1
    ADDED = 2


async def add(
    participation: Participation,
    transactional_id: str,
    producer: Producer,
    partitions: Iterable[TopicPartition],
) -> ErrorCode:
    """Bring `partitions` into the producer's transaction."""
    try:
        code = await participation.add(transactional_id, producer, partitions)
    except AnabranchError as error:
        code = code_of(error)
    return _as_told(code, Joining.ADDED)


def look(
    participation: Participation,
    transactional_id: str,
    producers: Mapping[TopicPartition, Producer],
    joining: Joining,
) -> Codes:
    """Whether each partition is in the transaction of its producer, where the coordinator is here."""
    found: Codes = {}
    for producer, partitions in _by_producer(producers).items():
        try:
            found |= participation.look(transactional_id, producer, partitions)
        except AnabranchError as error:
            found |= dict.fromkeys(partitions, code_of(error))
    return {partition: _as_told(code, joining) for partition, code in found.items()}


async def verify(
    participation: Participation,
    transactional_id: str,
    producers: Mapping[TopicPartition, Producer],
    joining: Joining,
) -> Codes:
    """The same wherever it is."""
    found: Codes = {}
    for producer, partitions in _by_producer(producers).items():
        try:
            found |= await participation.verify(transactional_id, producer, partitions)
        except AnabranchError as error:
            found |= dict.fromkeys(partitions, code_of(error))
    return {partition: _as_told(code, joining) for partition, code in found.items()}


def _by_producer(producers: Mapping[TopicPartition, Producer]) -> dict[Producer, list[TopicPartition]]:
    found: dict[Producer, list[TopicPartition]] = {}  # of more than one at most one is right
    for partition, producer in producers.items():
        found.setdefault(producer, []).append(partition)
    return found


def _as_told(code: ErrorCode, joining: Joining) -> ErrorCode:
    if code == ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code == ErrorCode.transaction_abortable and joining is Joining.VERIFIED:
        return ErrorCode.invalid_txn_state
    return code
