"""Delayed messages: due in time, each once, over restarts and damage, without growing in memory."""

import errno
import logging
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk, File
from anabranch.base.errors import DiskFull
from anabranch.subscriptions import delay
from anabranch.subscriptions.delay import Delays
from tests.support.refusals import refused_after


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay, "_IN_MEMORY", 64)
    monkeypatch.setattr(delay, "_NEAREST", 16)


def opened(folder: Path, now_ms: int = 1_000) -> Delays:
    return Delays(DirectDisk(10), folder, now_ms)


def all_due(view: delay.DelayView, now_ms: int) -> list[int]:
    found: list[int] = []
    while part := view.due(now_ms, 10):
        found += part
    return found


def test_in_time_and_once(tmp_path: Path) -> None:
    view = opened(tmp_path).view()
    assert view.next_due_ms() is None
    view.add(7, 3_000)
    view.add(3, 2_000)
    view.add(7, 3_000)
    assert (len(view), view.next_due_ms()) == (2, 2_000)
    assert view.due(1_999, 10) == []
    assert view.due(2_000, 10) == [3]
    assert view.due(9_000, 10) == [7]
    assert view.due(9_000, 10) == []
    assert (len(view), view.next_due_ms()) == (0, None)


def test_a_thousand_are_on_disk_and_come_back(tmp_path: Path) -> None:
    delays = opened(tmp_path)
    view = delays.view()
    for offset in range(1_000):
        view.add(offset, 2_000 + offset * 7 % 1_000)
    assert (tmp_path / "delays.0").exists()
    assert sorted(all_due(view, 2_499)) == [o for o in range(1_000) if o * 7 % 1_000 < 500]
    assert sorted(all_due(view, 3_000)) == [o for o in range(1_000) if o * 7 % 1_000 >= 500]
    assert list(tmp_path.iterdir()) == []


def test_each_subscription_waits_for_its_own(tmp_path: Path) -> None:
    delays = opened(tmp_path)
    one, two = delays.view(), delays.view()
    one.add(1, 2_000)
    one.add(2, 2_000)
    two.add(2, 2_000)
    two.add(3, 2_000)
    assert len(delays) == 3
    assert one.due(2_000, 10) == [1, 2]
    assert two.due(2_000, 10) == [2, 3]
    two.close()
    one.add(9, 1_500)  # too late to wait
    assert one.due(2_000, 10) == [9]


def test_over_a_restart(tmp_path: Path) -> None:
    delays = opened(tmp_path)
    view = delays.view()
    for offset in range(200):
        view.add(offset, 5_000 + offset)
    delays.close()
    again = opened(tmp_path, 5_050)  # those up to then are due, and met by reading
    kept = again.view(known_from=100)
    assert list(kept) == list(range(100, 200))
    assert kept.holds(150)
    assert not kept.holds(60)
    assert all_due(kept, 9_999) == list(range(100, 200))
    assert kept.holds(150)  # given out: not to be delivered in passing
    kept.passed(151)
    assert not kept.holds(150)
    kept.rewound()
    assert not kept.holds(199)


def test_what_is_damaged_is_left_to_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    delays = opened(tmp_path)
    view = delays.view()
    for offset in range(200):
        view.add(offset, 5_000 + offset)
    delays.close()
    path = tmp_path / "delays.0"
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        again = opened(tmp_path)
    assert "damaged" in caplog.text
    kept = again.view(known_from=0)
    for offset in range(200):
        kept.add(offset, 5_000 + offset)
    assert all_due(kept, 9_999) == list(range(200))


def test_a_full_disk_keeps_them_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delays = opened(tmp_path)
    view = delays.view()

    def refuse(pairs: object) -> None:
        raise DiskFull("no room")

    class Full:
        write = staticmethod(refuse)

        def close(self) -> None: ...

    delays._files = Full()  # type: ignore[assignment]
    for offset in range(500):
        view.add(offset, 2_000)
    assert len(all_due(view, 2_000)) == 500
    view.add(501, 3_000)
    delays.close()


def test_a_seek_forgets(tmp_path: Path) -> None:
    view = opened(tmp_path).view()
    view.add(1, 2_000)
    view.clear()
    assert (len(view), view.next_due_ms(), view.due(3_000, 10)) == (0, None, [])


@pytest.mark.parametrize("reads", range(4))
def test_what_cannot_be_read_now_comes_later_and_the_rest_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    """The disk fails after so many reads."""
    view = opened(tmp_path).view()
    for offset in range(1_000):
        view.add(offset, 2_000 + offset)
    with monkeypatch.context() as broken:
        broken.setattr(File, "pread", refused_after(reads, File.pread))
        found = all_due(view, 9_000)
        assert set(range(16)) <= set(found), "they are in memory"
        assert len(found) < 1_000
        assert view.next_due_ms() == 10_000
        assert all_due(view, 9_999) == []
    assert sorted(found + all_due(view, 10_000)) == list(range(1_000))


def test_a_file_that_cannot_be_removed_keeps_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = opened(tmp_path).view()
    for offset in range(1_000):
        view.add(offset, 2_000 + offset)

    def refuse(disk: DirectDisk, path: Path) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr(DirectDisk, "remove", refuse)
        assert sorted(all_due(view, 9_000)) == list(range(1_000))
    assert (tmp_path / "delays.0").exists()
    assert len(opened(tmp_path, 9_000)) == 0
    assert list(tmp_path.iterdir()) == []
