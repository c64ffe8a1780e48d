"""Transactions looked at from outside: Pulsar's JSON, field by field.

Pulsar has a buffer of transactions for each topic and a log of pending acknowledgements for a subscription;
here the topic's own log is the one and `__subscription_state` the other, and what is told is what that comes
to.  Times of recovery are those at which the topic was opened.
"""

import msgspec

from anabranch.groups.transaction_ids import TxnId
from anabranch.groups.transaction_records import State, Transaction
from anabranch.partition.partition import Partition
from anabranch.partition.places import batch_at
from anabranch.partition.standing import producer_of, standing_of
from anabranch.subscriptions.subscription import Subscription
from anabranch.topics.message_ids import entry_before
from anabranch.topics.topic import Topic

READY = "Ready"
_STATUSES = {
    State.ONGOING: "OPEN",
    State.PREPARE_COMMIT: "COMMITTING",
    State.PREPARE_ABORT: "ABORTING",
    State.COMPLETE_COMMIT: "COMMITTED",
    State.COMPLETE_ABORT: "ABORTED",
}


class CoordinatorInfo(msgspec.Struct, rename="camel"):
    id: int
    broker_service_url: str


class CoordinatorStats(msgspec.Struct, rename="camel"):
    state: str
    least_sig_bits: int
    low_water_mark: int
    ongoing_txn_size: int
    recover_start_time: int
    recover_end_time: int


class InBuffer(msgspec.Struct, rename="camel"):
    """A transaction in a topic."""

    start_position: str | None
    aborted: bool


class InPendingAck(msgspec.Struct, rename="camel"):
    """A transaction in a subscription."""

    cumulative_ack_position: str | None


class BufferStats(msgspec.Struct, rename="camel"):
    state: str
    max_read_position: str
    last_snapshot_timestamps: int
    low_water_marks: dict[int, int] | None
    ongoing_txn_size: int
    recover_start_time: int
    recover_end_time: int
    total_aborted_transactions: int


class PendingAckStats(msgspec.Struct, rename="camel"):
    state: str
    low_water_marks: dict[int, int] | None
    ongoing_txn_size: int
    recover_start_time: int
    recover_end_time: int


class TransactionMetadata(msgspec.Struct, rename="camel"):
    txn_id: str
    status: str
    open_timestamp: int
    timeout_at: int
    produced_partitions: dict[str, InBuffer]
    acked_partitions: dict[str, dict[str, InPendingAck]]


class PositionInPendingAck(msgspec.Struct):
    state: str


class LedgerStats(msgspec.Struct, rename="camel"):
    """Of the partitions that keep something, as if they were a managed ledger."""

    entries_added_counter: int
    number_of_entries: int
    total_size: int
    current_ledger_entries: int
    current_ledger_size: int
    waiting_cursors_count: int
    last_confirmed_entry: str
    state: str


class LogStats(msgspec.Struct, rename="camel"):
    managed_ledger_name: str
    managed_ledger_internal_stats: LedgerStats


def in_buffer(partition: Partition, txn: TxnId) -> InBuffer:
    producer_id, epoch = txn.producer
    producer = producer_of(partition, producer_id)
    start = None
    if producer is not None and producer.epoch == epoch and producer.txn_first_offset is not None:
        start = f"{partition.epoch_of(producer.txn_first_offset)}:{producer.txn_first_offset}"
    return InBuffer(start, _is_aborted(partition, producer_id, epoch))


def _is_aborted(partition: Partition, producer_id: int, epoch: int) -> bool:
    for aborted in partition.aborted_between(partition.log_start, partition.log_end):
        if aborted.producer_id == producer_id:
            found = batch_at(partition, aborted.first_offset)
            if found is not None and found.header.producer_epoch == epoch:
                return True
    return False


def in_pending_ack(topic: Topic, subscription: Subscription, txn: TxnId) -> InPendingAck:
    up_to = subscription.reading.pending.acknowledged(txn).up_to
    if up_to is None:
        return InPendingAck(None)
    ledger, entry = entry_before(topic.partition, up_to)
    return InPendingAck(f"{ledger}:{entry}")


def buffer_stats(topic: Topic, low_water_marks: dict[int, int] | None) -> BufferStats:
    partition = topic.partition
    ledger, entry, _ = topic.last_message()
    return BufferStats(
        state=READY,
        max_read_position=f"{ledger}:{entry}",
        last_snapshot_timestamps=0,
        low_water_marks=low_water_marks,
        ongoing_txn_size=standing_of(partition).open_transactions,
        recover_start_time=topic.opened_ms,
        recover_end_time=topic.opened_ms,
        total_aborted_transactions=len(partition.aborted_between(partition.log_start, partition.log_end)),
    )


def pending_ack_stats(
    topic: Topic, subscription: Subscription, low_water_marks: dict[int, int] | None
) -> PendingAckStats:
    return PendingAckStats(
        state=READY,
        low_water_marks=low_water_marks,
        ongoing_txn_size=len(subscription.reading.pending),
        recover_start_time=topic.opened_ms,
        recover_end_time=topic.opened_ms,
    )


def position_in_pending_ack(
    topic: Topic, subscription: Subscription, entry: int, batch_index: int | None
) -> PositionInPendingAck:
    """What has become of a message, or of an entry, as far as transactions are concerned."""
    found = batch_at(topic.partition, entry) if topic.start <= entry < topic.end else None
    end = entry + 1 if found is None else found.header.last_offset + 1
    if end <= subscription.cursor.mark_delete:
        return PositionInPendingAck("MarkDelete")
    if batch_index is not None:
        if not 0 <= batch_index < end - entry:
            return PositionInPendingAck("InvalidPosition")
        entry, end = entry + batch_index, entry + batch_index + 1
    is_held = subscription.reading.pending.holds(entry, end)
    return PositionInPendingAck("PendingAck" if is_held else "NotInPendingAck")


def metadata(
    txn: TxnId,
    found: Transaction,
    produced: dict[str, InBuffer],
    acked: dict[str, dict[str, InPendingAck]],
) -> TransactionMetadata:
    return TransactionMetadata(
        txn_id=str(txn),
        status=_STATUSES[found.state],
        open_timestamp=found.started_ms,
        timeout_at=found.timeout_ms,
        produced_partitions=produced,
        acked_partitions=acked,
    )


def log_stats(name: str, partitions: list[Partition]) -> LogStats:
    entries = sum(partition.log_end - partition.log_start for partition in partitions)
    size = sum(partition.size_bytes for partition in partitions)
    newest = max(partitions, key=lambda partition: partition.log_end, default=None)
    last = "-1:-1" if newest is None else f"{newest.leader_epoch}:{newest.log_end - 1}"
    return LogStats(name, LedgerStats(entries, entries, size, entries, size, 0, last, "LedgerOpened"))
