"""The partitions of a broker: opened on use, gone when deleted, closed cleanly even when the disk is full."""

import logging
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import DiskFull, NotOwner, UnknownTopic
from anabranch.base.ids import TopicName
from anabranch.log.config import LogConfig
from anabranch.log.local_log import LocalLog
from anabranch.partition.folders import CLEAN_STOP, DELETED_FOLDERS, partition_folder
from anabranch.partition.host import PartitionHost
from tests.support.hosts import a_host
from tests.support.images import led_by, partition_image, topic_image
from tests.support.logs import contents, put, records

T = TopicName.from_kafka("t")


def hosted(data: Path, *, partitions: int = 2, topic_id: int = 1, max_open: int = 100) -> PartitionHost:
    host = a_host(data, disk=DirectDisk(max_open))
    host.add_topic(topic_image(T, UUID(int=topic_id), partitions), LogConfig())
    host.recover()
    return host


def written(host: PartitionHost, value: str, index: int = 0) -> None:
    partition = host.partition("t", index)
    partition.append(memoryview(records(value)), -1)


def test_found_by_every_name_and_by_id(tmp_path: Path) -> None:
    host = hosted(tmp_path)
    assert host.partition("t", 1) is host.partition(T, 1)
    assert host.partition("persistent://public/default/t", 1) is host.partition("t", 1)
    assert host.topic_by_id(UUID(int=1)) is host.topic("t")
    assert host.topic_by_id(UUID(int=9)) is None
    assert host.topic_by_id(None) is None
    for name, index in (("none", 0), ("../t", 0), ("t", 2), ("t", -1), ("", 0)):
        with pytest.raises(UnknownTopic):
            host.partition(name, index)


def test_nothing_is_opened_before_it_is_asked_for(tmp_path: Path) -> None:
    host = hosted(tmp_path, partitions=1000)
    assert not (tmp_path / "topics").exists()
    written(host, "a", 7)
    assert len(list(host.open_replicas())) == 1
    host.change_topic(topic_image(T, UUID(int=1), 1001))
    written(host, "b", 1000)
    assert len(list(host.open_replicas())) == 2


def test_a_clean_stop_and_what_is_found_after_it(tmp_path: Path) -> None:
    host = hosted(tmp_path)
    written(host, "a")
    host.close()
    assert (tmp_path / CLEAN_STOP).exists()
    again = hosted(tmp_path)
    assert not (tmp_path / CLEAN_STOP).exists()
    assert list(again.open_replicas()) == []
    assert contents(again.partition("t", 0).log) == [(0, b"a")]


def test_an_unclean_stop_opens_what_is_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = hosted(tmp_path)
    written(host, "a")
    again = hosted(tmp_path)
    assert "was not clean" in caplog.text
    assert len(list(again.open_replicas())) == 1


def test_a_deleted_topic_is_gone_and_its_name_is_free(tmp_path: Path) -> None:
    host = hosted(tmp_path)
    removed: list[Path] = []
    host.on_removed = removed.append
    written(host, "old")
    old = host.partition("t", 0)
    written(host, "old", 1)
    host.remove_topic(T)
    assert old.retired
    assert len(removed) == 2
    assert all((folder / "00000000000000000000.log").exists() for folder in removed)
    host.add_topic(topic_image(T, UUID(int=2)), LogConfig())
    written(host, "new")
    assert contents(host.partition("t", 0).log) == [(0, b"new")]
    with pytest.raises(OSError, match="closed"):
        put(old.log, records("late"))
    assert contents(host.partition("t", 0).log) == [(0, b"new")]


def test_a_folder_left_by_another_topic_of_the_name(tmp_path: Path) -> None:
    host = hosted(tmp_path)
    written(host, "old")
    host.close()
    again = hosted(tmp_path, topic_id=2)
    removed: list[Path] = []
    again.on_removed = removed.append
    assert again.partition("t", 0).log_end == 0
    assert len(removed) == 1


