"""Upkeep on a host without sockets: who is looked at, what is synced, kept, written down, removed."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from anabranch.base.disk import Disk
from anabranch.base.errors import DiskFailed, DiskFull, Unavailable
from anabranch.base.ids import TopicName
from anabranch.log.checkpoints import LOG_STARTS, RECOVERY_POINTS
from anabranch.log.config import LogConfig
from anabranch.log.config_broker import ProducerStateConfig
from anabranch.log.glance import Glance, glance
from anabranch.log.local_log import LocalLog
from anabranch.log.segment import Segment
from anabranch.log.truncation import truncate_to
from anabranch.partition import aging as aging_module
from anabranch.partition import partition as partition_module
from anabranch.partition import upkeep as upkeep_module
from anabranch.partition.folders import CLEAN_STOP, partition_folder
from anabranch.partition.host import PartitionHost
from anabranch.partition.replica import Replica
from anabranch.partition.served_topic import ServedTopic
from tests.support.crashing_disk import FailingDisk
from tests.support.hosted import Hosted
from tests.support.images import led_by, partition_image, topic_image
from tests.support.logs import contents, records
from tests.support.waiting import until

HOUR_MS = 3_600_000


@pytest.fixture
async def hosted(tmp_path: Path) -> AsyncIterator[Hosted]:
    made = Hosted(tmp_path, FailingDisk())
    yield made
    made.kill()


def refuses(*_: object) -> None:
    raise DiskFull("no room on the disk")


def no_more_files(_: int) -> int:
    raise OSError(errno.EMFILE, "too many open files")


async def settle(hosted: Hosted) -> None:
    """Let background syncs come to their end."""
    while hosted.upkeep._syncing:
        await asyncio.gather(*hosted.upkeep._syncing.values())


def deleted_logs(hosted: Hosted) -> list[str]:
    return [name for name in hosted.files(".deleted") if ".log." in name]


# --- syncing


async def test_sealed_segments_are_synced_and_the_recovery_point_moves(hosted: Hosted) -> None:
    hosted.topic("orders", segment_bytes=150)
    for value in "abcde":
        partition = hosted.put("orders", value)
    await hosted.upkeep.look()
    await settle(hosted)
    assert partition.log.recovery_point == partition.log.active.base_offset == 4
    await hosted.upkeep.look()
    assert not hosted.upkeep._syncing


async def test_without_a_policy_the_active_segment_is_the_systems(hosted: Hosted) -> None:
    hosted.topic("orders")
    partition = hosted.put("orders", "a")
    for _ in range(3):
        await hosted.upkeep.look()
        hosted.clock.advance(HOUR_MS)
    await settle(hosted)
    assert partition.log.recovery_point == 0
    assert isinstance(hosted.disk, FailingDisk)
    assert hosted.disk.syncs == 0


async def test_flush_ms(hosted: Hosted) -> None:
    hosted.topic("orders", flush_ms=5000)
    partition = hosted.put("orders", "a")
    await hosted.upkeep.look()
    hosted.clock.advance(2900)
    await hosted.upkeep.look()
    await settle(hosted)
    assert partition.log.recovery_point == 0
    hosted.clock.advance(1200)
    await hosted.upkeep.look()
    await settle(hosted)
    assert partition.log.recovery_point == 1
    hosted.clock.advance(HOUR_MS)
    await hosted.upkeep.look()
    assert not hosted.upkeep._syncing, "nothing was written since"


async def test_a_short_flush_ms_makes_it_look_more_often(hosted: Hosted) -> None:
    assert hosted.upkeep._look_ms() == 1000
    hosted.topic("orders", flush_ms=100)
    hosted.put("orders", "a")
    await hosted.upkeep.look()
    assert hosted.upkeep._look_ms() == 50
    hosted.configure("orders")
    await hosted.upkeep.look()
    assert hosted.upkeep._look_ms() == 1000


async def test_flush_messages_holds_the_acknowledgement_back(hosted: Hosted) -> None:
    hosted.topic("orders", flush_messages=2)
    partition = hosted.partition("orders")
    first = hosted.put("orders", "a")
    assert first.log.recovery_point == 0
    appended = partition.append(memoryview(records("b", timestamp=hosted.clock.ms)), -1)
    assert appended.acknowledged is not None
    assert (partition.log.log_end, partition.high_watermark) == (2, 1), "nobody reads what a crash would lose"
    await appended.acknowledged
    assert partition.log.recovery_point == 2
    assert partition.high_watermark == 2


async def test_what_could_not_be_synced_now_is_read_later(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_module, "_SYNC_AGAIN_S", 0.01)
    hosted.topic("orders", flush_messages=1)
    partition = hosted.partition("orders")
    with monkeypatch.context() as full:
        full.setattr(os, "dup", no_more_files)
        appended = partition.append(memoryview(records("a", timestamp=hosted.clock.ms)), -1)
        assert appended.acknowledged is not None
        with pytest.raises(Unavailable):
            await appended.acknowledged
        assert partition.high_watermark == 0
    await until(lambda: partition.high_watermark == 1)


async def test_a_disk_that_fails_to_sync_ends_it(hosted: Hosted) -> None:
    hosted.topic("orders", segment_bytes=150)
    running = asyncio.create_task(hosted.upkeep.run())
    await asyncio.sleep(0)
    assert isinstance(hosted.disk, FailingDisk)
    hosted.disk.sync_error = OSError(errno.EIO, "broken")
    for value in "abc":
        hosted.put("orders", value)
    await hosted.upkeep.look()
    with pytest.raises(DiskFailed):
        await running
    hosted.disk.sync_error = None
    with pytest.raises(DiskFailed):
        await hosted.upkeep.stop()
    assert not (hosted.data / CLEAN_STOP).exists()


# --- stopping, checkpoints


async def test_a_clean_stop_makes_everything_durable_and_says_so(hosted: Hosted) -> None:
    hosted.topic("orders", 2)
    hosted.put("orders", "a", "b")
    hosted.put("orders", "c", index=1)
    hosted.partition("orders").trim(1)
    await hosted.upkeep.stop()
    hosted.host.close()
    assert not [one for one in hosted.host.open_replicas() if one.log.recovery_point < one.log.log_end]
    assert hosted.points(RECOVERY_POINTS) == {("orders", 0): 0, ("orders", 1): 0}, "read whole after a crash"
    assert hosted.points(LOG_STARTS) == {("orders", 0): 1}
    assert (hosted.data / CLEAN_STOP).exists()


async def test_checkpoints_that_cannot_be_written_do_not_keep_it_from_stopping(
    hosted: Hosted, caplog: pytest.LogCaptureFixture
) -> None:
    hosted.topic("orders")
    partition = hosted.put("orders", "a")
    assert isinstance(hosted.disk, FailingDisk)
    hosted.disk.room_bytes = 0
    assert await hosted.upkeep.stop(), "every log is durable"
    assert partition.log.recovery_point == 1
    assert caplog.text.count("no room") == 3


async def test_a_log_that_cannot_be_synced_now_makes_a_stop_unclean(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hosted.topic("orders", 3)
    partitions = [hosted.put("orders", "a", index=index) for index in range(3)]

    dup = os.dup
    refused = partitions[1].log.active.file.fileno()
    monkeypatch.setattr(os, "dup", lambda fd: no_more_files(fd) if fd == refused else dup(fd))
    assert not await hosted.upkeep.stop()
    assert [partition.log.recovery_point for partition in partitions] == [1, 0, 1]
    assert "too many open files" in caplog.text


async def test_checkpoints_are_saved_one_after_the_other(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round that a stop cancels goes on in its thread, and would write the same file beside the last."""
    hosted.topic("orders")
    hosted.put("orders", "a")
    running, most, gate = 0, 0, threading.Event()

    def save(*_: object) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        gate.wait(60)
        running -= 1

    monkeypatch.setattr(upkeep_module, "write_offsets", save)
    hosted.upkeep._moved.add(RECOVERY_POINTS)
    cut_off = asyncio.create_task(hosted.upkeep._save(RECOVERY_POINTS))
    await asyncio.sleep(0)
    cut_off.cancel()
    asyncio.get_running_loop().call_later(0.05, gate.set)
    await hosted.upkeep.stop()
    assert most == 1


