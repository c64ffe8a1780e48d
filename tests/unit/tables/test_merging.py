from datetime import UTC, datetime

import pytest

from anabranch.tables.merging import FILE_BYTES, MANY, VARIOUS, hour_name, is_over, to_merge
from tests.unit.tables.conftest import data_file, snapshot

NOW = datetime(2026, 11, 16, 5, 5, tzinfo=UTC)
THIS_HOUR, LAST_HOUR, BEFORE = "hour=2026-11-16-05", "hour=2026-11-16-04", "hour=2026-11-16-03"


def test_hours_have_names() -> None:
    hours = int(datetime(2026, 11, 16, 3, tzinfo=UTC).timestamp()) // 3600
    assert hour_name(hours) == BEFORE
    assert hour_name(0) == "hour=1970-01-01-00"


@pytest.mark.parametrize(
    ("hour", "over"), [(THIS_HOUR, False), (LAST_HOUR, False), (BEFORE, True), (VARIOUS, False)]
)
def test_an_hour_is_over_some_time_after_it(hour: str, over: bool) -> None:
    assert is_over(hour, NOW) is over


def test_few_files_of_this_hour_stay_many_become_one() -> None:
    files = [data_file(0, at, at + 1, hour=THIS_HOUR) for at in range(MANY)]
    assert to_merge(snapshot(*files[:-1]), NOW) == []
    assert to_merge(snapshot(*reversed(files)), NOW) == [files]


def test_what_is_left_of_an_hour_that_is_over_becomes_one() -> None:
    files = [data_file(0, 0, 1), data_file(0, 1, 2)]
    assert to_merge(snapshot(*files), NOW) == [files]
    assert to_merge(snapshot(files[0]), NOW) == []


def test_partitions_hours_and_layouts_are_not_mixed() -> None:
    alike = [data_file(1, 0, 1), data_file(1, 1, 2)]
    others = [data_file(0, 0, 1), data_file(1, 2, 3, hour=LAST_HOUR), data_file(1, 3, 4, layout="other")]
    assert to_merge(snapshot(*alike, *others), NOW) == [alike]


def test_large_files_stay_and_groups_are_bounded() -> None:
    large = data_file(0, 0, 1, plain_bytes=FILE_BYTES)
    middling = [data_file(0, at, at + 1, plain_bytes=FILE_BYTES // 2 - 1) for at in range(1, 6)]
    assert to_merge(snapshot(large, *middling), NOW) == [middling[:2]]


def test_what_comes_late_to_an_hour_does_not_write_all_of_it_again() -> None:
    """A small file a round, for hours: each byte is written again a few times, and files stay few."""
    table = snapshot(data_file(0, 0, 1, plain_bytes=FILE_BYTES // 3))
    rewritten, most = 0, 0
    for at in range(1, 1000):
        files = [*table.files, data_file(0, at, at + 1)]
        for group in to_merge(snapshot(*files), NOW):
            size = sum(file.plain_bytes for file in group)
            rewritten += size
            whole = data_file(0, group[0].first, group[-1].end, plain_bytes=size)
            files = [whole, *(file for file in files if file not in group)]
        table = snapshot(*files)
        most = max(most, len(files))
    assert most < 2 * MANY
    assert rewritten < 12 * 1000 * 1000, "of a thousand files of 1000 bytes"
