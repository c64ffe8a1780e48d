"""A log against a list: appends, rolls, reads, retention, stops of every kind, in random order.

The model is what a reader would say of the log: batches with their offsets, where the log starts, what each
producer wrote last.  A seed replays a run; ANABRANCH_SOAK=1 tries many more.
"""

import os
import random
from pathlib import Path

import pytest

from anabranch.base.errors import OffsetOutOfRange, OutOfOrderSequence
from anabranch.log.local_log import LocalLog
from anabranch.log.retention import judge
from anabranch.records.batch import read_header, split_batches
from anabranch.records.record import iter_records
from tests.support.logs import START_MS, SetClock, a_disk, crash, open_log_in, put, records, release_all

SEEDS = range(400 if os.environ.get("ANABRANCH_SOAK") else 25)
STEPS = 150


class Stored:
    """A batch as the model has it."""

    def __init__(self, base: int, values: list[str], timestamp: int, size: int) -> None:
        self.base = base
        self.values = values
        self.timestamp = timestamp
        self.size = size

    @property
    def end(self) -> int:
        return self.base + len(self.values)


class Run:
    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.clock = SetClock()
        self.config = {
            "segment_bytes": self.chance.choice((300, 1000, 5000)),
            "index_interval_bytes": self.chance.choice((0, 100, 4096)),
            "segment_ms": self.chance.choice((50, 10_000)),
            "retention_ms": 2000,
            "retention_bytes": self.chance.choice((-1, 3000)),
        }
        self.max_open = self.chance.choice((2, 5, 100))
        self.synced = 0
        self.stored: list[Stored] = []
        self.start = 0
        self.sequences: dict[int, int] = {}
        self.readers = [0, 0]
        self.log = self.open(clean=True)

    def open(self, *, clean: bool) -> LocalLog:
        return open_log_in(
            self.folder,
            clean=clean,
            recovery_point=self.synced,
            log_start=self.start,
            clock=self.clock,
            disk=a_disk(self.max_open),
            **self.config,
        )

    @property
    def end(self) -> int:
        return self.stored[-1].end if self.stored else self.start

    # --- what happens

    def append(self) -> None:
        count = self.chance.randrange(1, 5)
        values = [str(self.chance.randrange(10 ** self.chance.randrange(1, 60))) for _ in range(count)]
        timestamp = self.clock.ms + self.chance.randrange(-200, 50)
        fields = {}
        if self.chance.random() < 0.5:
            producer = self.chance.randrange(3)
            sequence = self.sequences.get(producer, -1) + 1
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            self.sequences[producer] = sequence + count - 1
        batch = records(*values, timestamp=timestamp, codec=self.chance.randrange(5), **fields)
        if fields:
            assert self.log.producers.check(read_header(batch)) is None
        assert put(self.log, batch) == self.end
        self.stored.append(Stored(self.end, values, timestamp, len(batch)))

    def roll(self) -> None:
        if self.log.active.size:
            self.log.roll()

    def tick(self) -> None:
        self.clock.advance(self.chance.randrange(500))

    def retain(self) -> None:
        segments = self.log.segments
        verdict = judge(
            segments,
            self.log.config,
            log_start=self.log.log_start,
            high_watermark=self.chance.randrange(self.start, self.end + 1),
            now_ms=self.clock.ms,
            modified_ms=lambda i: START_MS,
        )
        if not verdict.total:
            return
        dropped = segments[: verdict.total]
        self.log.advance_start(dropped[-1].end_offset)
        self.log.drop(dropped)
        for segment in dropped:
            segment.remove()
        self.start = self.log.log_start
        self.stored = [batch for batch in self.stored if batch.end > self.start]

    def trim(self) -> None:
        self.start = self.chance.randrange(self.start, self.end + 1)
        self.log.advance_start(self.start)
        self.stored = [batch for batch in self.stored if batch.end > self.start]

    def stop(self) -> None:
        self.log.close()
        self.synced = self.chance.choice((self.synced, self.end))
        self.log = self.open(clean=True)

    def kill(self) -> None:
        crash(self.log)
        self.log = self.open(clean=False)

    def tear(self) -> None:
        """A kill that also loses the end of what was written since the last batch."""
        path, base = self.log.active.file.path, self.log.active.base_offset
        crash(self.log)
        last = self.stored[-1] if self.stored else None
        if last is None or last.base < base:
            self.log = self.open(clean=False)
            return
        os.truncate(path, path.stat().st_size - self.chance.randrange(1, last.size + 1))
        self.stored.pop()
        self.log = self.open(clean=False)
        if self.start > self.end:
            self.start = self.log.log_start
        self.sequences = {p.producer_id: p.last_sequence for p in self.log.producers}

    # --- what must hold

    def check(self) -> None:
        log = self.log
        assert (log.log_start, log.log_end) == (self.start, max(self.end, self.start))
        offset = self.chance.randrange(self.start, log.log_end + 1)
        limit = self.chance.choice((log.log_end, *[batch.base for batch in self.stored[-3:]]))
        max_bytes = self.chance.choice((0, 200, 2000, 1 << 20))
        expected = [batch for batch in self.stored if batch.end > offset and batch.base < limit]
        part = log.read(offset, max_bytes, limit, whole_first=True)
        if part is None:
            assert not expected
            return
        assert part.size <= max(max_bytes, expected[0].size)
        data = part.file.pread(part.size, part.position)
        for (header, batch), model in zip(split_batches(data), expected, strict=False):
            assert header.base_offset == model.base
            assert header.size_bytes == model.size
            if header.codec == 0:
                values = [record.value for record in iter_records(header, batch[61:])]
                assert values == [value.encode() for value in model.values]

    def follow(self) -> None:
        """A reader that goes on where it left off sees every batch, up to the end."""
        which = self.chance.randrange(len(self.readers))
        offset = min(max(self.readers[which], self.start), self.log.log_end)
        limit = self.chance.choice((self.log.log_end, self.log.log_end, max(offset, self.log.log_end - 3)))
        limit = min((batch.base for batch in self.stored if batch.end > limit), default=limit)
        for model in [batch for batch in self.stored if batch.end > offset and batch.base < limit]:
            if offset >= model.end:
                continue  # came with the one before
            part = self.log.read(offset, 300, limit, whole_first=True)
            assert part is not None, f"stuck at {offset} of {self.log.log_end}"
            for header, _ in split_batches(part.file.pread(part.size, part.position)):
                assert header.base_offset <= offset <= header.last_offset
                offset = header.last_offset + 1
        assert self.log.read(offset, 300, limit, whole_first=True) is None
        self.readers[which] = offset

    def check_time(self) -> None:
        wanted = self.clock.ms - self.chance.randrange(3000)
        expected = next((batch.base for batch in self.stored if batch.timestamp >= wanted), None)
        found = self.log.batch_at_time(wanted)
        assert (found and found[1].header.base_offset) == expected

    def check_bounds(self) -> None:
        for offset in (self.start - 1, self.log.log_end + 1):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, 100, self.log.log_end, whole_first=True)

    def check_producers(self) -> None:
        for producer, sequence in self.sequences.items():
            known = self.log.producers.get(producer)
            if known is None:  # all it wrote is gone, and so is the snapshot that knew it
                continue
            assert known.last_sequence == sequence
            wrong = records("x", producer_id=producer, producer_epoch=0, base_sequence=sequence + 2)
            with pytest.raises(OutOfOrderSequence):
                self.log.producers.check(read_header(wrong))


OFTEN = ("append",) * 12 + ("check", "follow") * 5 + ("check_time", "tick", "tick")
SELDOM = ("roll", "retain", "trim", "stop", "kill", "tear", "check_bounds", "check_producers")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_is_a_list(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path, seed)
    for _ in range(STEPS):
        getattr(run, run.chance.choice(OFTEN + SELDOM))()
    run.stop()
    for _ in range(20):
        run.check()
    release_all()
