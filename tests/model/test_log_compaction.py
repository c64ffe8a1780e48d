"""Compaction against its definition: random keys, tombstones, transactions, small tables, restarts.

The model keeps every batch that was ever written and works out from the rules, record by record, what
a log that was compacted at these times, up to these offsets, must still hold.  The log must hold exactly
that, give it to readers of committed records only if it was committed, and know its producers after
losing every snapshot.
"""

import os
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from anabranch.log.compaction import Job
from anabranch.log.local_log import LocalLog
from anabranch.log.paths import SNAPSHOT
from anabranch.records.record import iter_records, payload_of
from tests.support.compaction import compact_now, compacted_log, job_for
from tests.support.logs import START_MS, UNPACKED_LIMIT, batches, crash, marker, put, records, release_all

SEEDS = range(400 if os.environ.get("ANABRANCH_SOAK") else 20)
STEPS = 120
RETENTION_MS = 1000

Seen = tuple[int, str, str | None]


class Item(NamedTuple):
    offset: int
    key: str | None
    value: str | None


class Written:
    """A batch of data as it was written, and what is left of it."""

    def __init__(self, items: list[Item], producer: int, transaction: int | None) -> None:
        self.items = items
        self.first = items[0].offset
        self.last = items[-1].offset
        self.producer = producer
        self.transaction = transaction
        self.horizon_ms: int | None = None


class Model:
    def __init__(self) -> None:
        self.batches: list[Written] = []
        self.aborted: set[int] = set()

    def compact(self, *, start: int, end: int, now_ms: int) -> None:
        """What the rules say of a cleaning that knows the keys from `start` to `end`."""
        latest: dict[str, int] = {}
        for batch in self.batches:
            if batch.transaction not in self.aborted:
                for item in batch.items:
                    if item.key is not None and start <= item.offset < end:
                        latest[item.key] = item.offset
        for batch in self.batches:
            if batch.first >= end:
                continue
            if batch.transaction in self.aborted:
                batch.items = []
                continue
            expired = batch.horizon_ms is not None and now_ms >= batch.horizon_ms
            batch.items = [
                item
                for item in batch.items
                if item.offset >= end
                or (
                    item.key is not None
                    and item.offset >= latest.get(item.key, -1)
                    and not (item.value is None and expired)
                )
            ]
            tombstones = any(item.value is None for item in batch.items)
            if tombstones and batch.horizon_ms is None and batch.last < end:
                batch.horizon_ms = now_ms + RETENTION_MS

    def seen(self, *, committed: bool) -> list[Seen]:
        return [
            (item.offset, item.key or "", item.value)
            for batch in self.batches
            if not (committed and batch.transaction in self.aborted)
            for item in batch.items
        ]


