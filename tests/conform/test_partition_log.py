"""What every `PartitionLog` must do, whoever keeps the records.

An implementation joins with a line in `IMPLEMENTATIONS`: from a folder to something that makes logs.

    make(**config)         a new, empty log with a topic's options
    again(log)             the same log after a restart, None if nothing outlives one (a memory topic)
    put_marker(log, ...)   end a transaction, as a coordinator would; None if it knows none
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import pytest

from anabranch.base.errors import (
    AnabranchError,
    InvalidRecord,
    OffsetOutOfRange,
    OutOfOrderSequence,
    TooLarge,
)
from anabranch.base.ids import TopicName
from anabranch.base.network import Chunk, FileRange
from anabranch.log.config import LogConfig
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation, PartitionLog
from anabranch.records.batch import BatchHeader, split_batches
from anabranch.records.builder import build_batch
from anabranch.records.control import Marker
from anabranch.records.record import Record, iter_records, payload_of
from tests.support.images import topic_image
from tests.support.led import Handed, Led
from tests.support.logs import START_MS, records
from tests.unit.partition.test_host import hosted

ALL = 1 << 30


class Maker(Protocol):
    def make(self, **config: Any) -> PartitionLog: ...

    def again(self, log: PartitionLog) -> PartitionLog | None: ...

    def put_marker(self, log: PartitionLog, producer_id: int, *, commit: bool) -> None: ...


class OnDisk:
    """`Partition`, led by this broker, on its own disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._host = hosted(folder)
        self._made = 0
        self._config = LogConfig()

    def make(self, **config: Any) -> Partition:
        self._made += 1
        self._config = LogConfig(**config)
        name = TopicName.from_kafka(f"made-{self._made}")
        self._host.add_topic(topic_image(name, UUID(int=100 + self._made)), self._config)
        return self._host.partition(name, 0)

    def again(self, log: PartitionLog) -> Partition:
        self._host.close()
        self._host = hosted(self._folder)
        name = TopicName.from_kafka(f"made-{self._made}")
        self._host.add_topic(topic_image(name, UUID(int=100 + self._made)), self._config)
        return self._host.partition(name, 0)

    def put_marker(self, log: PartitionLog, producer_id: int, *, commit: bool) -> None:
        assert isinstance(log, Partition)
        log.end_transaction(producer_id, 0, Marker(commit, 0))
        log.append(memoryview(records("after")), -1)


class HandedOn:
    """`Partition` with a follower that lags, and with many leaders, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._led = Led(folder)
        self._made = 0
        self._config: dict[str, Any] = {}

    def make(self, **config: Any) -> PartitionLog:
        self._made += 1
        self._config = config
        return self._add(epoch=0)

    def again(self, log: PartitionLog) -> PartitionLog:
        assert isinstance(log, Handed)
        epoch = log.role.leader_epoch
        self._led.host.close()
        self._led = Led(self._folder)
        return self._add(epoch=epoch + 1)

    def _add(self, *, epoch: int) -> Handed:
        name = f"made-{self._made}"
        self._led.add(name, epoch=epoch, id=100 + self._made, **self._config)
        return Handed(self._led, name)

    def put_marker(self, log: PartitionLog, producer_id: int, *, commit: bool) -> None:
        assert isinstance(log, Handed)
        log.put_marker(producer_id, commit=commit)
        append(log, "after")


IMPLEMENTATIONS: dict[str, Callable[[Path], Maker]] = {
    "on disk": OnDisk,
    "handed on, with a follower that lags": HandedOn,
}


@pytest.fixture(params=IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS.keys())
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    made: Maker = request.param(tmp_path)
    return made


@pytest.fixture
def log(maker: Maker) -> PartitionLog:
    return maker.make()


def append(log: PartitionLog, *values: str, **fields: Any) -> int:
    """Append one batch; its base offset.  The buffer is used again at once, as a socket's would be."""
    buffer = bytearray(records(*values, **fields))
    appended = log.append(memoryview(buffer), -1)
    buffer[:] = bytes(len(buffer))
    return appended.base_offset


def content_of(chunk: Chunk) -> bytes:
    if isinstance(chunk, FileRange):
        return chunk.file.pread(chunk.size, chunk.position)
    return bytes(chunk)


def read(
    log: PartitionLog,
    offset: int,
    max_bytes: int = ALL,
    isolation: Isolation = Isolation.UNCOMMITTED,
    *,
    whole_first: bool = True,
) -> list[tuple[BatchHeader, bytes]]:
    """The batches of one read, checked to be whole."""
    chunk = log.read(offset, max_bytes, isolation, whole_first=whole_first)
    return (
        []
        if chunk is None
        else [(header, bytes(batch)) for header, batch in split_batches(content_of(chunk))]
    )