async def test_log_starts_and_records_are_there_after_a_restart(hosted: Hosted) -> None:
    hosted.topic("orders")
    for value in "abc":
        hosted.put("orders", value)
    hosted.partition("orders").trim(2)
    await hosted.restart()
    partition = hosted.partition("orders")
    assert (partition.log_start, contents(partition.log)) == (2, [(2, b"c")])
    assert partition.log.recovery_point == partition.log.active.base_offset


async def test_points_are_written_only_when_they_moved(hosted: Hosted) -> None:
    hosted.topic("orders", segment_bytes=150)
    path = hosted.data / RECOVERY_POINTS
    await hosted.upkeep._save(RECOVERY_POINTS)
    assert not path.exists()
    for value in "abc":
        hosted.put("orders", value)
    await hosted.upkeep.look()
    await settle(hosted)
    await hosted.upkeep._save(RECOVERY_POINTS)
    assert hosted.points(RECOVERY_POINTS) == {("orders", 0): 2}
    path.unlink()
    await hosted.upkeep._save(RECOVERY_POINTS)
    assert not path.exists()


@pytest.mark.parametrize("opened", [True, False])
async def test_a_topic_that_is_created_again_does_not_begin_where_the_old_one_did(
    hosted: Hosted, opened: bool
) -> None:
    hosted.topic("orders", segment_bytes=150)
    for value in "abcde":
        hosted.put("orders", value)
    hosted.partition("orders").trim(5)
    await hosted.restart()
    if opened:
        hosted.partition("orders")
    assert hosted.points(LOG_STARTS) == {("orders", 0): 5}
    hosted.remove("orders")
    hosted.topic("orders", segment_bytes=150)
    hosted.put("orders", "new")
    await hosted.restart(clean=False)  # before any point was written down again
    partition = hosted.partition("orders")
    assert (partition.log_start, contents(partition.log)) == (0, [(0, b"new")])
    assert partition.log.recovery_point == 0


