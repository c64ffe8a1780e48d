"""A partition that this broker leads, on its own disk.

    append  ─> validation ─> producers ─> LocalLog ─> HighWatermark ─> waiters
    append_own, end_transaction: what coordinators write, which is made here and not validated
    read    ─> limit (HW or LSO) ─> LocalLog ─> a range of a file

All of it is synchronous: between the check of a batch and its place in the log nothing else runs.
What takes long is moved out beforehand: a batch that must be unpacked (how much is inside is not known
before) or recompressed and is large is `prepare`d in a thread.  Those threads are few, which bounds the
memory that batches can ask for by being larger inside.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from anabranch.base.clock import Clock
from anabranch.base.errors import (
    Corrupt,
    FencedLeaderEpoch,
    OffsetOutOfRange,
    PolicyViolation,
    TooLarge,
    UnknownLeaderEpoch,
    UnknownTopic,
)
from anabranch.base.ids import BrokerId
from anabranch.base.network import FileRange
from anabranch.base.waiters import Waiter, Waiters
from anabranch.log import validation
from anabranch.log.append_entries import append_entries
from anabranch.log.config import LogConfig
from anabranch.log.local_log import LocalLog
from anabranch.log.producers import Producer
from anabranch.log.segment import Place, Segment
from anabranch.log.transactions import AbortedTransaction
from anabranch.partition.partition_log import Appended, AppendedEntries, Isolation, TimestampAndOffset
from anabranch.partition.translations import Translations
from anabranch.partition.watermark import HighWatermark
from anabranch.records.batch import CODEC_MASK, LOG_APPEND_TIME, PULSAR_ENTRY, BatchHeader, read_header
from anabranch.records.control import Marker, marker_batch
from anabranch.records.entry_batches import NewEntry
from anabranch.records.record import iter_records, payload_of

Changed = Callable[["Partition"], "asyncio.Future[None] | None"]
"""Told when a log has grown or was trimmed; gives what an acknowledgement must wait for, if anything."""

INLINE_BYTES = 64 * 1024  # what is walked in the loop; beyond, a thread is cheaper than the stall

_CODEC_BYTE = 22  # the low byte of the attributes


class Partition:
    __slots__ = (
        "_broker",
        "_changed",
        "_clock",
        "_hw",
        "_threads",
        "_waiters",
        "index",
        "is_ended",
        "leader_epoch",
        "log",
        "retired",
        "translations",
    )

    def __init__(
        self,
        index: int,
        log: LocalLog,
        broker: BrokerId,
        leader_epoch: int,
        clock: Clock,
        changed: "Changed",
        translations: Translations,
        threads: Executor,
    ) -> None:
        """`threads` are few: what large batches become is in memory that often, and no oftener."""
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.retired = False
        self.translations = translations
        """Of its batches; the host gives all of its partitions the same."""
        self.is_ended = False  # terminated: it takes no more messages, for good
        self._broker = broker
        self._clock = clock
        self._changed = changed
        self._threads = threads
        self._waiters = Waiters()
        self._hw = HighWatermark(log.log_end, frozenset((broker,)), 1)

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
        undecided = self.log.producers.first_open_transaction
        return self._hw.offset if undecided is None else min(undecided, self._hw.offset)

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def config(self) -> LogConfig:
        return self.log.config

    # --- writing

    def is_heavy(self, batch: memoryview) -> bool:
        """Whether appending `batch`, which has a whole header, would take more than the loop should give."""
        codec = batch[_CODEC_BYTE] & CODEC_MASK
        if not codec and len(batch) <= INLINE_BYTES:
            return False
        config = self.log.config
        return validation.needs_records(config) or (
            config.compression_type != "producer" and validation.CODECS[config.compression_type] != codec
        )

    def append(self, batch: memoryview, acks: int) -> Appended:
        """Store one batch as a client sent it."""
        config = self.log.config
        now_ms = self._clock.now_ms()
        header = validation.check(batch, config, now_ms)
        if self.is_ended:
            raise _ended()
        if (
            header.producer_id < 0
            and config.compression_type == "producer"
            and config.message_timestamp_type == "CreateTime"
        ):
            return self._store(batch, header, -1)
        return self._append_checked(batch, header, now_ms)

    async def append_heavy(
        self, batch: memoryview, acks: int, admit: Callable[[], None] | None = None
    ) -> Appended:
        """`append` for a batch that is heavy: it is checked and transformed in a thread.

        `admit` is asked afterwards whether it may still go in, and raises if not.
        """
        loop = asyncio.get_running_loop()
        header, ready = await loop.run_in_executor(
            self._threads, _prepare, batch, self.log.config, self._clock.now_ms()
        )
        if self.retired:
            raise UnknownTopic("the topic is gone")
        if self.is_ended:
            raise _ended()
        if admit is not None:
            admit()
        return self._append_checked(ready, header, self._clock.now_ms())

    def _append_checked(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        log = self.log
        config = log.config
        if header.producer_id >= 0:
            written = log.producers.check(header)
            if written is not None:
                # Not before its original is where an acknowledgement must wait for it to be.
                return Appended(written.first_offset, written.timestamp, self._changed(self))
        if config.compression_type != "producer" and validation.needs_transform(header, config):
            header, batch = _transformed(batch, config)
        append_time_ms = -1
        if config.message_timestamp_type == "LogAppendTime":
            append_time_ms = now_ms
            header = validation.stamped(batch, now_ms)
        return self._store(batch, header, append_time_ms)

    def append_entries(
        self, entries: Sequence[NewEntry], producer: tuple[int, int] | None = None
    ) -> AppendedEntries:
        """Store what a Pulsar producer sent, in one go; `producer`, by id and epoch, if in a transaction."""
        if self.retired:
            raise UnknownTopic("the topic is gone")
        if producer is not None:
            self.log.producers.check_producer(*producer)
        offsets = append_entries(self.log, entries, self.leader_epoch, self._clock.now_ms(), producer)
        if self._hw.replica_reached(self._broker, self.log.log_end):
            self._waiters.wake()
        return AppendedEntries(offsets, self._changed(self))

    def acknowledgement(self) -> "asyncio.Future[None] | None":
        """What an answer about something that was appended before must wait for, if anything."""
        return self._changed(self)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        return self.log.producers.has_open_transaction(producer_id, epoch)

    def append_own(self, batch: memoryview) -> Appended:
        """Store a batch that a coordinator of this broker made.  Its producer, if any, does not number it."""
        header = read_header(batch)
        if self.retired:
            raise UnknownTopic("the topic is gone")
        if len(batch) > self.log.config.max_message_bytes:
            raise TooLarge(
                f"the batch is {len(batch)} bytes, max.message.bytes is {self.log.config.max_message_bytes}"
            )
        if header.producer_id >= 0:
            self.log.producers.check_epoch(header)
        return self._store(batch, header, -1)

    def end_transaction(
        self, producer_id: int, producer_epoch: int, marker: Marker, *, strict: bool = False
    ) -> Appended:
        """Store the marker that ends a transaction; if `strict`, not one open in the marker's own epoch."""
        if self.retired:
            raise UnknownTopic("the topic is gone")
        self.log.producers.check_end(producer_id, producer_epoch, marker.coordinator_epoch, strict=strict)
        batch = memoryview(
            marker_batch(
                marker,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                timestamp=self._clock.now_ms(),
            )
        )
        return self._store(batch, read_header(batch), -1)

    def _store(self, batch: memoryview, header: BatchHeader, append_time_ms: int) -> Appended:
        base_offset = self.log.append(batch, header, self.leader_epoch)
        if self._hw.replica_reached(self._broker, self.log.log_end):
            self._waiters.wake()
        return Appended(base_offset, append_time_ms, self._changed(self))

    # --- reading

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, whole_first: bool
    ) -> FileRange | None:
        limit = self._hw.offset if isolation == Isolation.UNCOMMITTED else self.last_stable
        return self.log.read(offset, max_bytes, limit, whole_first=whole_first)

    def aborted(
        self, offset: int, isolation: Isolation, records: FileRange | None
    ) -> list[AbortedTransaction] | None:
        """Transactions that a committed reader from `offset` must leave out of the `records` it gets."""
        if isolation == Isolation.UNCOMMITTED:
            return None
        return [] if records is None else self.log.aborted_between(offset, self.log.end_of(records))

    async def offset_for_time(self, timestamp_ms: int) -> TimestampAndOffset | None:
        from_offset = 0
        while found := self.log.batch_at_time(timestamp_ms, from_offset):
            record = await self._record_in(*found, timestamp_ms)
            if record is not None:
                return record
            # Its header has the time and no record does: compaction emptied it, or the log begins behind it.
            from_offset = found[1].header.last_offset + 1
            await asyncio.sleep(0)  # headers may lie, all of them
        return None

    async def max_timestamp(self) -> TimestampAndOffset | None:
        found = self.log.batch_of_max_timestamp()
        if found is None:
            return None
        return await self._record_in(*found, found[1].header.max_timestamp)

    async def _record_in(
        self, segment: Segment, place: Place, timestamp_ms: int
    ) -> TimestampAndOffset | None:
        header = place.header
        batch = segment.file.pread(header.size_bytes, place.position)
        limit = validation.unpacked_limit(self.log.config)
        arguments = (header, batch, timestamp_ms, self.log.log_start, limit)
        if len(batch) <= INLINE_BYTES and not header.codec:
            found = _first_record(*arguments)
        else:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._threads, _first_record, *arguments)
        return None if found is None else TimestampAndOffset(found[0], found[1], header.leader_epoch)

    def wait(self, waiter: Waiter) -> None:
        self._waiters.add(waiter)

    def stop_waiting(self, waiter: Waiter) -> None:
        self._waiters.remove(waiter)

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for what comes next."""
        return len(self._waiters) > 0

    def retire(self) -> None:
        """The partition is served no more: whoever waits is woken to find that out."""
        self.retired = True
        self._waiters.wake()
        for segment in self.log.segments:
            segment.close()
        if self.log.view is not None:
            self.log.view.close()

    # --- history and standing

    def trim(self, offset: int) -> int:
        if offset < 0 or offset > self._hw.offset:
            raise OffsetOutOfRange(f"offset {offset} is not in {self.log_start}..{self._hw.offset}")
        if offset > self.log.log_start:
            self.log.advance_start(offset)
            self._changed(self)
        return self.log.log_start

    def check_leader_epoch(self, epoch: int) -> None:
        """Refuse a client that knows another leader than this one; -1 knows none."""
        if epoch in (-1, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"leader epoch {epoch} is over, {self.leader_epoch} is current")
        raise UnknownLeaderEpoch(f"leader epoch {epoch} is not known here yet")

    def epoch_of(self, offset: int) -> int:
        return self.log.epochs.epoch_of(offset)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` that wrote anything, and where it ended."""
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end
        return self.log.epochs.end_of(epoch, self.log.log_end)

    def producers(self) -> list[Producer]:
        return list(self.log.producers)


