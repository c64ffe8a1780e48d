"""The store of one node: rounds, faults of the disk, rewriting."""

import asyncio
import errno
from itertools import pairwise
from pathlib import Path

import pytest

from anabranch.base.errors import Conflict, DiskFull, Exists, Unavailable
from anabranch.meta import journal, rounds
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.store import MUST_NOT_EXIST, Event
from tests.support.metadata import content, contents
from tests.unit.meta.faulty_disk import FaultyDisk


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.journal"


def size_of(path: Path) -> int:
    return path.stat().st_size


def inode_of(path: Path) -> int:
    return path.stat().st_ino


async def reopened(store: EmbeddedStore, path: Path) -> EmbeddedStore:
    await store.close()
    return EmbeddedStore.open(path, FaultyDisk())


async def test_concurrent_changes_share_a_sync(disk: FaultyDisk, path: Path) -> None:
    store = EmbeddedStore.open(path, disk)
    await asyncio.gather(*(store.put(f"/t/{i}", b"x") for i in range(500)))
    assert disk.syncs == 1
    await store.put("/t/0", b"y")
    assert disk.syncs == 2
    await store.close()


async def test_what_is_asked_for_during_a_round_waits_for_the_next(disk: FaultyDisk, path: Path) -> None:
    store = EmbeddedStore.open(path, disk)
    first = asyncio.create_task(store.put("/a", b"1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the round has left for the disk
    others = [asyncio.create_task(store.put("/a", b"2")) for _ in range(50)]
    assert await first == 0
    assert [await other for other in others] == list(range(1, 51))
    assert disk.syncs == 2
    await store.close()


async def test_readers_see_only_what_is_durable(disk: FaultyDisk, path: Path) -> None:
    store = EmbeddedStore.open(path, disk)
    change = asyncio.create_task(store.put("/a", b"1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert store.tree.get("/a") is None
    assert await store.get("/a") is None
    await change
    assert content(store.tree.get("/a")) == (b"1", 0)
    await store.close()


async def test_refusals_and_ephemeral_nodes_cost_no_sync(disk: FaultyDisk, path: Path) -> None:
    store = EmbeddedStore.open(path, disk)
    await store.put("/brokers", b"")
    await store.create("/brokers/1", b"", ephemeral=True)
    await store.put("/brokers/1", b"2")
    await store.delete("/brokers/1")
    with pytest.raises(Exists):
        await store.put("/brokers", b"", MUST_NOT_EXIST)
    assert disk.syncs == 2, "the first ephemeral node of a process makes sure of its ids"
    await store.create("/brokers/2", b"", ephemeral=True)
    assert disk.syncs == 2
    await store.close()


async def test_a_full_disk_changes_nothing_and_the_store_goes_on(disk: FaultyDisk, path: Path) -> None:
    store = EmbeddedStore.open(path, disk)
    heard: list[Event] = []
    await store.put("/a", b"kept")
    await store.watch("/", heard.append)
    disk.room_bytes = 10
    outcomes = await asyncio.gather(
        store.put("/a", b"lost", 0),
        store.put("/b", b"lost", MUST_NOT_EXIST),
        store.put("/b", b"lost", MUST_NOT_EXIST),  # Exists would be untrue: /b was not made
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [DiskFull] * 3
    assert contents(await store.scan("/")) == [("/a", (b"kept", 0))]
    assert heard == []
    disk.room_bytes = None
    assert await store.put("/b", b"made", MUST_NOT_EXIST) == 0
    assert await store.put("/a", b"next", 0) == 1
    store = await reopened(store, path)
    assert contents(await store.scan("/")) == [("/a", (b"next", 1)), ("/b", (b"made", 0))]
    await store.close()


async def test_a_failed_sync_is_answered_and_the_file_replaced(disk: FaultyDisk, path: Path) -> None:
    store = EmbeddedStore.open(path, disk)
    await store.put("/a", b"kept")
    disk.failing_syncs = 1
    with pytest.raises(Unavailable, match=str(path)):
        await store.put("/a", b"lost")
    disk.room_bytes = 0
    with pytest.raises(DiskFull):
        await store.put("/a", b"no room for a new file")
    disk.room_bytes = None
    inode = inode_of(path)
    with pytest.raises(Conflict):
        await store.put("/a", b"", 1)
    assert await store.put("/a", b"next", 0) == 1
    assert inode_of(path) != inode
    assert not path.with_name("metadata.journal.tmp").exists()
    store = await reopened(store, path)
    assert contents(await store.scan("/")) == [("/a", (b"next", 1))]
    await store.close()


async def test_a_journal_does_not_outgrow_what_it_holds(
    disk: FaultyDisk, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_MIN_REWRITE_BYTES", 2000)
    store = EmbeddedStore.open(path, disk)
    await store.create("/q/n-", b"", sequential=True)
    await store.create("/here", b"", ephemeral=True)
    sizes = []
    for i in range(1000):
        await store.put("/t", b"%d" % i)
        sizes.append(size_of(path))
    assert max(sizes) < 2200
    assert sum(later < earlier for earlier, later in pairwise(sizes)) > 5
    store = await reopened(store, path)
    assert content(await store.get("/t")) == (b"999", 999)
    assert await store.get("/here") is None
    assert await store.create("/q/n-", b"", sequential=True) == "/q/n-0000000001"
    await store.close()


async def test_no_room_to_rewrite_is_no_reason_to_refuse(
    disk: FaultyDisk, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_MIN_REWRITE_BYTES", 2000)
    store = EmbeddedStore.open(path, disk)
    await store.put("/ballast", b"x" * 300)
    while size_of(path) <= 2000:
        await store.put("/t", b"y" * 50)
    disk.room_bytes = 350  # for a change, not for another 400 bytes of journal
    version = await store.put("/t", b"z")
    assert not path.with_name("metadata.journal.tmp").exists()
    disk.room_bytes = None
    while size_of(path) > 2000:
        version = await store.put("/t", b"z" * 50)
    store = await reopened(store, path)
    assert content(await store.get("/t")) == (b"z" * 50, version)
    await store.close()


async def test_a_new_journal_that_cannot_be_opened_is_written_again(
    disk: FaultyDisk, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_MIN_REWRITE_BYTES", 2000)
    store = EmbeddedStore.open(path, disk)
    while size_of(path) <= 2000:
        await store.put("/t", b"y" * 50)

    def refuse(path: Path) -> int:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr(disk, "size", refuse)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await asyncio.wait_for(store.put("/t", b"z"), 60)
    version = await store.put("/t", b"z")
    store = await reopened(store, path)
    assert content(await store.get("/t")) == (b"z", version)
    await store.close()


async def test_a_caller_that_gave_up_before_the_round_changes_nothing(disk: FaultyDisk, path: Path) -> None:
    store = EmbeddedStore.open(path, disk)
    caller = asyncio.create_task(store.put("/a", b""))
    await asyncio.sleep(0)
    caller.cancel()
    await store.put("/b", b"")
    assert caller.cancelled()
    assert await store.get("/a") is None
    await store.close()


async def test_a_caller_that_gave_up_during_the_round_disturbs_nobody(disk: FaultyDisk, path: Path) -> None:
    store = EmbeddedStore.open(path, disk)
    caller = asyncio.create_task(store.put("/a", b""))
    other = asyncio.create_task(store.put("/b", b""))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    assert await other == 0
    assert content(await store.get("/a")) == (b"", 0)
    await store.close()


async def test_close_finishes_what_was_asked_for(disk: FaultyDisk, path: Path) -> None:
    store = EmbeddedStore.open(path, disk)
    changes = [asyncio.create_task(store.put(f"/{i}", b"")) for i in range(3)]
    await asyncio.sleep(0)
    await store.close()
    assert [await change for change in changes] == [0, 0, 0]
    with pytest.raises(Unavailable):
        await store.put("/late", b"")
    assert len(EmbeddedStore.open(path, FaultyDisk()).tree) == 3


async def test_what_may_wait_is_bounded(
    disk: FaultyDisk, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "MAX_WAITING_BYTES", 1000)
    store = EmbeddedStore.open(path, disk)
    outcomes = await asyncio.gather(
        *(store.put(f"/{i}", bytes(300)) for i in range(5)), return_exceptions=True
    )
    assert outcomes[:3] == [0, 0, 0]
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes[3:])
    assert await store.put("/4", bytes(300)) == 0
    await store.close()


async def test_events_come_before_the_answer_and_a_faulty_watcher_harms_nobody(
    disk: FaultyDisk, path: Path
) -> None:
    store = EmbeddedStore.open(path, disk)
    faults: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))
    heard: list[str] = []

    def faulty(event: Event) -> None:
        raise RuntimeError(event.path)

    await store.watch("/", faulty)
    await store.watch("/", lambda event: heard.append(event.path))
    await store.put("/a", b"")
    assert heard == ["/a"]
    assert [str(fault) for fault in faults] == ["/a"]
    await store.close()
