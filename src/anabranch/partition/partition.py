"""A partition as the broker that leads it serves it: validation, the log, the high watermark, waiters.

    append  ─> validate ─> producer check ─> LocalLog ─> HighWatermark ─> acknowledgements, waiters
    append_own, end_transaction: what coordinators write, which is made here and not validated
    read    ─> limit (HW, LSO or log end) ─> LocalLog ─> a range of a file

This is the leader's role over a `Replica`.  It lasts from an election until `resign`, which closes no file,
tells everybody who waits why, and is final: the next election makes a new one.  Whoever holds on to it is
refused with that reason, so nothing that was asked of one leader is done by another.

An append is acknowledged at the lesser of two places: the high watermark, if all replicas were asked for
(acks=all), and what was flushed, if `flush.messages` asks for that.

Where there are several replicas, the leader takes nothing and acknowledges nothing while it is in doubt
whether another one was elected (`certainty`); readers read on.

All of it is synchronous: between the check of a batch and its place in the log nothing else runs.
What takes long is moved out beforehand: a batch that must be unpacked (how much is inside is not known
before) or recompressed and is large is `prepare`d in a thread.  Those threads are few, which bounds the
memory that batches can ask for by being larger inside.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from anabranch.base.errors import (
    AnabranchError,
    DiskFailed,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotOwner,
    OffsetOutOfRange,
    PolicyViolation,
    TooLarge,
    UnknownLeaderEpoch,
)
from anabranch.base.ids import BrokerId
from anabranch.base.network import FileRange
from anabranch.base.waiters import Waiter, Waiters
from anabranch.log import validation
from anabranch.log.append_entries import append_entries
from anabranch.log.compacted import CompactedLog
from anabranch.log.config import LogConfig
from anabranch.log.flusher import is_due
from anabranch.log.local_log import LocalLog
from anabranch.log.transactions import AbortedTransaction
from anabranch.meta.image import PartitionImage
from anabranch.partition import times
from anabranch.partition.acknowledgements import Acknowledgements, both, certainly
from anabranch.partition.certainty import Certainty
from anabranch.partition.led_replicas import LedReplicas
from anabranch.partition.partition_log import Appended, AppendedEntries, Isolation, TimestampAndOffset
from anabranch.partition.replica import Replica
from anabranch.partition.surroundings import Surroundings
from anabranch.partition.traffic import Counts
from anabranch.partition.watermark import HighWatermark
from anabranch.records.batch import BatchHeader, read_header
from anabranch.records.control import Marker, marker_batch
from anabranch.records.entry_batches import NewEntry

_SYNC_AGAIN_S = 1.0
ALL, OURS = -1, -2
"""acks of who waits for all replicas that are in sync: a client, or a part of ours, however long it takes."""


class Partition:
    __slots__ = (
        "_acks",
        "_around",
        "_broker",
        "_certainty",
        "_followers",
        "_hw",
        "_is_ended",
        "_is_plain",
        "_on_resign",
        "_start",
        "_touched",
        "_waiters",
        "_written_before",
        "bytes_out",
        "index",
        "leader_epoch",
        "led",
        "log",
        "replica",
        "replication_bytes_out",
        "retired",
        "state",
        "translations",
        "why",
    )

    def __init__(self, replica: Replica, state: PartitionImage, around: Surroundings) -> None:
        """This broker was elected to lead, as `state` has it."""
        self.replica = replica
        self.index = replica.index
        self.log = log = replica.log
        self.leader_epoch = state.leader_epoch
        self.retired = False
        self.why: AnabranchError | None = None
        self._is_ended = False
        self._is_plain = True
        """Nothing stands against an append, unless too few replicas do."""
        self.translations = around.translations
        self._around = around
        self._broker, self._touched = around.broker, around.touched
        self._start = log.log_end  # of this epoch
        self._written_before = log.written_bytes
        self.bytes_out = self.replication_bytes_out = 0  # as Fetch gave them
        self._acks = Acknowledgements()
        self._waiters = Waiters()
        self._followers = Waiters()
        self._on_resign: dict[Callable[[], None], None] = {}
        self.state = state
        """The newest that is known of who has replicas and who is in sync."""
        self._hw = HighWatermark(replica.high_watermark, frozenset(state.isr), self.min_insync(state))
        self._reached(log.log_end)
        self.led: LedReplicas | None = None
        """The followers, if there are any."""
        self._certainty: Certainty | None = None
        self._know_followers()
        log.producers.safe_below(self._hw.offset)

    def __str__(self) -> str:
        return str(self.replica)

    @property
    def log_start(self) -> int:
        return self.log.log_start

    @property
    def log_end(self) -> int:
        return self.log.log_end

    @property
    def high_watermark(self) -> int:
        return self._hw.offset

    @property
    def last_stable(self) -> int:
        return self.log.stable_below(self._hw.offset)

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def counts(self) -> Counts:
        """What went in and out since it leads."""
        log = self.log
        bytes_in = log.written_bytes - self._written_before
        return Counts(log.log_end - self._start, bytes_in, self.bytes_out, 0, self.replication_bytes_out)

    @property
    def config(self) -> LogConfig:
        return self.log.config

    @property
    def has_entries(self) -> bool:
        """Whether Pulsar producers have written here."""
        return self.log.has_entries

    @property
    def departed(self) -> int:
        """How many segments have left the log or were replaced: what was found in it may have gone."""
        return self.log.departed

    @property
    def view(self) -> CompactedLog | None:
        """The compacted one, if there is any."""
        return self.log.view

    @property
    def is_ended(self) -> bool:
        """Terminated: it takes no more messages, for good."""
        return self._is_ended

    @is_ended.setter
    def is_ended(self, is_ended: bool) -> None:
        self._is_ended = is_ended
        self._find_plain()

    def _find_plain(self) -> None:
        self._is_plain = self.why is None and not self._is_ended and self._certainty is None

    # --- writing

    def is_heavy(self, batch: memoryview) -> bool:
        """Whether appending `batch`, which has a whole header, would take more than the loop should give."""
        return validation.is_heavy(batch, self.log.config)

    def append(self, batch: memoryview, acks: int) -> Appended:
        """Store one batch as a client sent it."""
        config = self.log.config
        now_ms = self._around.clock.now_ms()
        header = validation.check(batch, config, now_ms)
        if not self._is_plain or self._hw.lacks_replicas:
            self._check_open(acks)
        if (
            header.producer_id < 0
            and config.compression_type == "producer"
            and config.message_timestamp_type == "CreateTime"
        ):
            return self._store(batch, header, -1, acks)
        return self._append_checked(batch, header, now_ms, acks)

    async def append_heavy(
        self, batch: memoryview, acks: int, admit: Callable[[], None] | None = None
    ) -> Appended:
        """`append` for a batch that is heavy: it is checked and transformed in a thread.

        `admit` is asked afterwards whether it may still go in, and raises if not.
        """
        clock = self._around.clock
        header, ready = await asyncio.get_running_loop().run_in_executor(
            self._around.threads, validation.prepare, batch, self.log.config, clock.now_ms()
        )
        self._check_open(acks)
        if admit is not None:
            admit()
        return self._append_checked(ready, header, clock.now_ms(), acks)

    def _check_open(self, acks: int) -> None:
        """Refuse what is written to who leads no more or may not, to what has ended, or in vain."""
        self.check_writable()
        if self._is_ended:
            raise PolicyViolation("the topic is terminated: it takes no more messages")
        if acks == ALL:
            self._check_replicas()

    def check_writable(self) -> None:
        """Refuse what another leader should get; that it is in doubt clients take for that, and ask again."""
        self.check_leads()
        if self._certainty is not None and not self._certainty.holds:
            raise NotOwner(f"{self}: broker {self._broker} does not know for certain that it still leads")

    def _check_replicas(self) -> None:
        if self._hw.lacks_replicas:
            raise NotEnoughReplicas(f"{self}: fewer replicas are in sync than min.insync.replicas asks for")

    def _append_checked(self, batch: memoryview, header: BatchHeader, now_ms: int, acks: int) -> Appended:
        log = self.log
        config = log.config
        if header.producer_id >= 0:
            written = log.producers.check(header)
            if written is not None:
                # Not before its original is where an acknowledgement must wait for it to be.
                acknowledged = self.acknowledgement(written.last_offset + 1, acks)
                return Appended(written.first_offset, written.timestamp, acknowledged)
        if config.compression_type != "producer" and validation.needs_transform(header, config):
            header, batch = validation.transformed(batch, config)
        append_time_ms = -1
        if config.message_timestamp_type == "LogAppendTime":
            append_time_ms = now_ms
            header = validation.stamped(batch, now_ms)
        return self._store(batch, header, append_time_ms, acks)

    def append_entries(
        self, entries: Sequence[NewEntry], producer: tuple[int, int] | None = None
    ) -> AppendedEntries:
        """Store what a Pulsar producer sent, in one go; `producer`, by id and epoch, if in a transaction."""
        self.check_writable()
        self._check_replicas()
        if producer is not None:
            self.log.producers.check_producer(*producer)
        now_ms = self._around.clock.now_ms()
        offsets = append_entries(self.log, entries, self.leader_epoch, now_ms, producer)
        return AppendedEntries(offsets, self._grown(OURS))

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        return self.log.producers.has_open_transaction(producer_id, epoch)

    def last_end(self, producer_id: int) -> int:
        """Another number whenever a transaction of the producer has ended here meanwhile."""
        return self.log.producers.last_end(producer_id)

    def append_own(self, batch: memoryview) -> Appended:
        """Store a batch that a coordinator of this broker made.  Its producer, if any, does not number it."""
        header = read_header(batch)
        self.check_writable()
        self._check_replicas()
        if len(batch) > self.log.config.max_message_bytes:
            raise TooLarge(
                f"the batch is {len(batch)} bytes, max.message.bytes is {self.log.config.max_message_bytes}"
            )
        if header.producer_id >= 0:
            self.log.producers.check_epoch(header)
        return self._store(batch, header, -1, OURS)

    def end_transaction(
        self, producer_id: int, producer_epoch: int, marker: Marker, *, strict: bool = False
    ) -> Appended:
        """Store the marker that ends a transaction; if `strict`, not one open in the marker's own epoch."""
        self.check_writable()
        self.log.producers.check_end(producer_id, producer_epoch, marker.coordinator_epoch, strict=strict)
        batch = memoryview(
            marker_batch(
                marker,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                timestamp=self._around.clock.now_ms(),
            )
        )
        return self._store(batch, read_header(batch), -1, OURS)

    def _store(self, batch: memoryview, header: BatchHeader, append_time_ms: int, acks: int) -> Appended:
        base_offset = self.log.append(batch, header, self.leader_epoch)
        return Appended(base_offset, append_time_ms, self._grown(acks))

    def _grown(self, acks: int) -> "asyncio.Future[None] | None":
        """The log has: what an acknowledgement must wait for, if anything."""
        end = self.log.log_end
        self._touched.add(self.replica)
        if self._reached(end):
            self._moved()
        self._followers.wake()
        if self._hw.offset >= end:
            return None
        return self.acknowledgement(end, acks)

    def _reached(self, end: int) -> bool:
        """Count what we have ourselves; with `flush.messages`, once it is on the disk.

        Whether the high watermark moved.
        """
        if not is_due(self.log):
            return self._hw.replica_reached(self._broker, end)
        flushed = self._around.flusher.begin(self.log, end)
        assert flushed is not None, "it is due"
        flushed.add_done_callback(self._synced)
        return False

    def _synced(self, done: "asyncio.Future[None]") -> None:
        if done.cancelled():
            return
        error = done.exception()  # heard, though it is the next leader's to see to if this one has resigned
        if self.retired:
            return
        if error is None:
            log = self.log
            if self._hw.replica_reached(self._broker, log.recovery_point if is_due(log) else log.log_end):
                self._moved()
        elif not isinstance(error, DiskFailed):  # that one ends the broker
            asyncio.get_running_loop().call_later(_SYNC_AGAIN_S, self._sync_again)

    def _sync_again(self) -> None:
        with suppress(DiskFailed):
            if not self.retired and self._reached(self.log.log_end):
                self._moved()

    def acknowledgement(self, end: int, acks: int = OURS) -> "asyncio.Future[None] | None":
        """What an answer that depends on everything below `end` must wait for, if anything."""
        flushed = self._around.flusher.begin(self.log, end) if is_due(self.log) else None
        if acks >= 0 or self._hw.offset >= end:
            if flushed is None or self._certainty is None:
                return flushed
            return asyncio.ensure_future(certainly(flushed, self._certainty))
        self.check_leads()
        replicated = self._acks.wait(end)
        return replicated if flushed is None else asyncio.ensure_future(both(flushed, replicated))

    # --- replicas

    def min_insync(self, state: PartitionImage) -> int:
        """How many replicas have to be in sync: no more than there are."""
        return min(self.log.config.min_insync_replicas, len(state.replicas))

    @property
    def lacks_replicas(self) -> bool:
        """Too few are in sync: the high watermark stands still."""
        return self._hw.lacks_replicas

    def has_replica(self, broker: BrokerId) -> bool:
        return broker in self.state.replicas

    def replica_reached(self, broker: BrokerId, end: int, log_start: int = -1, epoch: int = -1) -> None:
        """A follower has everything below `end`, as it says by what it asks for next.

        `epoch` is its broker's.
        """
        self.check_leads()  # the watermark, and what is known of producers, are the next leader's now
        if self.led is not None and self.led.reached(broker, end, log_start, epoch):
            self._moved()

    def check_followers(self, now_s: float, heard_since_s: float) -> None:
        """See whether one has to leave the ISR; the leader has listened to them since `heard_since_s`."""
        if self.led is not None and self.led.check(now_s, heard_since_s):
            self._moved()

    def isr_refused(self) -> None:
        """The controller will not have the ISR that it was asked for."""
        if self.led is not None and self.led.refused():
            self._moved()

    def replicas_changed(self, state: PartitionImage) -> None:
        """There are other replicas, others in sync, or another number of them has to be."""
        if state.partition_epoch >= self.state.partition_epoch:  # else the controller's answer was faster
            self.state = state
            if self.led is not None:
                self.led.changed(state)
        self._know_followers()
        counted = frozenset() if self.led is None else self.led.in_sync.counted
        in_sync = frozenset(self.state.isr)
        if self._hw.in_sync_changed(in_sync, self.min_insync(self.state), counted):
            self._moved()

    def _know_followers(self) -> None:
        """There are some, or there are none any more."""
        replication = self._around.replication
        if len(self.state.replicas) == 1:
            self.led = self._certainty = None
        elif self.led is None:
            self.led = LedReplicas(self, self.state, self._start, self._hw, replication)
            self._certainty = replication.certainty
        self._find_plain()

    def _moved(self) -> None:
        """The high watermark has."""
        if self.log.producers.ending:
            self.log.producers.safe_below(self._hw.offset)
        if self._acks.waiting:
            self._acknowledge()
        self._waiters.wake()

    def _acknowledge(self) -> None:
        certainty = self._certainty
        if certainty is None or certainty.holds:
            self._acks.reached(self._hw.offset)
        else:
            certainty.call_when_it_holds(self._acknowledge)

    # --- reading

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, whole_first: bool
    ) -> FileRange | None:
        if self.retired:
            self.check_leads()
        return self.log.read(offset, max_bytes, self.limit(isolation), whole_first=whole_first)

    def limit(self, isolation: Isolation) -> int:
        """Where readers stop."""
        if isolation == Isolation.UNCOMMITTED:
            return self._hw.offset
        return self.last_stable if isolation == Isolation.COMMITTED else self.log.log_end

    def aborted(
        self, offset: int, isolation: Isolation, records: FileRange | None
    ) -> list[AbortedTransaction] | None:
        """Transactions that a committed reader from `offset` must leave out of the `records` it gets."""
        if isolation != Isolation.COMMITTED:
            return None
        return [] if records is None else self.log.aborted_between(offset, self.log.end_of(records))

    async def offset_for_time(self, timestamp_ms: int) -> TimestampAndOffset | None:
        return await times.first_at(self.log, timestamp_ms, self._around.threads)

    async def max_timestamp(self) -> TimestampAndOffset | None:
        return await times.latest(self.log, self._around.threads)

    def wait(self, waiter: Waiter, isolation: Isolation = Isolation.UNCOMMITTED) -> None:
        (self._followers if isolation == Isolation.LOG_END else self._waiters).add(waiter)

    def stop_waiting(self, waiter: Waiter) -> None:
        self._waiters.remove(waiter)
        self._followers.remove(waiter)

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for what comes next."""
        return len(self._waiters) > 0

    # --- the end of the role

    def check_leads(self) -> None:
        """Raise what `resign` was given, if this one leads no more."""
        if self.why is not None:
            raise self.why.with_traceback(None)  # else it grows with each who is told

    def on_resign(self, leave: Callable[[], None]) -> Callable[[], None]:
        """Call `leave` when this leader resigns: what exists only while it leads goes with it.

        What comes back takes that back.
        """
        self._on_resign[leave] = None
        return lambda: self._on_resign.pop(leave, None)

    def resign(self, reason: AnabranchError) -> None:
        """Lead no more: whoever waits, or asks from now on, is told the reason.  No file is closed."""
        self.retired, self.why = True, reason
        self._find_plain()
        self._acks.refuse(reason)
        for leave in tuple(self._on_resign):
            leave()
        self._on_resign.clear()
        self._waiters.wake()
        self._followers.wake()
        if self.led is not None:
            self.led.starts.wake()

    # --- history and standing

    def trim(self, offset: int) -> int:
        if offset < 0 or offset > self._hw.offset:
            raise OffsetOutOfRange(f"offset {offset} is not in {self.log_start}..{self._hw.offset}")
        self.check_leads()
        if offset > self.log.log_start:
            self.log.advance_start(offset)
            self._around.touched.add(self.replica)
        return self.log.log_start

    @property
    def low_watermark(self) -> int:
        """Where the log starts on the replica where it starts first."""
        return self.log_start if self.led is None else min(self.log_start, self.led.least_start)

    async def started_at(self, offset: int) -> None:
        """Return when no replica has anything below `offset` any more; raises what `resign` was given."""
        while self.led is not None and self.low_watermark < offset:
            self.check_leads()
            moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiter = partial(_tell, moved)
            starts = self.led.starts
            starts.add(waiter)
            try:
                await moved
            finally:
                starts.remove(waiter)

    def check_leader_epoch(self, epoch: int) -> None:
        """Refuse a client that knows another leader than this one; -1 knows none."""
        check_leader_epoch(epoch, self.leader_epoch)

    @property
    def knows_its_end(self) -> bool:
        """Whether everything that leaders before this one wrote is known to be safe (KIP-207)."""
        return self._hw.offset >= self._start

    def epoch_of(self, offset: int) -> int:
        return self.log.epochs.epoch_of(offset)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` that wrote anything, and where it ended."""
        return end_of_epoch(self.log, self.leader_epoch, epoch)

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in `start`..`end`."""
        return self.log.aborted_between(start, end)


def _tell(moved: "asyncio.Future[None]") -> None:
    if not moved.done():
        moved.set_result(None)


def check_leader_epoch(known: int, current: int) -> None:
    """Refuse who knows another leader than the `current` one; -1 knows none."""
    if known in (-1, current):
        return
    if known < current:
        raise FencedLeaderEpoch(f"leader epoch {known} is over, {current} is current")
    raise UnknownLeaderEpoch(f"leader epoch {known} is not known here yet")


def end_of_epoch(log: LocalLog, current: int, epoch: int) -> tuple[int, int]:
    """The largest epoch up to `epoch` that wrote anything, and where it ended; `current` is the leader's."""
    latest, end = log.epochs.latest, log.log_end
    if latest < epoch <= current:  # nothing of it is here, nor of a later one
        return (epoch if latest < 0 or epoch == current else latest), end
    return log.epochs.end_of(epoch, end)
