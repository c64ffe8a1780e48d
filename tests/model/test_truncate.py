"""A log that is cut against a naive one: epochs, transactions, compaction, stops of every kind.

The model is a list of batches with their bytes.  Cutting it is dropping its end; what producers wrote last,
which transactions are open or aborted and where epochs began is worked out from the list, or cut with it.
A follower is fed with what the log gives to readers and cut where it is.  A seed replays a run;
ANABRANCH_SOAK=1 tries many more.
"""

import os
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from anabranch.base.disk import DirectDisk, File
from anabranch.base.network import FileRange
from anabranch.log.append_entries import append_entries
from anabranch.log.append_fetched import append_fetched
from anabranch.log.index import MappedIndex
from anabranch.log.local_log import LocalLog
from anabranch.log.producers import Producer, Producers
from anabranch.log.transactions import AbortedTransaction
from anabranch.log.truncation import truncate_fully_and_start_at, truncate_to
from anabranch.records.batch import HEADER_SIZE, BatchHeader, read_header
from anabranch.records.control import read_marker
from anabranch.records.record import iter_records
from tests.support.compaction import compact_now, job_for
from tests.support.logs import SetClock, batches, crash, marker, open_log_in, put, records, release_all
from tests.support.topics import send

SEEDS = range(600 if os.environ.get("ANABRANCH_SOAK") else 40)
STEPS = 120


class UnsyncedFile(File):
    def sync(self) -> None:
        """Nobody cuts the power."""