def read_all(
    log: PartitionLog, offset: int | None = None, max_bytes: int = ALL, **options: Any
) -> list[tuple[int, str]]:
    """Offset and value of every record from `offset` on, by as many reads as it takes."""
    found: list[tuple[int, str]] = []
    offset = log.log_start if offset is None else offset
    while batches := read(log, offset, max_bytes, **options):
        for header, batch in batches:
            if not header.is_control:
                payload = payload_of(header, batch, ALL)
                found += [(r.offset, (r.value or b"").decode()) for r in iter_records(header, payload)]
            offset = header.last_offset + 1
    return found


def standing(log: PartitionLog) -> tuple[int, int, int, int]:
    """LW, LSO, HW, LEO, checked to be in order."""
    marks = (log.log_start, log.last_stable, log.high_watermark, log.log_end)
    assert list(marks) == sorted(marks)
    return marks


# --- appending and reading


def test_a_new_log_is_empty(log: PartitionLog) -> None:
    assert standing(log) == (0, 0, 0, 0)
    assert log.read(0, ALL, Isolation.UNCOMMITTED, whole_first=True) is None
    assert log.read(0, ALL, Isolation.COMMITTED, whole_first=True) is None


def test_offsets_count_records_without_gaps(log: PartitionLog) -> None:
    assert append(log, "a") == 0
    assert append(log, "b", "c", "d") == 1
    assert append(log, "e") == 4
    assert standing(log) == (0, 5, 5, 5)
    assert read_all(log) == [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e")]


def test_a_read_starts_with_the_batch_that_holds_its_offset(log: PartitionLog) -> None:
    append(log, "a", "b", "c")
    append(log, "d", "e")
    for offset, first in ((0, 0), (1, 0), (2, 0), (3, 3), (4, 3)):
        assert read(log, offset)[0][0].base_offset == first
    assert read(log, 5) == []


@pytest.mark.parametrize("codec", range(5))
def test_batches_come_back_as_they_were_sent(log: PartitionLog, codec: int) -> None:
    sent = bytes(
        records(
            "a" * 100, "b", keys=["k", None], codec=codec, producer_id=3, producer_epoch=1, base_sequence=0
        )
    )
    append(log, "before")
    log.append(memoryview(bytearray(sent)), -1)
    ((header, stored),) = read(log, 1)
    assert stored[16:] == sent[16:], "all but its place is the producer's"
    assert (header.base_offset, header.last_offset) == (1, 2)


def test_reads_keep_to_their_limit_in_whole_batches(log: PartitionLog) -> None:
    sizes = []
    for number in range(40):
        append(log, "x" * (10 + number * 13))
    sizes = [header.size_bytes for header, _ in read(log, 0)]
    assert len(sizes) == 40
    for limit in (0, 1, sizes[0] - 1, sizes[0], sizes[0] + 1, sum(sizes[:7]), sum(sizes) - 1, sum(sizes)):
        got = [header.size_bytes for header, _ in read(log, 0, limit, whole_first=False)]
        assert got == sizes[: len(got)]
        assert sum(got) <= limit
        assert [h.size_bytes for h, _ in read(log, 0, limit)] == (got or sizes[:1])
    assert read(log, 0, sum(sizes[:7]), whole_first=False) != []


@pytest.mark.parametrize("max_bytes", [1, 100, 700, 5000])
def test_however_it_is_read_it_is_the_same(log: PartitionLog, max_bytes: int) -> None:
    chance = random.Random(max_bytes)
    meant: list[tuple[int, str]] = []
    for _ in range(200):
        values = [f"{chance.random()}" * chance.randrange(5) for _ in range(chance.randrange(1, 6))]
        append(log, *values)
        meant += [(len(meant) + i, value) for i, value in enumerate(values)]
    assert read_all(log, max_bytes=max_bytes) == meant
    for _ in range(50):
        start = chance.randrange(len(meant))
        found = read_all(log, start, max_bytes=max_bytes)
        assert [row for row in found if row[0] >= start] == meant[start:]


@pytest.mark.parametrize("offset", [-1, -(2**63), 6, 2**63 - 1])
def test_offsets_that_the_log_does_not_have(log: PartitionLog, offset: int) -> None:
    append(log, "a", "b", "c", "d", "e")
    with pytest.raises(OffsetOutOfRange):
        log.read(offset, ALL, Isolation.UNCOMMITTED, whole_first=True)


def test_readers_at_different_places_at_once(log: PartitionLog) -> None:
    places = dict.fromkeys(range(30), 0)
    for number in range(300):
        append(log, f"{number}")
        reader = number % 30
        for header, _ in read(log, places[reader], 500):
            assert header.base_offset == places[reader]
            places[reader] = header.last_offset + 1
    assert [read_all(log, place)[-1:] for place in places.values()] == [[(299, "299")]] * 30


# --- what is refused


def test_what_is_refused_changes_nothing(maker: Maker) -> None:
    log = maker.make(max_message_bytes=500)
    append(log, "a")
    good = bytes(records("b"))
    wrong: list[tuple[bytes, type[AnabranchError]]] = [
        (good[:50], AnabranchError),
        (good[:-1], AnabranchError),
        (good + good, InvalidRecord),
        (good[:-1] + b"?", AnabranchError),
        (bytes(records("x" * 500)), TooLarge),
    ]
    for batch, error in wrong:
        with pytest.raises(error):
            log.append(memoryview(bytearray(batch)), -1)
    assert standing(log) == (0, 1, 1, 1)
    assert append(log, "b") == 1
    assert read_all(log) == [(0, "a"), (1, "b")]


def test_idempotent_producers(maker: Maker) -> None:
    log: PartitionLog | None = maker.make()
    assert log is not None

    def sent(log: PartitionLog, sequence: int, epoch: int = 0) -> int:
        return append(log, "a", "b", producer_id=1, producer_epoch=epoch, base_sequence=sequence)

    assert [sent(log, 0), sent(log, 2), sent(log, 0), sent(log, 2), sent(log, 4)] == [0, 2, 0, 2, 4]
    with pytest.raises(OutOfOrderSequence):
        sent(log, 8)
    assert standing(log) == (0, 6, 6, 6)
    log = maker.again(log)
    if log is not None:
        assert sent(log, 4) == 4
        assert sent(log, 6) == 6
        with pytest.raises(OutOfOrderSequence):
            sent(log, 20)


def test_acknowledged_in_the_end(log: PartitionLog) -> None:
    async def scenario() -> None:
        for acks in (0, 1, -1):
            appended = log.append(memoryview(records("a")), acks)
            if appended.acknowledged is not None:
                await asyncio.wait_for(appended.acknowledged, 60)
        assert log.high_watermark == 3

    asyncio.run(scenario())


def test_the_brokers_time(maker: Maker) -> None:
    log = maker.make(message_timestamp_type="LogAppendTime")
    appended = log.append(memoryview(records("a", timestamp=5)), -1)
    ((header, _),) = read(log, 0)
    assert header.max_timestamp == appended.append_time_ms > 5
    log = maker.make()
    assert log.append(memoryview(records("a", timestamp=5)), -1).append_time_ms == -1


# --- waiting


def test_readers_are_woken_when_they_can_see_more(log: PartitionLog) -> None:
    woken: list[int] = []

    def waiter() -> None:
        woken.append(log.high_watermark)

    log.wait(waiter)
    append(log, "a")
    append(log, "b")
    assert woken
    assert woken[-1] == 2
    log.stop_waiting(waiter)
    log.stop_waiting(waiter)
    seen = len(woken)
    append(log, "c")
    assert len(woken) == seen


def test_a_waiter_may_leave_and_read_while_it_is_woken(log: PartitionLog) -> None:
    found: list[Any] = []

    def waiter() -> None:
        log.stop_waiting(waiter)
        found.extend(read_all(log))

    log.wait(waiter)
    append(log, "a")
    append(log, "b")
    assert found == [(0, "a")]


# --- trimming


def test_the_low_watermark_moves_up_only(log: PartitionLog) -> None:
    for number in range(10):
        append(log, f"{number}")
    assert log.trim(4) == 4
    assert standing(log) == (4, 10, 10, 10)
    assert log.trim(2) == 4
    assert read_all(log) == [(n, f"{n}") for n in range(4, 10)]
    for offset in (3, 0):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, ALL, Isolation.UNCOMMITTED, whole_first=True)
    for offset in (11, -1):
        with pytest.raises(OffsetOutOfRange):
            log.trim(offset)
    assert log.trim(10) == 10
    assert standing(log) == (10, 10, 10, 10)
    assert read(log, 10) == []
    assert append(log, "next") == 10
    assert read_all(log) == [(10, "next")]


