from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.base.errors import Unavailable
from anabranch.pipelines.tables.copying import Done, Merge, failed
from anabranch.pipelines.tables.patience import Patience
from anabranch.pipelines.tables.upkeep import Upkeep
from anabranch.spark.table_settings import TableSettings
from anabranch.tables.folder import TableFolder
from anabranch.tables.snapshot import Dropped
from tests.unit.tables.conftest import HOUR_MS, data_file, laid_down, snapshot

NOW_MS = 500_000 * HOUR_MS  # 2027, when the hours below are over
BAD, GOOD = "hour=2026-11-16-03", "hour=2026-11-16-04"


def test_one_group_that_cannot_be_merged_stops_nothing(tmp_path: Path) -> None:
    tried: list[list[str]] = []

    def merge(work: Sequence[Merge]) -> list[Done]:
        tried.append([one.files[0].hour for one in work])
        return [merged(one) for one in work]

    def merged(one: Merge) -> Done:
        if one.files[0].hour == BAD:
            return failed(one, "damaged")
        new = laid_down(one.folder, data_file(0, one.files[0].first, one.files[-1].end, hour=GOOD))
        return Done(one.folder, merged=[file.path for file in one.files], files=[new])

    folder = TableFolder(tmp_path)
    files = [data_file(0, at, at + 1, hour=BAD if at < 2 else GOOD) for at in range(4)]
    gone = "hour=1/a.parquet"
    (tmp_path / "hour=1").mkdir()
    (tmp_path / gone).write_bytes(b"")
    folder.put(snapshot(*files, dropped=[Dropped(path=gone, since_ms=1)]))
    upkeep = Upkeep(merge)
    settings = TableSettings("orders", "an id", tmp_path, -1, HOUR_MS)
    with pytest.raises(Unavailable, match="could not be merged: damaged"):
        upkeep.tidy(settings, NOW_MS)
    table = folder.latest()
    assert table is not None
    assert [file.span for file in table.files] == [(0, 1), (1, 2), (2, 4)]
    assert not (tmp_path / gone).exists()
    upkeep.tidy(settings, NOW_MS + 1)
    assert tried == [[BAD, GOOD]], "left alone for a while"
    with pytest.raises(Unavailable):
        upkeep.tidy(settings, NOW_MS + HOUR_MS)


def test_a_merged_file_that_is_not_to_be_seen_does_not_count(tmp_path: Path) -> None:
    def merge(work: Sequence[Merge]) -> list[Done]:
        return [Done(str(tmp_path), merged=[f.path for f in work[0].files], files=[data_file(0, 0, 2)])]

    folder = TableFolder(tmp_path)
    folder.put(snapshot(data_file(0, 0, 1), data_file(0, 1, 2)))
    with pytest.raises(Unavailable, match="all executors of Spark"):
        Upkeep(merge).tidy(TableSettings("orders", "an id", tmp_path, -1, HOUR_MS), NOW_MS)
    table = folder.latest()
    assert table is not None
    assert len(table.files) == 2


def test_patience_grows_with_failures() -> None:
    patience = Patience()
    now_ms, pauses = 0, []
    for _ in range(9):
        patience.failed("it", "no", now_ms)
        pause_ms = next(ms for ms in range(0, 10**7, 10_000) if not patience.problem("it", now_ms + ms))
        pauses.append(pause_ms // 1000)
        now_ms += pause_ms
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    patience.worked("it")
    assert not patience.problem("it", 0)
