"""A log seen from outside agrees with the log."""

from pathlib import Path

from anabranch.base.disk import DirectDisk
from anabranch.log.config import LogConfig
from anabranch.log.glance import glance
from tests.support.logs import START_MS, open_log_in, put, records

HOUR = 3_600_000


def test_no_folder_and_no_log(tmp_path: Path) -> None:
    assert glance(DirectDisk(), tmp_path / "none", LogConfig(), 0, START_MS) is None
    assert glance(DirectDisk(), tmp_path, LogConfig(), 0, START_MS) is None


def test_what_would_go_and_when(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    for hour in range(4):
        put(log, records("x", timestamp=START_MS + hour * HOUR))
        log.roll()
    log.close()
    config = LogConfig(retention_ms=HOUR)
    seen = glance(DirectDisk(), tmp_path, config, 0, START_MS + 3 * HOUR)
    assert seen is not None
    assert (seen.bases, seen.verdict.by_time) == ([0, 1, 2, 3, 4], 2)
    assert seen.verdict.next_ms == START_MS + 3 * HOUR + 1
    seen = glance(DirectDisk(), tmp_path, LogConfig(retention_ms=-1), 2, START_MS)
    assert seen is not None
    assert seen.verdict[:3] == (2, 0, 0)


def test_an_active_segment_without_an_index_counts_by_its_date(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, records("x"))
    seen = glance(DirectDisk(), tmp_path, LogConfig(retention_ms=1), 0, 1 << 50)
    assert seen is not None
    assert seen.verdict.by_time == 1