def test_trimmed_inside_a_batch(log: PartitionLog) -> None:
    append(log, "a", "b", "c")
    assert log.trim(1) == 1
    assert read(log, 1)[0][0].base_offset == 0, "batches stay whole"


# --- by time


def at_time(log: PartitionLog, timestamp: int) -> tuple[int, int] | None:
    found = asyncio.run(find(log, timestamp))
    return None if found is None else (found.timestamp, found.offset)


async def find(log: PartitionLog, timestamp: int) -> Any:
    return await log.offset_for_time(timestamp)


@pytest.mark.parametrize("codec", range(5))
def test_the_first_record_at_or_after_a_time(log: PartitionLog, codec: int) -> None:
    assert at_time(log, 0) is None
    for number in range(200):
        append(log, f"{number}", timestamp=START_MS + number * 10, codec=codec)
    assert at_time(log, 0) == (START_MS, 0)
    assert at_time(log, START_MS) == (START_MS, 0)
    assert at_time(log, START_MS + 1) == (START_MS + 10, 1)
    assert at_time(log, START_MS + 1990) == (START_MS + 1990, 199)
    assert at_time(log, START_MS + 1991) is None
    log.trim(100)
    assert at_time(log, 0) == (START_MS + 1000, 100)


def test_times_out_of_order(log: PartitionLog) -> None:
    for shift in (50, 10, 70, 30, 70, 90):
        append(log, "x", timestamp=START_MS + shift)
    for sought, found in ((0, 0), (51, 2), (71, 5), (20, 0)):
        got = at_time(log, START_MS + sought)
        assert got is not None
        assert got[1] == found