async def test_points_of_topics_that_are_not_served_are_not_kept(hosted: Hosted) -> None:
    hosted.topic("orders")
    hosted.put("orders", "a")
    hosted.partition("orders").trim(1)
    await hosted.upkeep.stop()
    hosted.host.close()
    hosted._topics.clear()
    hosted._begin()
    hosted.upkeep._moved |= {RECOVERY_POINTS, LOG_STARTS}
    await hosted.upkeep._save(RECOVERY_POINTS)
    await hosted.upkeep._save(LOG_STARTS)
    assert (hosted.points(RECOVERY_POINTS), hosted.points(LOG_STARTS)) == ({}, {})


async def test_a_deleted_topic_leaves_no_points(hosted: Hosted) -> None:
    hosted.topic("orders")
    hosted.put("orders", "a")
    hosted.partition("orders").trim(1)
    await hosted.upkeep.look()
    await hosted.upkeep._save(LOG_STARTS)
    hosted.remove("orders")
    await hosted.upkeep.look()
    await hosted.upkeep._save(LOG_STARTS)
    await hosted.upkeep._save(RECOVERY_POINTS)
    assert hosted.points(LOG_STARTS) == {}
    assert hosted.points(RECOVERY_POINTS) == {}


# --- retention


async def test_old_segments_go_and_their_files_after_a_while(hosted: Hosted) -> None:
    hosted.topic("orders", segment_bytes=150, retention_ms=HOUR_MS, file_delete_delay_ms=1000)
    for value in "abcdef":
        partition = hosted.put("orders", value)
        hosted.clock.advance(HOUR_MS // 2)
    await hosted.upkeep.look()
    await hosted.upkeep._aging.round()
    assert (partition.log_start, contents(partition.log)) == (4, [(4, b"e"), (5, b"f")])
    assert len(deleted_logs(hosted)) == 2
    await hosted.upkeep._removal.round()
    assert len(deleted_logs(hosted)) == 2
    hosted.clock.advance(1000)
    await hosted.upkeep._removal.round()
    assert hosted.files(".deleted") == []


async def test_segments_whose_files_cannot_be_marked_stay_until_they_can(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted.topic("orders", segment_bytes=150, file_delete_delay_ms=0)
    for value in "abcdefgh":
        partition = hosted.put("orders", value)
    partition.trim(7)
    await hosted.upkeep.look()
    bases = [segment.base_offset for segment in partition.log.segments]
    rename, left = Segment.rename, 2

    def refuse(segment: Segment, suffix: str) -> None:
        nonlocal left
        if not left:
            raise OSError(errno.EIO, "broken")
        left -= 1
        rename(segment, suffix)

    with monkeypatch.context() as broken:
        broken.setattr(Segment, "rename", refuse)
        await hosted.upkeep._aging.round()
    assert [segment.base_offset for segment in partition.log.segments] == bases[2:] == [4, 6]
    assert partition.log_start == 7
    await hosted.upkeep._removal.round()
    assert hosted.files(".deleted") == [], "those that are out of it are removed"
    hosted.clock.advance(HOUR_MS)
    await hosted.upkeep._aging.round()
    await hosted.upkeep._removal.round()
    assert len(hosted.files(".log")) == len(partition.log.segments) == 1


async def test_a_log_is_looked_at_again_when_it_comes_of_age_and_not_before(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted.topic("orders", segment_bytes=150, retention_ms=HOUR_MS)
    for value in "abc":
        partition = hosted.put("orders", value)
    await hosted.upkeep.look()
    await hosted.upkeep._aging.round()
    looked: list[object] = []
    really = hosted.upkeep._aging.check
    monkeypatch.setattr(hosted.upkeep._aging, "check", lambda each: (looked.append(each), really(each)))
    for _ in range(10):
        hosted.clock.advance(HOUR_MS // 10)
        await hosted.upkeep.look()
        await hosted.upkeep._aging.round()
    assert looked == []
    hosted.clock.advance(1)
    await hosted.upkeep._aging.round()
    assert looked == [partition.replica]
    assert partition.log_start == 3, "the active segment is too old as well"


async def test_trimmed_segments_go_whatever_the_policy(hosted: Hosted) -> None:
    hosted.topic("orders", segment_bytes=150, cleanup_policy=("compact",))
    for value in "abcde":
        partition = hosted.put("orders", value, keys=["k"])
    partition.trim(3)
    await hosted.upkeep.look()
    await hosted.upkeep._aging.round()
    assert partition.log.segments[0].base_offset == 2


async def test_logs_that_nobody_opened_age_too(hosted: Hosted) -> None:
    hosted.topic("old", 20, segment_bytes=150, retention_ms=HOUR_MS)
    hosted.topic("young", 1, retention_ms=10 * HOUR_MS)
    for index in range(0, 20, 2):
        for value in "abc":
            hosted.put("old", value, index=index)
    hosted.put("young", "a")
    await hosted.restart()
    await hosted.upkeep._aging.round()
    assert list(hosted.host.open_replicas()) == []
    hosted.clock.advance(HOUR_MS + 1)
    await hosted.upkeep._aging.round()
    assert sorted(replica.index for replica in hosted.host.open_replicas()) == list(range(0, 20, 2))
    assert all(replica.log.log_start == 3 for replica in hosted.host.open_replicas())
    hosted.configure("young", retention_ms=1)
    await hosted.upkeep._aging.round()
    await hosted.upkeep._aging.round()
    assert hosted.partition("young").log_start == 1


async def test_one_log_that_cannot_be_trimmed_does_not_keep_the_others(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a full disk no segment can be rolled, and the room is with the logs that can be trimmed."""
    hosted.topic("orders", 6, segment_bytes=150, retention_ms=HOUR_MS)
    for index in range(6):
        for value in "abc":
            hosted.put("orders", value, index=index)
    await hosted.restart()
    failing = {hosted.partition("orders", index).log for index in (0, 1)}
    await hosted.upkeep.look()
    await hosted.upkeep._aging.round()
    hosted.clock.advance(HOUR_MS + 1)
    drop, is_full = LocalLog.drop, True
    replica_of = PartitionHost.replica_of

    def refuse(self: LocalLog, dropped: list[Segment]) -> None:
        if is_full and self in failing:
            raise DiskFull("no room to roll")
        drop(self, dropped)

    def refuse_to_open(self: PartitionHost, topic: ServedTopic, index: int) -> Replica:
        if is_full and index == 2:
            raise OSError(errno.EMFILE, "too many open files")
        return replica_of(self, topic, index)

    monkeypatch.setattr(LocalLog, "drop", refuse)
    monkeypatch.setattr(PartitionHost, "replica_of", refuse_to_open)
    await hosted.upkeep._aging.round()
    assert [hosted.partition("orders", index).log_start for index in (3, 4, 5)] == [3, 3, 3]
    assert caplog.text.count("no room to roll") == 2
    assert caplog.text.count("too many open files") == 1
    is_full = False
    await hosted.upkeep._aging.round()
    assert [len(opened.segments) for opened in failing] == [2, 2], "left alone for a while"
    hosted.clock.advance(60_000)
    await hosted.upkeep._aging.round()
    assert [len(opened.segments) for opened in failing] == [1, 1]
    assert hosted.partition("orders", 2).log_start == 3


async def test_one_log_that_cannot_be_glanced_at_does_not_keep_the_others(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted.topic("orders", 3, segment_bytes=150, retention_ms=HOUR_MS)
    for index in range(3):
        for value in "abc":
            hosted.put("orders", value, index=index)
    await hosted.restart()
    hosted.clock.advance(HOUR_MS + 1)

    def refuse(disk: Disk, folder: Path, *rest: Any) -> Glance | None:
        if folder.name == "orders-1":
            raise OSError(errno.EIO, "broken")
        return glance(disk, folder, *rest)

    monkeypatch.setattr(aging_module, "glance", refuse)
    await hosted.upkeep._aging.round()
    assert sorted(replica.index for replica in hosted.host.open_replicas()) == [0, 2]
    monkeypatch.undo()
    hosted.clock.advance(60_000)
    await hosted.upkeep._aging.round()
    assert hosted.partition("orders", 1).log_start == 3


async def test_a_timestamp_in_the_future_is_said_once(
    hosted: Hosted, caplog: pytest.LogCaptureFixture
) -> None:
    hosted.topic("orders", retention_ms=1000, message_timestamp_after_max_ms=HOUR_MS)
    partition = hosted.put("orders", "a", timestamp=hosted.clock.ms + HOUR_MS)
    for _ in range(3):
        hosted.put("orders", "b")
        await hosted.upkeep.look()
        await hosted.upkeep._aging.round()
    assert caplog.text.count("in the future") == 1
    assert partition.log_start == 0


# --- the rest


async def test_silent_producers_are_forgotten(hosted: Hosted) -> None:
    hosted.config.tell(producers=ProducerStateConfig(expiration_ms=1000))
    hosted.topic("orders")
    partition = hosted.put("orders", "a", producer_id=5, producer_epoch=0, base_sequence=0)
    hosted.clock.advance(900)
    await hosted.upkeep._expire_producers()
    assert len(partition.log.producers) == 1
    hosted.clock.advance(200)
    await hosted.upkeep._expire_producers()
    assert len(partition.log.producers) == 0


async def test_folders_of_deleted_topics_go(hosted: Hosted) -> None:
    hosted.topic("orders", 3)
    hosted.put("orders", "a", index=1)
    hosted.remove("orders")
    assert len(list((hosted.data / "deleted").iterdir())) == 1
    await hosted.upkeep._removal.round()
    assert len(list((hosted.data / "deleted").iterdir())) == 1
    hosted.clock.advance(60_000)
    await hosted.upkeep._removal.round()
    assert list((hosted.data / "deleted").iterdir()) == []


async def test_logs_that_are_cut_together_are_written_down_together(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is in a file of all logs, and an election may have half of them cut."""
    hosted.topic("orders", 50)
    replicas = [hosted.put("orders", "a", "b", index=index).replica for index in range(50)]
    for replica in replicas:
        hosted.put("orders", "c", index=replica.index)
        await hosted.upkeep.flusher.flush(replica.log, 3)
        replica.log.roll()
    await hosted.upkeep._save(RECOVERY_POINTS)
    written: list[str] = []
    write = upkeep_module.write_offsets

    def counted(disk: Disk, path: Path, offsets: Any) -> None:
        written.append(path.name)
        write(disk, path, offsets)

    monkeypatch.setattr(upkeep_module, "write_offsets", counted)

    async def cut(replica: Replica) -> None:
        await hosted.upkeep.truncated(replica, truncate_to(hosted.disk, replica.log, 2))
        assert hosted.points(RECOVERY_POINTS)["orders", replica.index] == 0

    await asyncio.gather(*map(cut, replicas))
    assert written.count(RECOVERY_POINTS) == 1
    later = asyncio.create_task(cut(replicas[0]))
    await asyncio.sleep(0)
    await asyncio.gather(later, cut(replicas[1]))


async def test_nobody_leads_a_log_before_its_cut_is_done_and_written_down(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted.topic("orders")
    for value in "abc":
        replica = hosted.put("orders", value).replica
    topic = hosted.host.topic("orders")
    monkeypatch.setattr(Segment, "seal", refuses)
    with pytest.raises(DiskFull):
        truncate_to(hosted.disk, replica.log, 2)
    hosted.host.change_topic(led_by(topic.image, 0, partition_image(epoch=1)))
    with pytest.raises(DiskFull):
        hosted.partition("orders")
    await hosted.upkeep.look()  # and is refused
    monkeypatch.undo()
    monkeypatch.setattr(upkeep_module, "write_offsets", refuses)
    for _ in range(2):
        await hosted.upkeep.look()
        with pytest.raises(DiskFull):
            hosted.partition("orders")
        assert (replica.log.cut_due, replica.log.log_end) == (None, 2)
    monkeypatch.undo()
    await hosted.upkeep.look()
    assert hosted.put("orders", "d").log is replica.log
    assert contents(replica.log) == [(0, b"a"), (1, b"b"), (2, b"d")]


async def test_a_stop_with_a_cut_to_be_done_is_not_a_clean_one(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted.topic("orders")
    for value in "abc":
        replica = hosted.put("orders", value).replica
    monkeypatch.setattr(Segment, "seal", refuses)
    with pytest.raises(DiskFull):
        truncate_to(hosted.disk, replica.log, 2)
    monkeypatch.undo()
    hosted.host.close(clean=await hosted.upkeep.stop())
    assert not (hosted.data / CLEAN_STOP).exists()
    hosted._begin()
    assert contents(hosted.partition("orders").log) == [(0, b"a"), (1, b"b")]


async def test_files_that_a_log_left_behind_go_though_nobody_opens_it(hosted: Hosted) -> None:
    hosted.topic("orders", segment_bytes=150, retention_ms=HOUR_MS)
    for value in "abcde":
        hosted.put("orders", value)
    hosted.clock.advance(HOUR_MS + 1)
    await hosted.upkeep.look()
    await hosted.upkeep._aging.round()
    await hosted.restart()
    assert deleted_logs(hosted)
    await hosted.upkeep._aging.round()
    await hosted.upkeep._removal.round()
    assert hosted.files(".deleted") == []
    assert list(hosted.host.open_replicas()) == []


async def test_folders_that_no_topic_has_are_moved_aside_and_kept_for_days(
    hosted: Hosted, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("kept", "lost", "renewed", "persistent://a/b/lost"):
        hosted.topic(name, 2)
        for index in (0, 1):
            hosted.put(name, "a", index=index)
    for name in ("lost", "persistent://a/b/lost", "renewed"):  # killed before the folders were moved
        del hosted._topics[name]
    hosted._topics["renewed"] = (uuid4(), 2, LogConfig())
    (hosted.data / "topics" / "public" / "default" / "notes.txt").write_text("not ours")
    (hosted.data / "topics" / "public" / "default" / "no partition").mkdir()
    await hosted.restart()
    hosted.put("renewed", "new")
    hosted.topic("created", 1)
    hosted.put("created", "a")
    await hosted.upkeep._move_strays()
    left = {path.name for path in hosted.data.glob("topics/*/*/*")}
    assert left == {"kept-0", "kept-1", "renewed-0", "created-0", "notes.txt", "no partition"}
    assert contents(hosted.partition("kept").log) == [(0, b"a")]
    assert contents(hosted.partition("renewed").log) == [(0, b"new")]
    aside = sorted(str(path.relative_to(hosted.data)) for path in hosted.data.glob("strays/*/*/*/*"))
    moved_ms = int(aside[0].split("/")[1])
    assert aside == [
        f"strays/{moved_ms}/a/b/lost-0",
        f"strays/{moved_ms}/a/b/lost-1",
        f"strays/{moved_ms}/public/default/lost-0",
        f"strays/{moved_ms}/public/default/lost-1",
        f"strays/{moved_ms}/public/default/renewed-1",
    ]
    week_ms = 7 * 24 * 3_600_000
    for elapsed_ms, is_there in ((60_001, True), (week_ms - 60_002, True), (1, False)):
        hosted.clock.advance(elapsed_ms)
        await hosted.upkeep._move_strays()
        await hosted.upkeep._removal.round()
        assert bool(list(hosted.data.glob("strays/*"))) == is_there
    assert "lost-0" in caplog.text


@pytest.mark.parametrize("clean", [True, False])
async def test_what_was_moved_to_other_brokers_while_this_one_was_away_is_a_stray(
    hosted: Hosted, clean: bool
) -> None:
    """If it came back years later as a replica it would bring back what was compacted away meanwhile."""
    hosted.topic("orders", 3, retention_ms=HOUR_MS)
    for index in range(3):
        hosted.put("orders", "a", index=index)
    elsewhere = partition_image(1, leader=2, replicas=(2, 3))
    hosted.moved["orders"] = elsewhere
    await hosted.restart(clean=clean)
    hosted.clock.advance(HOUR_MS + 1)
    await hosted.upkeep._aging.round()
    await hosted.upkeep._move_strays()
    assert sorted(path.name for path in hosted.data.glob("topics/*/*/*")) == ["orders-0", "orders-2"]
    assert [path.name for path in hosted.data.glob("strays/*/*/*/*")] == ["orders-1"]
    assert sorted(replica.index for replica in hosted.host.open_replicas()) == [0, 2]


async def test_folders_of_names_that_are_not_kafkas(hosted: Hosted) -> None:
    data, host = hosted.data, hosted.host
    names = {text: TopicName.from_pulsar(text) for text in ("a b", "..", "ü" * 249, "gone", "é" * 249)}
    for i, name in enumerate(names.values()):
        host.add_topic(topic_image(name, UUID(int=i)), LogConfig())
        host.partition(name, 0)
    for text in ("gone", "é" * 249):  # as after a crash: the folder stays, the topic is not served
        served = host._by_name.pop(names[text].kafka)
        host._by_id.pop(served.topic_id)
    await hosted.upkeep._move_strays()
    left = set(data.glob("topics/public/default/*"))
    assert left == {partition_folder(data, names[text], 0) for text in ("a b", "..", "ü" * 249)}
    assert all(path.parent == data / "topics" / "public" / "default" for path in left)


async def test_without_any_topic_nothing_is_taken_for_a_stray(
    hosted: Hosted, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the list of the topics that was lost then."""
    hosted.topic("orders")
    hosted.put("orders", "a")
    hosted._topics.clear()
    await hosted.restart()
    await hosted.upkeep._move_strays()
    assert [path.name for path in hosted.data.glob("topics/*/*/*")] == ["orders-0"]
    assert "no topic" in caplog.text


async def test_what_the_last_run_had_no_time_to_remove(hosted: Hosted) -> None:
    (hosted.data / "deleted" / "abc").mkdir(parents=True)
    running = asyncio.create_task(hosted.upkeep.run())
    await until(lambda: len(hosted.upkeep._removal._folders) == 1)
    hosted.clock.advance(60_000)
    await hosted.upkeep._removal.round()
    assert list((hosted.data / "deleted").iterdir()) == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_folder_that_cannot_be_listed_does_not_end_it(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_module, "_FIRST_RETRY_S", 0.01)
    deleted = hosted.data / "deleted"
    (deleted / "abc").mkdir(parents=True)
    listed, failures = hosted.disk.list, [OSError(errno.EIO, "broken")] * 3

    def listing(path: Path) -> Sequence[str]:
        if path == deleted and failures:
            raise failures.pop()
        return listed(path)

    monkeypatch.setattr(hosted.disk, "list", listing)
    running = asyncio.create_task(hosted.upkeep.run())
    await until(lambda: running.done() or len(hosted.upkeep._removal._folders) == 1)
    assert not running.done()
    assert not failures
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_points_that_could_not_be_written_down_are_next_time(hosted: Hosted) -> None:
    hosted.topic("orders", segment_bytes=150)
    for value in "abc":
        hosted.put("orders", value)
    hosted.partition("orders").trim(1)
    await hosted.upkeep.look()
    await settle(hosted)
    assert isinstance(hosted.disk, FailingDisk)
    room, hosted.disk.room_bytes = hosted.disk.room_bytes, 0
    for name in (RECOVERY_POINTS, LOG_STARTS):
        with pytest.raises(DiskFull):
            await hosted.upkeep._save(name)
    hosted.disk.room_bytes = room
    await hosted.upkeep._save(RECOVERY_POINTS)
    await hosted.upkeep._save(LOG_STARTS)
    assert hosted.points(RECOVERY_POINTS) == {("orders", 0): 2}
    assert hosted.points(LOG_STARTS) == {("orders", 0): 1}


async def test_files_that_cannot_be_removed_are_tried_again(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted.topic("orders", segment_bytes=150, file_delete_delay_ms=1000)
    hosted.topic("gone")
    hosted.put("gone", "a")
    for value in "abc":
        hosted.put("orders", value)
    hosted.partition("orders").trim(2)
    hosted.remove("gone")
    await hosted.upkeep.look()
    await hosted.upkeep._aging.round()

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr(hosted.disk, "remove", refuse)
        broken.setattr(hosted.disk, "remove_tree", refuse)
        hosted.clock.advance(60_000)
        await hosted.upkeep._removal.round()
    assert len(deleted_logs(hosted)) == 1
    hosted.clock.advance(60_000)
    await hosted.upkeep._removal.round()
    assert len(deleted_logs(hosted)) == 1, "the disk has its peace"
    hosted.clock.advance(240_000)
    await hosted.upkeep._removal.round()
    assert hosted.files(".deleted") == []
    assert list((hosted.data / "deleted").iterdir()) == []


async def test_an_untouched_log_costs_nothing(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    hosted.topic("orders", 500, retention_ms=HOUR_MS)
    for index in range(500):
        hosted.partition("orders", index)
    await hosted.upkeep.look()
    await hosted.upkeep._aging.round()

    def touched(*_: object) -> None:
        raise AssertionError("somebody looked at an idle log")

    monkeypatch.setattr(hosted.upkeep, "_look_at", touched)
    monkeypatch.setattr(hosted.upkeep._aging, "check", touched)
    for _ in range(5):
        hosted.clock.advance(600_000)
        await hosted.upkeep.look()
        await hosted.upkeep._aging.round()
        await hosted.upkeep._clean()


async def test_a_round_that_fails_is_tried_again_later_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Enough(BaseException):
        pass

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 7:
            raise Enough

    failures = [OSError("disk"), ValueError("bug"), DiskFailed("x"), None, OSError("again"), None]

    async def work() -> None:
        failure = failures.pop(0)
        if failure is not None:
            raise failure

    monkeypatch.setattr(upkeep_module.asyncio, "sleep", sleep)
    with pytest.raises(Enough):
        await upkeep_module._repeat("work", work, lambda: 60_000, 500)
    assert waits == [0.5, 1.0, 2.0, 4.0, 60.0, 1.0, 60.0]