def _ended() -> PolicyViolation:
    return PolicyViolation("the topic is terminated: it takes no more messages")


def _prepare(batch: memoryview, config: LogConfig, now_ms: int) -> tuple[BatchHeader, memoryview]:
    """Check `batch` and bring it into the topic's codec."""
    header = validation.check(batch, config, now_ms)
    return _transformed(batch, config) if validation.needs_transform(header, config) else (header, batch)


def _transformed(batch: memoryview, config: LogConfig) -> tuple[BatchHeader, memoryview]:
    ready = validation.transform(batch, config)
    if len(ready) > config.max_message_bytes:
        raise TooLarge(
            f"the batch is {len(ready)} bytes as {config.compression_type}, "
            f"max.message.bytes is {config.max_message_bytes}"
        )
    return read_header(ready), ready


def _first_record(
    header: BatchHeader, batch: bytes, timestamp_ms: int, from_offset: int, limit_bytes: int
) -> tuple[int, int] | None:
    """The timestamp and offset of the first record at or after `timestamp_ms` and `from_offset`."""
    if header.attributes & (LOG_APPEND_TIME | PULSAR_ENTRY):  # all of its messages have one time
        return header.max_timestamp, max(header.base_offset, from_offset)
    try:
        for record in iter_records(header, payload_of(header, batch, limit_bytes)):
            if record.timestamp >= timestamp_ms and record.offset >= from_offset:
                return record.timestamp, record.offset
    except Corrupt:
        return header.max_timestamp, max(header.base_offset, from_offset)
    return None