class Run:
    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.now_ms = START_MS
        self.config = {
            "segment_bytes": self.chance.choice((400, 1500, 6000)),
            "index_interval_bytes": self.chance.choice((0, 200)),
            "delete_retention_ms": RETENTION_MS,
        }
        self.log = compacted_log(folder, **self.config)
        self.model = Model()
        self.cleaned_to = 0
        self.keys = self.chance.choice((6, 12, 150))  # the smallest table has room for 48
        self.sequences: dict[int, int] = {}
        self.open: dict[int, int] = {}  # producer -> transaction
        self.transactions = 0

    # --- what happens

    def append(self) -> None:
        chance = self.chance
        items = []
        for i in range(chance.randrange(1, 10)):
            key = None if chance.random() < 0.03 else str(chance.randrange(self.keys))
            value = None if chance.random() < 0.2 else str(chance.randrange(10**9))
            items.append(Item(self.log.log_end + i, key, value))
        producer = chance.choice((-1, 1, 2, 3))
        fields = {}
        transaction = self.open.get(producer)
        if producer >= 0:
            sequence = self.sequences.get(producer, -1) + 1
            self.sequences[producer] = sequence + len(items) - 1
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            if transaction is None and chance.random() < 0.4:
                self.transactions += 1
                transaction = self.open[producer] = self.transactions
        batch = records(
            *[item.value for item in items],
            keys=[item.key for item in items],
            timestamp=self.now_ms,
            codec=chance.randrange(5),
            transactional=transaction is not None,
            **fields,
        )
        put(self.log, batch)
        self.model.batches.append(Written(items, producer, transaction))

    def end_transaction(self) -> None:
        if self.open:
            producer = self.chance.choice(sorted(self.open))
            commit = self.chance.random() < 0.5
            put(self.log, marker(producer, commit=commit, timestamp=self.now_ms))
            transaction = self.open.pop(producer)
            if not commit:
                self.model.aborted.add(transaction)

    def tick(self) -> None:
        self.now_ms += self.chance.randrange(700)

    def roll(self) -> None:
        if self.log.active.size:
            self.log.roll()

    def compact(self) -> None:
        job = job_for(self.log, first_dirty=self.cleaned_to, now_ms=self.now_ms)
        if not job.bases or self.cleaned_to >= job.end:
            return
        slots = self.chance.choice((64, 1 << 16))
        summary = compact_now(
            self.log,
            first_dirty=self.cleaned_to,
            now_ms=self.now_ms,
            change=lambda made: with_table(made, slots),
        )
        assert self.cleaned_to < summary.cleaned_to <= job.end
        self.model.compact(start=self.cleaned_to, end=summary.cleaned_to, now_ms=self.now_ms)
        self.cleaned_to = summary.cleaned_to
        self.check()

    def stop(self) -> None:
        self.log.close()
        self.log = compacted_log(self.folder, **self.config)

    def kill(self) -> None:
        crash(self.log)
        if self.chance.random() < 0.5:
            for snapshot in self.folder.glob(f"*{SNAPSHOT}"):
                snapshot.unlink()
        self.log = compacted_log(self.folder, clean=False, **self.config)
        self.check_producers()

    # --- what must hold

    def check(self) -> None:
        assert read(self.log, committed=True) == self.model.seen(committed=True)
        offsets = [offset for offset, _, _ in read(self.log, committed=False)]
        assert offsets == sorted(set(offsets))
        assert set(self.model.seen(committed=True)) <= set(read(self.log, committed=False))

    def check_producers(self) -> None:
        assert {p.producer_id: p.last_sequence for p in self.log.producers} == self.sequences
        undecided = [
            min(batch.first for batch in self.model.batches if batch.transaction == transaction)
            for transaction in self.open.values()
        ]
        assert self.log.producers.first_open_transaction == min(undecided, default=None)


def with_table(job: Job, slots: int) -> Job:
    return job._replace(dedupe_bytes=24 * slots)


def read(log: LocalLog, *, committed: bool) -> list[Seen]:
    """What a reader gets; of committed records only, as Kafka's consumer goes about it."""
    aborted = sorted(log.aborted_between(0, log.log_end), key=lambda entry: entry.first_offset)
    skipping: set[int] = set()
    found: list[Seen] = []
    for header, batch in batches(log):
        while aborted and aborted[0].first_offset <= header.last_offset:
            skipping.add(aborted.pop(0).producer_id)
        if header.is_control:
            skipping.discard(header.producer_id)
            continue
        if committed and header.is_transactional and header.producer_id in skipping:
            continue
        for record in iter_records(header, payload_of(header, batch, UNPACKED_LIMIT)):
            value = None if record.value is None else record.value.decode()
            found.append((record.offset, (record.key or b"").decode(), value))
    return found


OFTEN = ("append",) * 12 + ("end_transaction",) * 4 + ("tick", "roll", "check")
SELDOM = ("compact", "stop", "kill")


@pytest.mark.parametrize("seed", SEEDS)
def test_compaction_follows_its_rules(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path, seed)
    for _ in range(STEPS):
        getattr(run, run.chance.choice(OFTEN + SELDOM))()
    while run.open:
        run.end_transaction()
    for _ in range(4):  # what is decided, superseded and past its horizon goes in the end
        run.now_ms += RETENTION_MS
        run.append()
        run.roll()
        while run.cleaned_to < job_for(run.log).end:
            run.compact()
    run.check()
    run.kill()
    release_all()
