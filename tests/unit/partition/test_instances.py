from pathlib import Path

from anabranch.base.disk import DirectDisk
from anabranch.partition.instances import INSTANCES, begin_instance


def test_each_start_sees_those_before_it(tmp_path: Path) -> None:
    disk = DirectDisk(4)
    assert begin_instance(disk, tmp_path, "a") == []
    assert begin_instance(disk, tmp_path, "b") == ["a"]
    assert begin_instance(disk, tmp_path, "c") == ["a", "b"]


def test_the_last_sixteen_are_kept(tmp_path: Path) -> None:
    for number in range(40):
        former = begin_instance(DirectDisk(4), tmp_path, str(number))
        assert former == [str(one) for one in range(max(0, number - 15), number)]
    assert (tmp_path / INSTANCES).read_text().split() == [str(one) for one in range(24, 40)]


def test_garbage_is_nobody(tmp_path: Path) -> None:
    (tmp_path / INSTANCES).write_bytes(b"\xff\x00 x")
    assert "mine" not in begin_instance(DirectDisk(4), tmp_path, "mine")