def test_a_topic_whose_folders_cannot_be_moved_is_deleted_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = hosted(tmp_path)
    for index in (0, 1):
        written(host, "old", index)
    folder = partition_folder(tmp_path, T, 0)
    rename = os.rename

    def refuse(old: Any, new: Any) -> None:
        if Path(old) == folder:
            raise OSError(28, "No space left on device")
        rename(old, new)

    monkeypatch.setattr(os, "rename", refuse)
    with caplog.at_level(logging.WARNING):
        host.remove_topic(T)
    assert "No space left" in caplog.text
    assert not folder.exists(), "it is removed where it is: deleting topics is how room is made"
    with pytest.raises(UnknownTopic):
        host.topic("t")
    monkeypatch.undo()
    host.add_topic(topic_image(T, UUID(int=2), 2), LogConfig())
    assert host.partition("t", 0).log_end == 0
    assert host.partition("t", 1).log_end == 0


def test_a_stop_on_a_full_disk_is_not_a_clean_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = hosted(tmp_path)
    for index in (0, 1):
        written(host, "a", index)
    close = LocalLog.close
    closed: list[LocalLog] = []

    def full(self: LocalLog) -> None:
        closed.append(self)
        if len(closed) == 1:
            raise DiskFull("no room")
        close(self)

    monkeypatch.setattr(LocalLog, "close", full)
    host.close()
    assert len(closed) == 2
    assert not (tmp_path / CLEAN_STOP).exists()
    assert "no room" in caplog.text
    monkeypatch.undo()
    again = hosted(tmp_path)
    assert [contents(again.partition("t", index).log) for index in (0, 1)] == [[(0, b"a")]] * 2


def test_there_is_a_place_for_what_is_deleted_before_it_is_needed(tmp_path: Path) -> None:
    hosted(tmp_path)
    assert (tmp_path / DELETED_FOLDERS).is_dir(), "a full disk has no room for a folder"


def test_the_mark_is_gone_for_good_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted(tmp_path).close()
    synced: list[tuple[Path, bool]] = []
    monkeypatch.setattr(
        DirectDisk, "sync_dir", lambda self, path: synced.append((path, (tmp_path / CLEAN_STOP).exists()))
    )
    hosted(tmp_path)
    assert synced == [(tmp_path, False)]


def test_a_start_that_fails_leaves_the_mark_as_it_was(tmp_path: Path) -> None:
    host = hosted(tmp_path)
    written(host, "a")
    host.abandon()
    assert not (tmp_path / CLEAN_STOP).exists(), "it had begun to serve"
    host = hosted(tmp_path)
    host.abandon()
    assert not (tmp_path / CLEAN_STOP).exists(), "the last stop was not clean"
    hosted(tmp_path).close()
    host = hosted(tmp_path)
    assert not (tmp_path / CLEAN_STOP).exists()
    host.abandon()
    assert (tmp_path / CLEAN_STOP).exists()
    assert list(hosted(tmp_path).open_replicas()) == [], "nothing to recover"


def test_no_room_for_the_mark_of_a_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = hosted(tmp_path)
    written(host, "a")

    def full(*_: Any, **__: Any) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr(DirectDisk, "write_whole", full)
    host.close()
    assert "no room" in caplog.text


def test_descriptors_stay_bounded_over_many_partitions(tmp_path: Path) -> None:
    host = hosted(tmp_path, partitions=200, max_open=64)
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(2):
        for index in range(200):
            written(host, f"{turn}", index)
            assert len(os.listdir("/proc/self/fd")) - before <= 64
    for index in range(200):
        assert contents(host.partition("t", index).log) == [(0, b"0"), (1, b"1")]
    host.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_broker_that_restarts_leads_nothing_that_others_may_have_more_of(tmp_path: Path) -> None:
    state = partition_image(0, replicas=(1, 2), epoch=5)
    told = led_by(topic_image(T, UUID(int=1), 2), 0, state)
    host = a_host(tmp_path)
    host.add_topic(told, LogConfig())
    host.recover()
    with pytest.raises(NotOwner, match="t-0: broker 1 led it in epoch 5 before it was started again"):
        host.partition("t", 0)
    written(host, "a", 1)  # nobody else has it
    with pytest.raises(NotOwner):
        host.leader_epoch("t", 0)
    elected = partition_image(0, replicas=(1, 2), epoch=6)
    host.change_topic(led_by(told, 0, elected))
    assert host.partition("t", 0).leader_epoch == 6
    host.add_topic(
        led_by(topic_image("u", UUID(int=2)), 0, state), LogConfig()
    )  # made since: no earlier process led it
    assert host.partition("u", 0).leader_epoch == 5
