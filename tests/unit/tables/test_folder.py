import os
import shutil
import time
from pathlib import Path

import msgspec
import pytest

from anabranch.base.errors import Corrupt, Fenced, Invalid, Unavailable
from anabranch.tables import folder as module
from anabranch.tables.folder import TableFolder, check_owner
from anabranch.tables.snapshot import Snapshot
from tests.unit.tables.conftest import data_file, snapshot


def numbered(number: int) -> Snapshot:
    return snapshot(number=number)


def test_the_last_snapshot_counts(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path / "table")
    assert folder.latest() is None
    for number in (1, 2, 9, 10):
        folder.put(numbered(number))
    assert folder.latest() == numbered(10)
    assert [path.name for path in (tmp_path / "table" / "_manifest").glob(".*")] == []


def test_a_number_is_given_once(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path)
    folder.put(numbered(1))
    with pytest.raises(Fenced):
        TableFolder(tmp_path).put(msgspec.structs.replace(numbered(1), written_ms=99))
    assert folder.latest() == numbered(1)


def test_who_was_away_for_long_is_fenced_though_its_number_is_free_again(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path)
    for number in range(1, 9):
        folder.put(numbered(number))
    folder.remove_old_snapshots(time.time() + 60)
    assert sorted(path.name[17:20] for path in (tmp_path / "_manifest").iterdir()) == ["006", "007", "008"]
    with pytest.raises(Fenced, match="far ahead"):
        folder.put(numbered(3))
    assert folder.latest() == numbered(8)
    assert len(list((tmp_path / "_manifest").iterdir())) == 3


def test_young_snapshots_stay(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path)
    for number in range(1, 9):
        folder.put(numbered(number))
    folder.remove_old_snapshots(time.time() - 60)
    assert len(list((tmp_path / "_manifest").iterdir())) == 8


def test_a_damaged_snapshot_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path)
    folder.put(numbered(1))
    folder.put(numbered(2))
    place = tmp_path / "_manifest" / f"{2:020}.json"
    place.write_bytes(place.read_bytes()[:-1])
    with pytest.raises(Corrupt, match=r"0002.json is damaged.*Without that file"):
        folder.latest()
    place.unlink()
    assert folder.latest() == numbered(1)


def test_a_snapshot_under_another_number_is_damage(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path)
    folder.put(numbered(1))
    os.rename(tmp_path / "_manifest" / f"{1:020}.json", tmp_path / "_manifest" / f"{2:020}.json")
    with pytest.raises(Corrupt, match="it is number 1"):
        folder.latest()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unavailable, match="cannot be written"):
        TableFolder(tmp_path / "file" / "table").put(numbered(1))


def test_files_that_nobody_knows_are_found_when_they_are_old(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path)
    known, unknown = (
        data_file(first=at, path=f"hour=2026-11-16-03/0-{at}-{at:032x}.parquet") for at in (0, 20)
    )
    others = [data_file(path=f"hour=2026-11-16-03/{name}.parquet") for name in ("part-00000", "0-1200-x")]
    for file in (known, unknown, *others):
        (tmp_path / file.path).parent.mkdir(exist_ok=True)
        (tmp_path / file.path).write_bytes(b"")
    (tmp_path / "hour=empty").mkdir()
    assert folder.unknown_files(snapshot(known), time.time() - 60) == []
    assert folder.unknown_files(snapshot(known), time.time() + 60) == [unknown.path]
    folder.remove([unknown.path, unknown.path])
    folder.remove_empty_hours()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hour=2026-11-16-03"]
    assert all((tmp_path / file.path).exists() for file in others), "of others, who keep hours as well"


def test_a_table_begins_in_a_folder_of_its_own(tmp_path: Path) -> None:
    TableFolder(tmp_path / "not yet there").check_unused()
    folder = TableFolder(tmp_path)
    (tmp_path / "_manifest").mkdir()
    (tmp_path / "_manifest" / ".half").write_bytes(b"")
    folder.check_unused()
    (tmp_path / "hour=2026-11-16-03").mkdir()
    with pytest.raises(Invalid, match="'hour=2026-11-16-03' is in it"):
        folder.check_unused()


def test_a_snapshot_that_could_not_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = TableFolder(tmp_path)
    folder.put(numbered(1))
    monkeypatch.setattr(module, "_LARGEST_SNAPSHOT_BYTES", 1000)
    many = snapshot(*(data_file(first=at, end=at + 1) for at in range(20)), number=2)
    with pytest.raises(Invalid, match=r"20 files.*retention"):
        folder.put(many)
    assert folder.latest() == numbered(1)


def test_a_folder_that_goes_away_meanwhile_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sync_folder", lambda path: shutil.rmtree(path))
    with pytest.raises(Unavailable, match="was removed"):
        TableFolder(tmp_path / "table").put(numbered(1))


def test_the_table_of_another_topic_is_not_taken_for_ours(tmp_path: Path) -> None:
    check_owner(snapshot(), "orders", "an id", tmp_path)
    with pytest.raises(Invalid, match="another --location"):
        check_owner(snapshot(), "orders", "a newer id", tmp_path)
