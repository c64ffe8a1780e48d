"""A table and its log, against a model that remembers everything.

Random steps: records come (with times in and out of order, some never visible), the log drops its beginning,
the maintainer copies (sometimes with a stale view, or dying before it commits), merges, expires, sweeps.
After each step any range is read as a batch read would: from files by one snapshot, and from the log.  It
must be what the model has: nothing twice, nothing missing but what was dropped uncopied, and that said.
"""

import random
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anabranch.base.errors import Fenced
from anabranch.client.destinations import TopicPartition
from anabranch.pipelines.tables.maintainer import planned
from anabranch.spark.table_settings import TableSettings
from anabranch.tables.changes import Copied, appended, begun, expired, merged, swept, to_sweep
from anabranch.tables.merging import hour_name, to_merge
from anabranch.tables.seam import cut
from anabranch.tables.snapshot import DataFile, Snapshot, Span

ONE = TopicPartition("orders", 0)
SETTINGS = TableSettings("orders", "an id", Path("/table"), -1, 0)
HOUR_MS = 3_600_000
NOW = datetime(2026, 11, 16, 5, 30, tzinfo=UTC)
Rows = dict[int, int]  # offset to time


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.records: Rows = {}
        self.start = self.end = 0
        self.table = begun("orders", "an id", 0)
        self.earlier = self.table
        self.contents: dict[str, Rows] = {}
        self.made = 0
        self.dropped_uncopied: set[int] = set()
        self.expired: set[int] = set()

    def produce(self) -> None:
        base = int(NOW.timestamp()) * 1000
        for _ in range(self.rng.randrange(1, 20)):
            if self.rng.random() < 0.8:  # else a marker, or a record of an aborted transaction
                hours = self.rng.randrange(4) if self.rng.random() < 0.99 else -1000
                self.records[self.end] = base - hours * HOUR_MS + self.end
            self.end += 1

    def drop(self) -> None:
        before = self.start
        self.start = self.rng.randrange(self.start, self.end + 1)
        covered = self.table.covered.get(0, Span(before, before))
        begins = max(before, covered.end)
        if 0 in self.table.covered:
            self.dropped_uncopied |= set(range(begins, self.start))

    def copy(self) -> None:
        """Sometimes by one that looks at an older table, and sometimes by one that dies."""
        table = self.table if self.rng.random() < 0.7 else self.earlier
        plan = planned(SETTINGS, table, {ONE: self.start}, {ONE: self.end}, self.rng.choice([3, 1000]))
        assert plan is not None
        copied = []
        for one in plan.copies:
            files = tuple(self.written(self.visible(range(one.start, one.end))))
            copied.append(Copied(0, Span(one.start, one.end), files))
        if self.rng.random() < 0.8 and (copied or plan.lost):
            with suppress(Fenced):
                self.put(appended(table, copied, plan.lost, 0))

    def visible(self, offsets: Iterable[int]) -> Rows:
        return {at: self.records[at] for at in offsets if at in self.records and at >= self.start}

    def written(self, rows: Rows) -> Iterable[DataFile]:
        for hour in sorted({time // HOUR_MS for time in rows.values()}):
            yield self.file(
                hour_name(hour), {at: time for at, time in rows.items() if time // HOUR_MS == hour}
            )

    def file(self, hour: str, rows: Rows) -> DataFile:
        self.made += 1
        path = f"{hour}/{self.made}.parquet"
        self.contents[path] = rows
        return DataFile(
            path=path,
            partition=0,
            first=min(rows),
            end=max(rows) + 1,
            rows=len(rows),
            size_bytes=1,
            plain_bytes=1,
            min_ms=min(rows.values()),
            max_ms=max(rows.values()),
            layout="",
            footer_crc=0,
        )

    def put(self, table: Snapshot) -> None:
        """What a folder does: a number is given once."""
        if table.number != self.table.number + 1:
            raise Fenced
        self.earlier, self.table = self.table, table

    def merge(self) -> None:
        for group in to_merge(self.table, NOW, many=3):
            rows = {at: time for file in group for at, time in self.contents[file.path].items()}
            assert list(rows) == sorted(rows), "files of an hour are in order of offsets"
            new = self.file(group[0].hour, rows)
            self.put(merged(self.table, {file.path for file in group}, [new], self.rng.randrange(9)))

    def expire(self) -> None:
        before_ms = int(NOW.timestamp()) * 1000 - self.rng.randrange(1, 4) * HOUR_MS
        after = expired(self.table, before_ms, int(NOW.timestamp()) * 1000 + self.end)
        if after is not None:
            kept = {file.path for file in after.files}
            old = [file for file in self.table.files if file.path not in kept]
            assert old
            self.expired |= {at for file in old for at in self.contents[file.path]}
            self.put(after)

    def sweep(self) -> None:
        if gone := to_sweep(self.table, self.rng.choice([self.rng.randrange(10), 1 << 60])):
            for path in gone:
                del self.contents[path]
            self.put(swept(self.table, gone, 0))

    def read(self, table: Snapshot, asked: Span) -> tuple[list[int], set[int]]:
        """Offsets as a batch read finds them, and those it would say are lost."""
        found = cut(table, 0, asked)
        rows = [
            at
            for one in found.slices
            for at in self.contents[one.file.path]
            if one.span.start <= at < one.span.end
        ]
        lost = {at for span in found.lost for at in range(*span)}
        for span in (found.before, found.tail):
            rows += self.visible(range(*span))
            lost |= set(range(span.start, min(span.end, self.start)))
        return rows, lost

    def check(self) -> None:
        covered = self.table.covered.get(0)
        first = self.start if covered is None else min(self.start, covered.start)
        begin = self.rng.randrange(first, self.end + 1)
        asked = Span(begin, self.rng.randrange(begin, self.end + 1))
        rows, lost = self.read(self.table, asked)
        assert len(rows) == len(set(rows)), "a record twice"
        expected = {at for at in self.records if asked.start <= at < asked.end}
        missing = expected - set(rows)
        assert set(rows) <= expected
        assert missing <= lost, f"records are missing and nobody says so: {missing - lost}"
        assert lost <= self.dropped_uncopied | self.expired | set(range(self.start))


@pytest.mark.parametrize("seed", range(40))
def test_history_and_tail_are_one(seed: int) -> None:
    world = World(seed)
    steps = [world.produce, world.produce, world.copy, world.copy, world.drop, world.merge, world.sweep]
    if seed % 2:
        steps.append(world.expire)
    for _ in range(60):
        world.rng.choice(steps)()
        world.check()
    if seed % 2 == 0:
        assert not world.expired
        rows, lost = world.read(world.table, Span(0, world.end))
        assert set(world.records) - set(rows) <= lost
