"""Producer state: what each idempotent producer last wrote, to detect duplicates, gaps and zombies.

A producer numbers its records per partition.  For each producer id we keep its epoch and its last
batches, of which the newest five are looked at, as many as a client may have in flight:

    sequence      next expected          append
                  a batch we hold        duplicate: answer with the offset it has
                  anything else          OutOfOrderSequence
    epoch         older than ours        Fenced
                  newer                  must start at sequence 0

and, for transactions, where the producer's open transaction began and the epoch of the coordinator
that last closed one.

`check` and `check_end` decide before the write and change nothing; `update`, `complete` and `fence`
record what was written and never refuse, so recovery replays them alone.  Sequences wrap from 2^31 - 1 to 0.

A log whose end is taken away wants them `as_of` its new one.  Batches and open transactions say by their
offsets what goes; of what says nothing (new producers, new epochs, markers) what was before is kept until the
high watermark is beyond it.  One more batch than clients have in flight is kept, so that of those who wrote
what was not replicated the one before is known.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from anabranch.base.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from anabranch.records.batch import BatchHeader

KEPT_BATCHES = 6
_IN_FLIGHT = 5
_MOST_CHANGES = 4096  # that can be undone
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
        "lacks_batches",
        "producer_id",
        "txn_first_offset",
        "updated_ms",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[WrittenBatch] = deque(maxlen=KEPT_BATCHES)
        self.lacks_batches = False  # of this epoch there were some before them, though there is room for more
        self.coordinator_epoch = -1
        self.ended_at = -1  # the offset of the last marker, if it came since the log was opened
        self.txn_first_offset: int | None = None
        self.updated_ms = -1

    def begin(self, epoch: int) -> None:
        """It goes on in a later epoch."""
        self.epoch = epoch
        self.batches.clear()
        self.lacks_batches = False

    def copy(self) -> "Producer":
        copy = Producer(self.producer_id, self.epoch)
        copy.batches.extend(self.batches)
        copy.lacks_batches = self.lacks_batches
        copy.coordinator_epoch = self.coordinator_epoch
        copy.ended_at = self.ended_at
        copy.txn_first_offset = self.txn_first_offset
        copy.updated_ms = self.updated_ms
        return copy

    def as_of(self, end: int) -> "Producer | None":
        """Without the batches from `end` on; None if the one before these is not known any more."""
        kept = [batch for batch in self.batches if batch.last_offset < end]
        lacks_batches = self.lacks_batches or len(self.batches) == KEPT_BATCHES
        if lacks_batches and not kept:
            return None
        earlier = self.copy()
        earlier.batches.clear()
        earlier.batches.extend(kept)
        earlier.lacks_batches = lacks_batches
        if kept and kept[-1].last_offset > self.ended_at:
            earlier.updated_ms = kept[-1].timestamp
        if self.txn_first_offset is not None and self.txn_first_offset >= end:
            earlier.txn_first_offset = None
        return earlier

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


class _Change(NamedTuple):
    """What does not show in a producer as it is."""

    offset: int
    producer_id: int
    before: Producer | None
    """None if there was none."""


class Producers:
    """The producers of one partition."""

    __slots__ = ("_by_id", "_changes", "_open", "aborted", "committed", "ending", "known_from")

    def __init__(self) -> None:
        self.known_from = 0
        """From this offset on they are known `as_of` any."""
        self._changes: deque[_Change] = deque()  # from there on
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
        changes = self._changes
        while changes and changes[0].offset < high_watermark:
            self.known_from = changes.popleft().offset + 1

    def as_of(self, end: int) -> "Producers | None":
        """As they were when the log ended at `end`; None if that is not known any more."""
        if end < self.known_from:
            return None
        were: dict[int, Producer | None] = dict(self._by_id)
        for change in reversed(self._changes):
            if change.offset < end:
                break
            were[change.producer_id] = change.before
        earlier = Producers()
        for producer_id, producer in were.items():
            if producer is not None and producer.last_offset >= end:
                producer = producer.as_of(end)
                if producer is None:
                    return None
            if producer is not None:
                earlier._by_id[producer_id] = producer
        first_offsets = ((p.producer_id, p.txn_first_offset) for p in earlier)
        began = [(producer_id, first) for producer_id, first in first_offsets if first is not None]
        earlier._open = dict(sorted(began, key=itemgetter(1)))
        earlier.ending.extend(each for each in self.ending if each[0] < end)
        earlier._changes.extend(change for change in self._changes if change.offset < end)
        earlier.known_from = self.known_from
        return earlier

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
        expected = (producer.last_sequence + 1) & 0x7FFFFFFF  # 0 if nothing was written in this epoch
        if header.base_sequence == expected:
            return None
        for written in islice(reversed(producer.batches), _IN_FLIGHT):
            if (
                written.first_sequence == header.base_sequence
                and written.last_sequence == header.last_sequence
            ):
                return written
        raise OutOfOrderSequence(
            f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} is next"
        )

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
        if producer is None or header.producer_epoch > producer.epoch:
            producer = self.fence(header, base_offset)
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

    def fence(self, header: BatchHeader, base_offset: int) -> Producer:
        """The producer of `header`'s batch, in the log from `base_offset`, has its epoch or a later one."""
        producer = self._by_id.get(header.producer_id)
        self._note_before(header.producer_id, base_offset, producer)
        if producer is None:
            producer = self._by_id[header.producer_id] = Producer(header.producer_id, header.producer_epoch)
        elif header.producer_epoch > producer.epoch:
            producer.begin(header.producer_epoch)
        producer.updated_ms = header.max_timestamp
        return producer

    def _note_before(self, producer_id: int, base_offset: int, producer: Producer | None) -> None:
        """Keep what is about to change at `base_offset`."""
        before = None if producer is None else producer.copy()
        self._changes.append(_Change(base_offset, producer_id, before))
        if len(self._changes) > _MOST_CHANGES:
            self.known_from = self._changes.popleft().offset + 1

    def complete(
        self, header: BatchHeader, base_offset: int, coordinator_epoch: int, *, aborted: bool
    ) -> CompletedTransaction | None:
        """A control batch ended the producer's transaction.  What it ended, None if none was open."""
        producer = self.fence(header, base_offset)
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
