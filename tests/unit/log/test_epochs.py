"""Leader epochs: where each began and ended, in Kafka's checkpoint file."""

from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import DiskFull
from anabranch.log.epochs import UNKNOWN, LeaderEpochs
from anabranch.log.paths import LEADER_EPOCHS
from tests.support.crashing_disk import FailingDisk


def epochs_of(folder: Path, *pairs: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(DirectDisk(), folder)
    for epoch, start in pairs:
        epochs.assign(epoch, start)
    return epochs


def test_the_picture_of_the_module(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (1, 0), (2, 100), (4, 250))
    assert [epochs.end_of(epoch, 400) for epoch in (0, 1, 2, 3, 4, 5)] == [
        (0, 0),
        (1, 100),
        (2, 250),
        (2, 250),
        (4, 400),
        UNKNOWN,
    ]
    assert [epochs.epoch_of(offset) for offset in (0, 99, 100, 249, 250, 999)] == [1, 1, 2, 2, 4, 4]
    assert epochs.end_of(-1, 400) == UNKNOWN


def test_nothing_is_known_of_an_empty_log(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path)
    assert (epochs.latest, epochs.epoch_of(0), epochs.end_of(0, 0)) == (-1, -1, UNKNOWN)


def test_an_old_epoch_begins_nothing(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (5, 0), (4, 10), (5, 20))
    assert (epochs.latest, epochs.epoch_of(50)) == (5, 5)


def test_the_file_is_kafkas(tmp_path: Path) -> None:
    epochs_of(tmp_path, (0, 0), (2, 17))
    assert (tmp_path / LEADER_EPOCHS).read_text() == "0\n2\n0 0\n2 17\n"
    assert epochs_of(tmp_path).epoch_of(20) == 2


def test_truncation_at_the_end(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (0, 0), (1, 100), (3, 250))
    epochs.truncate_end(250)
    assert epochs.latest == 1
    epochs.truncate_end(50)
    assert (epochs.latest, (tmp_path / LEADER_EPOCHS).read_text()) == (0, "0\n1\n0 0\n")


def test_truncation_at_the_start(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (0, 0), (1, 100), (3, 250))
    epochs.truncate_start(150)
    assert (epochs.epoch_of(149), epochs.epoch_of(150)) == (-1, 1)
    assert epochs.end_of(0, 400) == (0, 150)
    epochs.truncate_start(250)
    assert epochs.epoch_of(250) == 3


@pytest.mark.parametrize(
    "garbage", [b"", b"0\n", b"1\n1\n0 0\n", b"0\n5\n0 0\n", b"0\n2\n0 0\n1 29", b"\xff\xfe", b"0\n1\nx y\n"]
)
def test_a_garbage_file_is_no_file(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / LEADER_EPOCHS).write_bytes(garbage)
    assert epochs_of(tmp_path).latest == -1


def test_a_full_disk_does_not_stop_an_append(tmp_path: Path) -> None:
    """Every batch carries its epoch, so what could not be written is found again."""
    disk = FailingDisk(room_bytes=0)
    epochs = LeaderEpochs(disk, tmp_path)
    epochs.assign(1, 0)
    epochs.truncate_start(5)
    assert epochs.epoch_of(5) == 1
    with pytest.raises(DiskFull):
        epochs.settle()
    disk.room_bytes = 1 << 20
    epochs.settle()
    assert epochs_of(tmp_path).epoch_of(5) == 1