def test_a_time_that_only_trimmed_records_have(log: PartitionLog) -> None:
    late, early = (Record(i, START_MS + shift, None, b"x") for i, shift in enumerate((100, 0)))
    log.append(memoryview(build_batch([late, early])), -1)
    append(log, "next", timestamp=START_MS + 200)
    assert at_time(log, START_MS + 50) == (START_MS + 100, 0)
    log.trim(1)
    assert at_time(log, START_MS + 50) == (START_MS + 200, 2)
    assert at_time(log, START_MS + 201) is None


# --- transactions


def test_committed_readers_stop_where_a_transaction_is_open(maker: Maker, log: PartitionLog) -> None:
    append(log, "a")
    append(log, "in", transactional=True, producer_id=9, producer_epoch=0, base_sequence=0)
    append(log, "b")
    assert standing(log) == (0, 1, 3, 3)
    assert read_all(log, isolation=Isolation.COMMITTED) == [(0, "a")]
    assert len(read_all(log)) == 3
    maker.put_marker(log, 9, commit=True)
    assert log.last_stable == log.high_watermark
    assert [value for _, value in read_all(log, isolation=Isolation.COMMITTED)][:3] == ["a", "in", "b"]


# --- restarts


def test_everything_is_there_after_a_restart(maker: Maker) -> None:
    log: PartitionLog | None = maker.make()
    assert log is not None
    for number in range(100):
        append(log, f"{number}", "x" * number)
    log.trim(7)
    meant, marks = read_all(log), standing(log)
    log = maker.again(log)
    if log is None:
        return
    assert (log.high_watermark, log.log_end) == marks[2:]
    assert read_all(log, 7) == meant
    assert append(log, "next") == 200


# --- against a list


@pytest.mark.parametrize("seed", range(4))
def test_against_a_list(maker: Maker, seed: int) -> None:
    chance = random.Random(seed)
    log: PartitionLog | None = maker.make(segment_bytes=4096, index_interval_bytes=200)
    start, kept = 0, []
    for step in range(300):
        assert log is not None
        action = chance.random()
        if action < 0.6:
            values = [f"{step}.{i}" * chance.randrange(1, 9) for i in range(chance.randrange(1, 5))]
            assert append(log, *values, codec=chance.randrange(5)) == start + len(kept)
            kept += values
        elif action < 0.63 and kept:
            cut = chance.randrange(min(len(kept), 20))
            log.trim(start + cut)
            start, kept = start + cut, kept[cut:]
        elif action < 0.64 and (later := maker.again(log)) is not None:
            log = later
            log.trim(start)
        else:
            offset = start + chance.randrange(len(kept) + 1)
            found = read_all(log, offset, chance.choice((1, 300, 3000, ALL)))
            meant = [(start + i, value) for i, value in enumerate(kept)]
            assert [row for row in found if row[0] >= offset] == meant[offset - start :]
        assert standing(log)[0] == start
        assert log.log_end == start + len(kept)
