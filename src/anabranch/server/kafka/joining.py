"""Whether what a producer sends belongs to its transaction: asked for Produce and TxnOffsetCommit.

Without the question a batch that was late would open a transaction that nobody ends, and readers would wait
for it forever (KIP-890).  What is asked, and which refusals a client understands, goes by its version:

    version of Produce   of TxnOffsetCommit
    up to 10             up to 3              is the partition in the transaction?  INVALID_TXN_STATE if not
    11                   4                    the same, TRANSACTION_ABORTABLE if not
    from 12              from 5               the second protocol: the partition is added
"""

from collections.abc import Iterable
from enum import IntEnum

from anabranch.base.errors import AnabranchError
from anabranch.groups.effects import Producer
from anabranch.groups.transaction_coordinator import TransactionCoordinator
from anabranch.groups.transaction_records import TopicPartition
from anabranch.groups.transactions import EPOCH_BUMP
from anabranch.server.kafka.errors import code_of
from anabranch.wire.kafka.schema import ErrorCode


class Joining(IntEnum):
    """What a client's version lets the broker do for it."""

    VERIFIED = 0
    ABORTABLE = 1
    ADDED = 2


async def add(
    transactions: TransactionCoordinator,
    transactional_id: str,
    producer: Producer,
    partitions: Iterable[TopicPartition],
) -> ErrorCode:
    """Bring `partitions` into the producer's transaction."""
    try:
        code = await transactions.add(transactional_id, producer, partitions, EPOCH_BUMP)
    except AnabranchError as error:
        code = code_of(error)
    return _as_told(code, Joining.ADDED)


def verify(
    transactions: TransactionCoordinator,
    transactional_id: str,
    producer: Producer,
    partition: TopicPartition,
    joining: Joining,
) -> ErrorCode:
    """Whether `partition` is in the producer's transaction."""
    try:
        code = transactions.verify(transactional_id, producer, (partition,))[partition]
    except AnabranchError as error:
        code = code_of(error)
    return _as_told(code, joining)


def _as_told(code: ErrorCode, joining: Joining) -> ErrorCode:
    if code == ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code == ErrorCode.transaction_abortable and joining is Joining.VERIFIED:
        return ErrorCode.invalid_txn_state
    return code
