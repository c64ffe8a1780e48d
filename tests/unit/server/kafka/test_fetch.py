"""Fetch: limits in bytes, waiting and being woken, sessions, and readers whose topics go away."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from anabranch.partition.partition import Partition
from anabranch.records.batch import read_header
from anabranch.records.control import Marker
from anabranch.server.kafka.fetch import Fetch
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.logs import put, records
from tests.support.serving import FETCH, Answered, Served, read_answer

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
HOUR_MS = 3_600_000
VERSION = 16


@pytest.fixture
def served(tmp_path: Path) -> Served:
    made = Served(tmp_path)
    made.topic("t", partitions=3)
    return made


def fill(served: Served, index: int, *sizes: int, topic: str = "t") -> list[int]:
    """A batch for each size; how large they are in the log."""
    batches = [records("x" * size) for size in sizes]
    for batch in batches:
        assert served.produce(topic, batch, partition=index).error_code == 0
    return [len(batch) for batch in batches]


def waiting(served: Served, wanted: list[tuple[str, int, int]], **options: Any) -> Fetch:
    reply = served.fetch_raw(wanted, **({"max_wait": HOUR_MS} | options))
    assert isinstance(reply, Fetch), "it is answered at once"
    return reply


async def answer_of(served: Served, work: Fetch, version: int = VERSION) -> Answered:
    return Answered(served, read_answer(FETCH, version, await asyncio.wait_for(work.answered, 60)))


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def watchers(served: Served, index: int = 0) -> int:
    return len(served.partition("t", index)._waiters)


def names(codes: dict[Any, int]) -> dict[Any, str]:
    return {where: ErrorCode(code).name for where, code in codes.items()}


# --- limits


@pytest.mark.parametrize("version", range(4, 19))
def test_what_was_produced_is_fetched_at_every_version(served: Served, version: int) -> None:
    sizes = fill(served, 0, 10, 20)
    answer = served.fetch([("t", 0, 0), ("t", 1, 0)], version)
    assert answer.sizes == {T0: sum(sizes), T1: 0}
    assert answer.parts[T0].high_watermark == 2
    assert read_header(answer.parts[T0].records).base_offset == 0


def test_the_batch_that_holds_the_offset_comes_whole(served: Served) -> None:
    served.produce("t", records("a", "b", "c"))
    served.produce("t", records("d", "e"))
    for offset, first in ((0, 0), (1, 0), (2, 0), (3, 3), (4, 3)):
        answer = served.fetch([("t", 0, offset)])
        assert read_header(answer.parts[T0].records).base_offset == first
    assert served.fetch([("t", 0, 5)]).sizes == {T0: 0}


@pytest.mark.parametrize("limit", [0, 1, -1, -(2**31), 50])
def test_the_first_batch_comes_whatever_the_limits(served: Served, limit: int) -> None:
    first, _ = fill(served, 0, 100, 100)
    fill(served, 1, 100)
    for options in ({"partition_max_bytes": limit}, {"max_bytes": limit}):
        answer = served.fetch([("t", 2, 0), ("t", 0, 0), ("t", 1, 0)], **options)
        assert answer.sizes == {T2: 0, T0: first, T1: 0}


def test_only_whole_batches_within_the_limits(served: Served) -> None:
    a, b, c = fill(served, 0, 100, 200, 300)
    (d,) = fill(served, 1, 50)
    everything = [("t", 0, 0), ("t", 1, 0)]
    for limit, first in ((a, a), (a + b - 1, a), (a + b, a + b), (a + b + c, a + b + c)):
        assert served.fetch(everything, partition_max_bytes=limit).sizes == {T0: first, T1: d}
    assert served.fetch(everything, max_bytes=a + b + c + d).sizes == {T0: a + b + c, T1: d}
    assert served.fetch(everything, max_bytes=a + b + c + d - 1).sizes == {T0: a + b + c, T1: 0}
    assert served.fetch(everything, max_bytes=a + d).sizes == {T0: a, T1: d}
    assert served.fetch(everything, max_bytes=a + d - 1).sizes == {T0: a, T1: 0}


def test_the_brokers_own_limit_holds(tmp_path: Path) -> None:
    served = Served(tmp_path, fetch_max_bytes="1024")
    served.topic("t", partitions=2)
    sizes = fill(served, 0, 300, 300, 300, 300)
    answer = served.fetch([("t", 0, 0), ("t", 1, 0)], max_bytes=2**31 - 1)
    assert answer.sizes == {T0: sum(sizes[:2]), T1: 0}


# --- what cannot be fetched


def test_errors_are_told_a_partition_and_do_not_wait(served: Served) -> None:
    fill(served, 0, 10)
    wanted = [("t", 0, 1), ("t", 0, 0), ("t", 1, 1), ("t", 2, -1), ("t", 3, 0), ("t", -1, 0), ("none", 0, 0)]
    for version, unknown in ((12, "unknown_topic_or_partition"), (VERSION, "unknown_topic_id")):
        answer = served.fetch(wanted[1:], version, max_wait=HOUR_MS, min_bytes=1 << 30)
        missing = "none" if version == 12 else "?"
        assert names(answer.codes) == {
            T0: "none",
            T1: "offset_out_of_range",
            T2: "offset_out_of_range",
            ("t", 3): "unknown_topic_or_partition",
            ("t", -1): "unknown_topic_or_partition",
            (missing, 0): unknown,
        }
        assert answer.sizes[T0] > 0


def test_epochs_of_leaders(served: Served) -> None:
    fill(served, 0, 10)
    for epoch, code in (
        (-1, "none"),
        (0, "none"),
        (1, "unknown_leader_epoch"),
        (2**31 - 1, "unknown_leader_epoch"),
    ):
        answer = served.fetch([("t", 0, 0)], extra={"current_leader_epoch": epoch})
        assert names(answer.codes) == {T0: code}
    served.partition("t").leader_epoch = 3
    answer = served.fetch([("t", 0, 0)], extra={"current_leader_epoch": 2})
    assert names(answer.codes) == {T0: "fenced_leader_epoch"}


def test_a_reader_whose_history_left_ours_is_told_where(served: Served) -> None:
    partition = served.partition("t")
    for epoch in (0, 0, 4, 4, 6):
        partition.leader_epoch = epoch
        served.produce("t", records("a"))
    for told, offset, diverging in (
        (6, 5, None),
        (4, 4, None),
        (4, 5, (4, 4)),
        (5, 4, (4, 4)),
        (3, 2, (0, 2)),
        (0, 3, (0, 2)),
    ):
        part = served.fetch([("t", 0, offset)], extra={"last_fetched_epoch": told}).parts[T0]
        got = (part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
        assert got == (diverging or (-1, -1))


# --- committed readers


def test_committed_readers_stop_at_open_transactions(served: Served) -> None:
    partition = served.partition("t")
    fill(served, 0, 10)
    put(partition.log, records("in", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0))
    (size,) = fill(served, 0, 10)
    committed = served.fetch([("t", 0, 0)], isolation_level=1)
    assert committed.sizes == {T0: size}
    assert committed.parts[T0].last_stable_offset == 1
    assert committed.parts[T0].aborted_transactions == ()
    assert served.fetch([("t", 0, 0)]).parts[T0].aborted_transactions is None
    partition.end_transaction(1, 0, Marker(False, 0))
    fill(served, 0, 10)
    committed = served.fetch([("t", 0, 0)], isolation_level=1)
    told = [(one.producer_id, one.first_offset) for one in committed.parts[T0].aborted_transactions]
    assert told == [(1, 1)]
    assert committed.sizes == served.fetch([("t", 0, 0)]).sizes


# --- waiting


async def test_at_once_when_there_is_enough(served: Served) -> None:
    (size,) = fill(served, 0, 100)
    for least in (-5, 0, 1, size):
        assert served.fetch([("t", 0, 0)], min_bytes=least, max_wait=HOUR_MS).sizes == {T0: size}
    for wait in (0, -1, -(2**31)):
        assert served.fetch([("t", 0, 1)], min_bytes=size, max_wait=wait).sizes == {T0: 0}
    served.fetch([], min_bytes=10, max_wait=HOUR_MS)
    served.fetch(
        [("t", 0, 0)], min_bytes=size * 10, max_bytes=size, max_wait=HOUR_MS
    )  # least is never above most
    assert watchers(served) == 0


async def test_woken_by_a_record(served: Served) -> None:
    work = waiting(served, [("t", 0, 0), ("t", 1, 0)])
    assert (watchers(served, 0), watchers(served, 1), watchers(served, 2)) == (1, 1, 0)
    fill(served, 2, 10)
    await turns()
    assert not work.answered.done()
    (size,) = fill(served, 1, 10)
    answer = await answer_of(served, work)
    assert answer.sizes == {T0: 0, T1: size}
    assert (watchers(served, 0), watchers(served, 1)) == (0, 0)
    assert work._deadline.cancelled()


async def test_woken_when_all_partitions_together_have_enough(served: Served) -> None:
    work = waiting(served, [("t", 0, 0), ("t", 1, 0)], min_bytes=400)
    sizes = fill(served, 0, 100) + fill(served, 1, 100)
    await turns()
    assert not work.answered.done()
    sizes += fill(served, 1, 100)
    assert (await answer_of(served, work)).sizes == {T0: sizes[0], T1: sizes[1] + sizes[2]}


async def test_many_records_in_one_turn_are_looked_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    look = Fetch.look

    def counted(self: Fetch) -> None:
        nonlocal looks
        looks += 1
        look(self)

    monkeypatch.setattr(Fetch, "look", counted)
    work = waiting(served, [("t", 0, 0), ("t", 1, 0)])
    fill(served, 0, *[10] * 50)
    fill(served, 1, *[10] * 50)
    await answer_of(served, work)
    assert looks == 2


async def test_a_wide_fetch_looks_at_what_has_moved(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.topic("wide", partitions=200)
    wanted = [("wide", index, 0) for index in range(200)]
    for _, index, _ in wanted:
        served.partition("wide", index)
    work = waiting(served, wanted, min_bytes=1000)
    reads: list[int] = []
    read = Partition.read

    def counted(self: Partition, *arguments: Any, **named: Any) -> Any:
        reads.append(self.index)
        return read(self, *arguments, **named)

    monkeypatch.setattr(Partition, "read", counted)
    sizes = fill(served, 7, 100, topic="wide")
    await turns()
    sizes += fill(served, 7, 100, topic="wide") + fill(served, 9, 100, topic="wide")
    await turns()
    assert not work.answered.done()
    assert sorted(reads) == [7, 7, 9]
    while sum(sizes) < 1000:
        sizes += fill(served, 50, 100, topic="wide")
    answer = await answer_of(served, work)
    assert sum(answer.sizes.values()) == sum(sizes)
    assert len(answer.parts) == 200


async def test_logs_are_opened_a_few_at_a_time(served: Served) -> None:
    served.topic("wide", partitions=100)
    wanted = [("wide", index, 0) for index in range(101)] + [("none", 0, 0)]
    fill(served, 40, 10, topic="wide")
    others: list[int] = []

    async def somebody_else() -> None:
        while True:
            others.append(len(list(served.host.open_replicas())))
            await asyncio.sleep(0)

    task = asyncio.ensure_future(somebody_else())
    reply = await served.fetch_raw(wanted, max_wait=HOUR_MS, min_bytes=1 << 30)
    task.cancel()
    assert max(after - before for before, after in pairwise(others)) <= 17
    answer = Answered(served, read_answer(FETCH, VERSION, reply))
    assert len(answer.parts) == 102
    assert answer.sizes[("wide", 40)] > 0
    assert ErrorCode(answer.codes[("wide", 100)]).name == "unknown_topic_or_partition"
    assert isinstance(served.fetch_raw(wanted[:100], max_wait=HOUR_MS, min_bytes=1 << 30), Fetch)


async def test_what_goes_wrong_while_waiting_is_heard_of(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken, expires = waiting(served, [("t", 0, 0)]), waiting(served, [("t", 1, 0)], max_wait=20)

    def fail(self: Fetch) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(Fetch, "look", fail)
    fill(served, 0, 10)
    for work in (woken, expires):
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(work.answered, 60)
    await turns()
    assert (watchers(served, 0), watchers(served, 1)) == (0, 0)


async def test_a_translation_that_fails_is_not_asked_for_at_once_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def failed(*_: object) -> "asyncio.Future[None]":
        nonlocal asked
        asked += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(OSError("the disk fails"))
        return future

    monkeypatch.setattr(
        Fetch, "_prepared", lambda self, partition, i, *_: self._translating.append((i, failed()))
    )
    fill(served, 0, 10)
    served.partition("t", 0).log.has_entries = True
    work = waiting(served, [("t", 0, 0)])
    await turns(100)
    assert asked == 1
    work.expire()


async def test_the_deadline_answers_with_what_there_is(served: Served) -> None:
    work = waiting(served, [("t", 0, 0)], min_bytes=1000, max_wait=30)
    (size,) = fill(served, 0, 10)
    assert (await answer_of(served, work)).sizes == {T0: size}
    assert watchers(served) == 0
    work.expire()


async def test_a_very_long_wait_is_a_wait(served: Served) -> None:
    work = waiting(served, [("t", 0, 0)], max_wait=2**31 - 1)
    fill(served, 0, 10)
    await answer_of(served, work)


async def test_a_reader_that_leaves_takes_everything_along(served: Served) -> None:
    works = [waiting(served, [("t", 0, 0), ("t", 1, 0)]) for _ in range(10)]
    assert watchers(served) == 10
    for work in works:
        work.answered.cancel()
    await turns()
    assert (watchers(served, 0), watchers(served, 1)) == (0, 0)
    assert all(work._deadline.cancelled() for work in works)
    fill(served, 0, 10)
    await turns()


async def test_a_reader_that_leaves_while_it_is_woken(served: Served) -> None:
    work = waiting(served, [("t", 0, 0)])
    fill(served, 0, 10)
    work.answered.cancel()
    await turns()
    assert watchers(served) == 0


async def test_a_topic_that_goes_wakes_its_readers(served: Served) -> None:
    work = waiting(served, [("t", 0, 0), ("t", 1, 0)])
    gone = [served.partition("t", index) for index in (0, 1)]
    served.delete("t")
    answer = await answer_of(served, work)
    assert set(names(answer.codes).values()) == {"unknown_topic_id"}
    await turns()
    assert [len(partition._waiters) for partition in gone] == [0, 0]


async def test_a_topic_that_is_made_again_is_another(served: Served) -> None:
    fill(served, 0, 10, 10, 10)
    by_name = waiting(served, [("t", 0, 3)], version=12)
    served.delete("t")
    served.topic("t")
    answer = await answer_of(served, by_name, 12)
    assert names(answer.codes) in (
        {T0: "unknown_topic_or_partition"},
        {T0: "offset_out_of_range"},
    )


async def test_a_log_that_is_trimmed_below_a_reader(served: Served) -> None:
    fill(served, 0, 10, 10, 10)
    work = waiting(served, [("t", 0, 3)])
    served.partition("t").trim(3)
    await turns()
    assert not work.answered.done()
    fill(served, 0, 10)
    answer = await answer_of(served, work)
    assert answer.parts[T0].log_start_offset == 3
    assert names(served.fetch([("t", 0, 1)]).codes) == {T0: "offset_out_of_range"}


# --- sessions


async def test_a_session_tells_only_what_is_new(served: Served) -> None:
    fill(served, 0, 10)
    first = served.fetch([("t", 0, 0), ("t", 1, 0), ("t", 2, 0)], session_epoch=0)
    assert first.session_id > 0
    assert set(first.parts) == {T0, T1, T2}
    session = first.session_id
    moved = served.fetch([("t", 0, 1)], session_id=session, session_epoch=1)
    assert (moved.error_code, moved.session_id, moved.parts) == (0, session, {})
    fill(served, 2, 10)
    news = served.fetch([], session_id=session, session_epoch=2)
    assert set(news.parts) == {T2}
    assert set(served.fetch([], session_id=session, session_epoch=3).parts) == {T2}, "it did not move"
    served.partition("t", 0).trim(1)
    later = served.fetch([("t", 2, 1)], session_id=session, session_epoch=4)
    assert set(later.parts) == {T0}
    assert later.parts[T0].log_start_offset == 1
    assert served.fetch([], session_id=session, session_epoch=5).parts == {}
    assert served.fetch([], session_id=session, session_epoch=6, forget=[T0, T1, T2]).parts == {}


async def test_errors_are_told_again_and_again_in_a_session(served: Served) -> None:
    first = served.fetch([("t", 0, 5), ("t", 9, 0)], session_epoch=0)
    assert set(names(first.codes).values()) == {"offset_out_of_range", "unknown_topic_or_partition"}
    again = served.fetch([], session_id=first.session_id, session_epoch=1)
    assert names(again.codes) == names(first.codes)


@pytest.mark.parametrize(
    ("session", "epoch", "code"),
    [(1, 1, "fetch_session_id_not_found"), (None, 7, "invalid_fetch_session_epoch")],
)
def test_sessions_that_are_not(served: Served, session: int | None, epoch: int, code: str) -> None:
    mine = served.fetch([("t", 0, 0)], session_epoch=0).session_id
    answer = served.fetch([], session_id=mine if session is None else session, session_epoch=epoch)
    assert ErrorCode(answer.error_code).name == code
    assert answer.session_id == 0


async def test_a_session_that_waits_is_woken(served: Served) -> None:
    session = served.fetch([("t", 0, 0), ("t", 1, 0)], session_epoch=0).session_id
    work = waiting(served, [], session_id=session, session_epoch=1)
    fill(served, 1, 10)
    answer = await answer_of(served, work)
    assert set(answer.parts) == {T1}
    assert answer.session_id == session


async def test_under_a_limit_every_partition_of_a_session_gets_its_turn(served: Served) -> None:
    for index in (0, 1, 2):
        fill(served, index, *[100] * 5)
    wanted = [("t", index, 0) for index in (0, 1, 2)]
    answer = served.fetch(wanted, session_epoch=0, max_bytes=1)
    seen = [where for where, size in answer.sizes.items() if size]
    for epoch in (1, 2, 3, 4, 5):
        answer = served.fetch([], session_id=answer.session_id, session_epoch=epoch, max_bytes=1)
        seen += [where for where, size in answer.sizes.items() if size]
    assert seen == [T0, T1, T2, T0, T1, T2]


def test_an_enormous_request_is_looked_at_once_a_partition(served: Served) -> None:
    reply = served.fetch([("t", 0, 0)] * 5000 + [("t", 1, 0)])
    assert set(reply.parts) == {T0, T1}
