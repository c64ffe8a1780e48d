"""Producer state: what each idempotent producer last wrote, to detect duplicates, gaps and zombies.

A producer numbers its records per partition.  For each producer id we keep its epoch and its last
five batches, as many as a client may have in flight:

    sequence      next expected          append
                  a batch we hold        duplicate: answer with the offset it has
                  anything else          OutOfOrderSequence
    epoch         older than ours        Fenced
                  newer                  must start at sequence 0

and, for transactions, where the producer's open transaction began and the epoch of the coordinator
that last closed one.

`check` and `check_end` decide before the write and change nothing; `update`, `complete` and `fence`
record what was written and never refuse, so recovery replays them alone.  Sequences wrap from 2^31 - 1 to 0.
"""

from collections import deque
from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

from anabranch.base.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from anabranch.records.batch import BatchHeader

KEPT_BATCHES = 5
NO_EPOCH = -1
LAST_EPOCH = (1 << 15) - 1  # there is none after it that an end could have


class WrittenBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & 0x7FFFFFFF if self.last_sequence >= 0 else -1

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "ended_at",
        "epoch",
        "producer_id",
        "txn_first_offset",
        "updated_ms",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[WrittenBatch] = deque(maxlen=KEPT_BATCHES)
        self.coordinator_epoch = -1
        self.ended_at = -1  # the offset of the last marker, if it came since the log was opened
        self.txn_first_offset: int | None = None
        self.updated_ms = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class Producers:
    """The producers of one partition."""

    __slots__ = ("_by_id", "_open", "aborted", "committed", "ending")

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}
        self._open: dict[int, int] = {}  # producer id -> first offset of its open transaction, ascending
        self.ending: deque[tuple[int, int]] = deque()
        """Transactions that have ended, until their markers are safe: offset of the marker, first offset."""
        self.committed = self.aborted = 0  # transactions, since the log was opened

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._by_id.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._by_id.get(producer_id)

    @property
    def first_open_transaction(self) -> int | None:
        """The offset below which every transaction is decided, None if none is open."""
        return next(iter(self._open.values())) if self._open else None

    @property
    def first_undecided(self) -> int | None:
        """The same, where a transaction counts as open until its marker is safe (`safe_below`)."""
        first = self.first_open_transaction
        for _, began in self.ending:
            if first is None or began < first:
                first = began
        return first

    def safe_below(self, high_watermark: int) -> None:
        """Markers below can be lost no more: what they ended is decided."""
        ending = self.ending
        while ending and ending[0][0] < high_watermark:
            ending.popleft()

    @property
    def open_transactions(self) -> int:
        return len(self._open)

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """Whether a client's batch may be appended.  The batch we hold already, if it is a duplicate."""
        producer = self.check_epoch(header)
        if producer is None:
            return None
        if producer.txn_first_offset is not None and not header.is_transactional:
            raise InvalidTransactionState(
                f"producer {header.producer_id} has a transaction open and sent records outside of it"
            )
        if header.producer_epoch > producer.epoch:
            if header.base_sequence != 0 and producer.epoch != NO_EPOCH:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} starts epoch {header.producer_epoch} "
                    f"with sequence {header.base_sequence}, not 0"
                )
            return None
        for written in producer.batches:
            if (
                written.first_sequence == header.base_sequence
                and written.last_sequence == header.last_sequence
            ):
                return written
        expected = (producer.last_sequence + 1) & 0x7FFFFFFF  # 0 if nothing was written in this epoch
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} is next"
            )
        return None

    def check_epoch(self, header: BatchHeader) -> Producer | None:
        """The producer of `header`'s batch, if known.  InvalidProducerEpoch if a newer one has written."""
        return self.check_producer(header.producer_id, header.producer_epoch)

    def check_producer(self, producer_id: int, epoch: int) -> Producer | None:
        """The same, by id and epoch."""
        producer = self._by_id.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {epoch}, epoch {producer.epoch} has written since"
            )
        return producer

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has written, in `epoch`, to a transaction that is not ended."""
        return producer_id in self._open and self._by_id[producer_id].epoch == epoch

    def last_end(self, producer_id: int) -> int:
        """Another number whenever a marker of the producer's has come meanwhile."""
        producer = self._by_id.get(producer_id)
        return -1 if producer is None else producer.ended_at

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """`header`'s batch, of a producer, is in the log from `base_offset`."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            producer = self._by_id[header.producer_id] = Producer(header.producer_id, header.producer_epoch)
        elif header.producer_epoch > producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.batches.append(
            WrittenBatch(
                header.last_sequence,
                base_offset + header.last_offset_delta,
                header.last_offset_delta,
                header.max_timestamp,
            )
        )
        producer.updated_ms = header.max_timestamp
        if header.is_transactional and producer.txn_first_offset is None:
            producer.txn_first_offset = base_offset
            self._open[header.producer_id] = base_offset

    def check_end(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, strict: bool = False
    ) -> None:
        """Whether a coordinator may end a transaction of `producer_id`.

        A `strict` end has a later epoch than what it ends.  In the epoch that a transaction is open in it is
        late, and that one is the next; if none is open it is the same end once more, which does no harm.
        """
        producer = self._by_id.get(producer_id)
        if producer is None:
            return
        is_late = strict and producer_epoch == producer.epoch != LAST_EPOCH and producer_id in self._open
        if producer_epoch < producer.epoch or is_late:
            raise InvalidProducerEpoch(
                f"a transaction of producer {producer_id} is ended for epoch {producer_epoch}, "
                f"epoch {producer.epoch} has written since"
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a coordinator of epoch {coordinator_epoch} ends a transaction of producer "
                f"{producer_id}, epoch {producer.coordinator_epoch} has done so since"
            )

    def fence(self, header: BatchHeader) -> Producer:
        """The producer of `header`'s batch, which is in the log, has its epoch or a later one."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            producer = self._by_id[header.producer_id] = Producer(header.producer_id, header.producer_epoch)
        elif header.producer_epoch > producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.updated_ms = header.max_timestamp
        return producer

    def complete(
        self, header: BatchHeader, base_offset: int, coordinator_epoch: int, *, aborted: bool
    ) -> CompletedTransaction | None:
        """A control batch ended the producer's transaction.  What it ended, None if none was open."""
        producer = self.fence(header)
        producer.coordinator_epoch = max(coordinator_epoch, producer.coordinator_epoch)
        producer.ended_at = base_offset
        first = producer.txn_first_offset
        producer.txn_first_offset = None
        self._open.pop(header.producer_id, None)
        if first is None:
            return None
        self.ending.append((base_offset, first))
        if aborted:
            self.aborted += 1
        else:
            self.committed += 1
        return CompletedTransaction(header.producer_id, first, base_offset, aborted)

    def restore(self, producer: Producer) -> None:
        self._by_id[producer.producer_id] = producer
        first = producer.txn_first_offset
        if first is not None:
            is_last = not self._open or first > next(reversed(self._open.values()))
            self._open[producer.producer_id] = first
            if not is_last:
                self._open = dict(sorted(self._open.items(), key=itemgetter(1)))

    def expire(self, older_than_ms: int) -> None:
        """Forget producers not heard from since `older_than_ms` that have no open transaction."""
        stale = [
            p.producer_id
            for p in self._by_id.values()
            if p.updated_ms < older_than_ms and p.txn_first_offset is None
        ]
        for producer_id in stale:
            del self._by_id[producer_id]
