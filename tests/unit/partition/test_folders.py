"""Whose folder it is: nothing is given away over a damaged file, nothing taken from another process."""

import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import Unavailable
from anabranch.base.ids import TopicName, id_text
from anabranch.partition.folders import LOCK, DataFolderLock, claim, partition_folder

OURS, THEIRS = UUID(int=1), UUID(int=2)


def claimed(data: Path, topic_id: UUID = OURS) -> tuple[Path, Path | None]:
    folder = partition_folder(data, TopicName.from_kafka("t"), 0)
    return folder, claim(DirectDisk(), data, folder, topic_id)


def test_a_folder_is_claimed_once_and_recognised(tmp_path: Path) -> None:
    folder, moved = claimed(tmp_path)
    assert moved is None
    assert (folder / "partition.metadata").read_text() == f"version: 0\ntopic_id: {id_text(OURS)}\n"
    (folder / "data").write_bytes(b"x")
    assert claimed(tmp_path) == (folder, None)
    assert (folder / "data").exists()


def test_a_folder_of_another_topic_is_moved_away(tmp_path: Path) -> None:
    folder, _ = claimed(tmp_path, THEIRS)
    (folder / "data").write_bytes(b"theirs")
    _, moved = claimed(tmp_path, OURS)
    assert moved is not None
    assert (moved / "data").read_bytes() == b"theirs"
    assert os.listdir(folder) == ["partition.metadata"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 40, b"\xff\xfe garbage", b"version: 0\n", b"version: 0\ntopic_id: AAAA", b"topic_id: !!!!"],
)
def test_a_damaged_file_gives_nothing_away(tmp_path: Path, content: bytes) -> None:
    """The folder's records are worth more than the file that names their topic."""
    folder, _ = claimed(tmp_path)
    (folder / "data").write_bytes(b"x")
    (folder / "partition.metadata").write_bytes(content)
    assert claimed(tmp_path) == (folder, None)
    assert (folder / "data").read_bytes() == b"x"
    assert (folder / "partition.metadata").read_text() == f"version: 0\ntopic_id: {id_text(OURS)}\n"


def test_windows_line_ends_and_spaces_are_the_same_topic(tmp_path: Path) -> None:
    folder, _ = claimed(tmp_path)
    (folder / "partition.metadata").write_text(f"version: 0\r\ntopic_id:  {id_text(OURS)}")
    assert claimed(tmp_path) == (folder, None)


@pytest.mark.parametrize("name", ["t", "a.b", "x" * 249, "a/b/c", "..", "a b", "\\..", "ü" * 249, "%2F" * 80])
def test_folders_stay_inside(tmp_path: Path, name: str) -> None:
    folder = partition_folder(tmp_path, TopicName.from_pulsar(name), 99_999)
    assert folder.resolve().parent.parent.parent == tmp_path / "topics"
    folder.mkdir(parents=True)


# --- the lock


def test_one_process_at_a_time(tmp_path: Path) -> None:
    lock = DataFolderLock(DirectDisk(), tmp_path)
    with pytest.raises(Unavailable, match=f"in use by process {os.getpid()}"):
        DataFolderLock(DirectDisk(), tmp_path)
    lock.release()
    DataFolderLock(DirectDisk(), tmp_path).release()


def test_a_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path;"
        "from anabranch.base.disk import DirectDisk;"
        "from anabranch.partition.folders import DataFolderLock;"
        "lock = DataFolderLock(DirectDisk(), Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert (tmp_path / LOCK).read_text().strip().isdigit()
    DataFolderLock(DirectDisk(), tmp_path).release()


def test_a_lock_that_says_nothing(tmp_path: Path) -> None:
    lock = DataFolderLock(DirectDisk(), tmp_path)
    (tmp_path / LOCK).write_bytes(b"")
    with pytest.raises(Unavailable, match="unknown"):
        DataFolderLock(DirectDisk(), tmp_path)
    lock.release()