class UnsyncedDisk(DirectDisk):
    def open(self, path: Path) -> File:
        return UnsyncedFile(path, self.size(path), self.handles)

    def write_whole(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        super().write_whole(path, data, sync=False)

    def sync_dir(self, path: Path) -> None:
        """Nor here."""


class Stored(NamedTuple):
    header: BatchHeader
    data: bytes

    @property
    def first(self) -> int:
        return self.header.base_offset

    @property
    def last(self) -> int:
        return self.header.last_offset


class Naive:
    """A log as it is in a book."""

    def __init__(self) -> None:
        self.stored: list[Stored] = []
        self.start = self.end = 0
        self.epochs: list[tuple[int, int]] = []
        self.aborted: list[AbortedTransaction] = []

    def cut(self, offset: int) -> None:
        if offset >= self.end:
            return
        gone = [each for each in self.stored if each.last >= offset]
        self.end = min([offset, *[each.first for each in gone]])
        self.stored = [each for each in self.stored if each.last < offset]
        self.start = min(self.start, self.end)
        self.epochs = [each for each in self.epochs if each[1] < self.end]
        self.aborted = [each for each in self.aborted if each.last_offset < self.end]

    def begin_at(self, offset: int) -> None:
        self.cut(0)
        self.epochs, self.start, self.end = [], offset, offset

    def end_of(self, epoch: int) -> tuple[int, int]:
        if not self.epochs or not 0 <= epoch <= self.epochs[-1][0]:
            return -1, -1
        known = [each for each in self.epochs if each[0] <= epoch]
        later = [start for known_epoch, start in self.epochs if known_epoch > epoch]
        return (known[-1][0] if known else epoch), (later[0] if later else self.end)


class Run:
    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = folder / "leader"
        self.clock = SetClock()
        self.is_compacted = self.chance.random() < 0.4
        self.config = {
            "segment_bytes": self.chance.choice((500, 1500, 6000)),
            "index_interval_bytes": self.chance.choice((0, 150, 4096)),
            "cleanup_policy": ("compact",) if self.is_compacted else ("delete",),
            "preallocate": self.chance.random() < 0.2,
        }
        self.may_trim = self.chance.random() < 0.5
        self.is_trimmed = False
        self.max_open = self.chance.choice((2, 6, 100))
        self.disk = UnsyncedDisk(self.max_open)
        self.recovery_point = 0  # as a checkpoint has it
        self.cleaned_to = 0
        self.decided_to = 0  # the log's end when it was compacted
        self.naive = Naive()
        self.epoch = self.coordinator_epoch = 0
        self.readers: list[tuple[FileRange, bytes]] = []
        self.log = self.open(clean=True)
        self.follower_folder = folder / "follower"
        self.follower = open_log_in(self.follower_folder, disk=self.disk, **self.config)

    def open(self, *, clean: bool) -> LocalLog:
        self.readers.clear()  # a process that has ended has none, and numbers what it removes anew
        return open_log_in(
            self.folder,
            clean=clean,
            recovery_point=self.recovery_point,
            log_start=self.naive.start,
            clock=self.clock,
            disk=self.disk,
            **self.config,
        )

    # --- what happens

    def elect(self) -> None:
        self.epoch += self.chance.randrange(1, 3)

    def append(self) -> None:
        count = self.chance.randrange(1, 5)
        values = [str(self.chance.randrange(10 ** self.chance.randrange(1, 60))) for _ in range(count)]
        fields = {}
        producer = self.chance.choice((-1, 1, 2, 3, 4))
        if producer >= 0:
            known = self.log.producers.get(producer)
            epoch, sequence = (0, 0) if known is None else (known.epoch, known.last_sequence + 1)
            is_open = self.log.producers.has_open_transaction(producer, epoch)
            if not is_open and self.chance.random() < 0.1:
                epoch, sequence = epoch + self.chance.randrange(1, 3), 0
            fields = {
                "producer_id": producer,
                "producer_epoch": epoch,
                "base_sequence": sequence,
                "transactional": is_open or self.chance.random() < 0.4,
            }
        batch = records(
            *values,
            keys=[str(self.chance.randrange(12)) for _ in values],
            timestamp=self.chance.choice((-1, *[self.clock.ms + self.chance.randrange(-200, 50)] * 9)),
            codec=self.chance.randrange(5),
            **fields,
        )
        assert put(self.log, batch, self.epoch) == self.naive.end
        self.noted()

    def append_entries(self) -> None:
        entries = [
            send(
                i,
                messages=self.chance.randrange(1, 4),
                publish_time=self.clock.ms + self.chance.randrange(50),
            )
            for i in range(self.chance.randrange(1, 6))
        ]
        size = sum(61 + len(entry.payload) for entry in entries)
        if size > self.config["segment_bytes"]:  # type: ignore[operator]
            entries = entries[:1]
        assert append_entries(self.log, entries, self.epoch, self.clock.ms)[0] == self.naive.end
        self.noted()

    def end_transaction(self) -> None:
        open_ones = [p.producer_id for p in self.log.producers if p.txn_first_offset is not None]
        if not open_ones:
            return
        producer = self.chance.choice(open_ones)
        known = self.log.producers.get(producer)
        assert known is not None
        assert known.txn_first_offset is not None
        first, commit = known.txn_first_offset, self.chance.random() < 0.5
        epoch = known.epoch + self.chance.randrange(2)
        self.coordinator_epoch += self.chance.randrange(2)
        batch = marker(
            producer,
            commit=commit,
            epoch=epoch,
            coordinator=self.coordinator_epoch,
            timestamp=self.clock.ms,
        )
        offset = put(self.log, batch, self.epoch)
        if not commit:
            undecided = self.log.producers.first_open_transaction
            stable = offset + 1 if undecided is None else undecided
            self.naive.aborted.append(AbortedTransaction(producer, first, offset, stable))
        self.noted()

    def noted(self) -> None:
        """Write down in the model what was just appended."""
        start = self.naive.end
        for header, data in batches(self.log, start):
            self.naive.stored.append(Stored(header, data))
            self.naive.end = header.last_offset + 1
        if not self.naive.epochs or self.epoch > self.naive.epochs[-1][0]:
            earlier = [each for each in self.naive.epochs if each[1] < start]
            self.naive.epochs = [*earlier, (self.epoch, start)]

    def cut(self) -> None:
        lowest = self.cleaned_to if self.is_compacted else max(0, self.naive.start - 2)
        offset = self.chance.randrange(lowest, self.naive.end + 2)
        if self.chance.random() < 0.6:
            offset = max(offset, self.naive.end - self.chance.randrange(12))
        if offset < self.decided_to:  # markers go of transactions whose records are compacted
            self.is_trimmed = True
        self.forget(truncate_to(self.disk, self.log, offset))
        self.naive.cut(offset)
        truncate_to(self.disk, self.follower, self.naive.end)
        self.settle()

    def cut_all(self) -> None:
        if self.chance.random() < 0.3:
            offset = self.chance.randrange(self.naive.end + 50)
            self.forget(truncate_fully_and_start_at(self.disk, self.log, offset))
            self.naive.begin_at(offset)
            self.is_trimmed = False
            self.cleaned_to = self.decided_to = offset
            truncate_fully_and_start_at(self.disk, self.follower, offset)
            self.settle()

    def forget(self, gone: list) -> None:  # type: ignore[type-arg]
        assert all(segment.file.path.name.endswith(".deleted") for segment in gone)
        if self.chance.random() < 0.7:
            for segment in gone:
                segment.remove()

    def settle(self) -> None:
        """What the caller of a cut does, and what its clients go on with."""
        self.recovery_point = self.log.recovery_point
        assert self.recovery_point <= self.log.log_end
        if self.naive.epochs:
            self.epoch = max(self.epoch, self.naive.epochs[-1][0])
        self.check()
        self.check_producers()

    def replicate(self) -> None:
        """The high watermark moves: what is below is not to be undone."""
        self.log.producers.safe_below(self.chance.randrange(self.naive.start, self.naive.end + 1))

    def look_back(self) -> None:
        """What the producers were, where it is known without reading, is what reading says."""
        if self.is_trimmed or self.is_compacted:
            return
        for number, each in enumerate(self.naive.stored):
            found = self.log.producers.as_of(each.first)
            if found is not None:
                same_producers(found, replayed(self.naive.stored[:number]))
                again = found.as_of(self.naive.stored[number // 2].first)
                if again is not None:
                    same_producers(again, replayed(self.naive.stored[: number // 2]))

    def roll(self) -> None:
        if self.log.active.size:
            self.log.roll()

    def flush(self) -> None:
        self.log.recovery_point = self.recovery_point = self.log.log_end

    def tick(self) -> None:
        self.clock.advance(self.chance.randrange(500))

    def trim(self) -> None:
        if not self.is_compacted and self.may_trim:
            self.is_trimmed = True
            self.log.advance_start(self.chance.randrange(self.naive.start, self.naive.end + 1))
            self.naive.start = self.log.log_start
            kept = [each for each in self.naive.epochs if each[1] > self.naive.start]
            before = [each for each in self.naive.epochs if each[1] <= self.naive.start]
            self.naive.epochs = [*[(epoch, self.naive.start) for epoch, _ in before[-1:]], *kept]

    def compact(self) -> None:
        if not self.is_compacted:
            return
        job = job_for(self.log, first_dirty=self.cleaned_to)
        if job.bases and self.cleaned_to < job.end:
            summary = compact_now(self.log, disk=self.disk, first_dirty=self.cleaned_to)
            self.cleaned_to, self.decided_to = summary.cleaned_to, self.naive.end
            self.naive.stored = [Stored(header, data) for header, data in batches(self.log)]

    def stop(self) -> None:
        self.log.close()
        self.log = self.open(clean=True)
        self.check()
        self.check_producers()

    def kill(self) -> None:
        crash(self.log)
        self.log = self.open(clean=False)
        if self.naive.start == self.naive.end:  # of batches that nobody sees it may know, or not
            self.naive.epochs = list(zip(self.log.epochs._epochs, self.log.epochs._starts, strict=True))
        self.check()
        self.check_producers()

    def follow(self) -> None:
        """The follower takes over some of what it has not, and now and then starts anew."""
        if self.chance.random() < 0.2:
            crash(self.follower)
            self.follower = open_log_in(
                self.follower_folder,
                clean=False,
                log_start=self.follower.log_start,
                disk=self.disk,
                **self.config,
            )
        for _ in range(self.chance.randrange(1, 20)):
            at = max(self.follower.log_end, self.log.log_start)
            part = self.log.read(at, self.chance.choice((1, 300, 5000)), self.log.log_end, whole_first=True)
            if part is None:
                return
            data = part.file.pread(part.size, part.position)
            if self.chance.random() < 0.3:
                data = data[: self.chance.randrange(len(data))]
            if read_header(part.file.pread(61, part.position)).base_offset >= self.follower.log_end:
                append_fetched(self.disk, self.follower, data, self.epoch)

    def read_slowly(self) -> None:
        """A range that is sent later, perhaps after a cut and what was written after that."""
        if self.naive.stored:
            part = self.log.read(
                self.chance.randrange(self.naive.start, self.naive.end + 1),
                3000,
                self.naive.end,
                whole_first=True,
            )
            if part is not None:
                self.readers.append((part, part.file.pread(part.size, part.position)))
                del self.readers[:-20]

    # --- what must hold

    def check(self) -> None:
        log, naive = self.log, self.naive
        assert (log.log_start, log.log_end) == (naive.start, naive.end)
        held = [each for each in naive.stored if each.last >= naive.start]
        assert [data for _, data in batches(log)] == [each.data for each in held]
        for offset in range(naive.start, naive.end + 1, self.chance.randrange(1, 4)):
            part = log.read(offset, 1, naive.end, whole_first=True)
            expected = next((each for each in naive.stored if each.last >= offset), None)
            assert (part and part.file.pread(part.size, part.position)) == (expected and expected.data)
        for epoch in range(-1, self.epoch + 2):
            assert log.epochs.end_of(epoch, log.log_end) == naive.end_of(epoch)
        self.check_times(held)
        self.check_aborted()
        self.check_indexes()
        self.check_readers()

    def check_times(self, held: list[Stored]) -> None:
        for _ in range(5):
            wanted, start = (
                self.clock.ms - self.chance.randrange(3000),
                self.chance.randrange(self.naive.end + 1),
            )
            found = self.log.batch_at_time(wanted, start)
            expected = [e.first for e in held if e.header.max_timestamp >= wanted and e.last >= start]
            assert (found and found[1].header.base_offset) == (expected[0] if expected else None)
        latest = max((e.header.max_timestamp for e in self.naive.stored), default=-1)
        by_log = self.log.batch_of_max_timestamp()
        if by_log is not None and not self.is_trimmed:
            assert by_log[1].header.max_timestamp == latest

    def check_aborted(self) -> None:
        if not self.is_compacted and not self.is_trimmed:
            start = self.chance.randrange(self.naive.end + 1)
            end = self.chance.randrange(start, self.naive.end + 1)
            expected = [e for e in self.naive.aborted if e.last_offset >= start and e.first_offset < end]
            assert self.log.aborted_between(start, end) == expected

    def check_indexes(self) -> None:
        """They point at batches of the log, in order."""
        assert [s.base_offset for s in self.log.segments] == self.log._bases
        for segment in self.log.segments:
            places = {place.position: place.header for place in segment.batches()}
            offsets = entries_of(segment.offset_index)
            assert offsets == sorted(set(offsets))
            for relative, position in offsets:
                assert places[position].last_offset == segment.base_offset + relative
            times = entries_of(segment.time_index)
            assert times == sorted(times, key=lambda entry: entry[1])
            stamps = {header.last_offset: header.max_timestamp for header in places.values()}
            assert [stamps[segment.base_offset + relative] for _, relative in times] == [
                at for at, _ in times
            ]
            assert segment.max_timestamp == max(stamps.values(), default=-1)

    def check_readers(self) -> None:
        for part, before in self.readers:
            try:
                data = part.file.pread(part.size, part.position)
            except OSError:
                continue  # the connection ends
            assert before.startswith(data), "bytes that were written over what was cut"

    def check_producers(self) -> None:
        """All that can be known of them from the list; what compaction took of it, snapshots know."""
        expected = replayed(self.naive.stored)
        if self.is_trimmed:  # they may know of batches that are out of sight
            return
        assert self.log.producers.first_open_transaction == expected.first_open_transaction
        if not self.is_compacted:
            same_producers(self.log.producers, expected)

    def check_follower(self) -> None:
        """Everything that it has is as the leader has it, byte for byte."""
        theirs = {header.base_offset: data for header, data in batches(self.log)}
        for header, data in batches(self.follower):
            if header.base_offset >= max(self.cleaned_to, self.log.log_start):
                assert theirs[header.base_offset] == data


def replayed(stored: list[Stored]) -> Producers:
    """What the batches say of their producers, read one by one."""
    producers = Producers()
    for header, data in stored:
        if header.is_control:
            told = read_marker(next(iter_records(header, memoryview(data)[HEADER_SIZE:])))
            assert told is not None
            producers.complete(header, header.base_offset, told.coordinator_epoch, aborted=not told.commit)
        elif header.producer_id >= 0:
            producers.update(header, header.base_offset)
    return producers


def same_producers(found: Producers, expected: Producers) -> None:
    """Of the batches some may be known only, but the last of them."""
    assert known(found) == known(expected)
    assert found.first_open_transaction == expected.first_open_transaction
    assert found.open_transactions == expected.open_transactions
    for producer in expected:
        batches = written(found.get(producer.producer_id))
        assert batches == written(producer)[len(producer.batches) - len(batches) :]


def written(producer: Producer | None) -> list[tuple[int, int, int]]:
    assert producer is not None
    return [(batch.last_sequence, batch.last_offset, batch.offset_delta) for batch in producer.batches]


def known(producers: Producers) -> list[tuple[int, int, int, int, int | None, int]]:
    return sorted(
        (p.producer_id, p.epoch, p.last_sequence, p.last_offset, p.txn_first_offset, p.coordinator_epoch)
        for p in producers
    )


def entries_of(index: MappedIndex) -> list[tuple[int, int]]:
    return [index.entry(i) for i in range(index.entries)]


OFTEN = ("append",) * 12 + (
    "append_entries",
    "end_transaction",
    "end_transaction",
    "tick",
    "replicate",
    "follow",
    "read_slowly",
)
SELDOM = (
    "cut",
    "cut",
    "look_back",
    "elect",
    "roll",
    "flush",
    "trim",
    "compact",
    "stop",
    "kill",
    "cut_all",
    "check_follower",
)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_that_is_cut_is_a_list_that_is(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path, seed)
    for _ in range(STEPS):
        getattr(run, run.chance.choice(OFTEN + SELDOM))()
    run.check()
    run.kill()
    late = open_log_in(tmp_path / "late", disk=run.disk, **run.config)
    truncate_fully_and_start_at(run.disk, late, run.log.log_start)
    while (part := run.log.read(late.log_end, 2000, run.log.log_end, whole_first=True)) is not None:
        before = late.log_end
        append_fetched(run.disk, late, part.file.pread(part.size, part.position), run.epoch)
        if late.log_end == before:
            break
    assert raw(late) == raw(run.log)
    if not run.is_trimmed and not run.is_compacted:
        assert known(late.producers) == known(run.log.producers)
    release_all()


def raw(log: LocalLog) -> list[bytes]:
    return [bytes(data) for _, data in batches(log)]
