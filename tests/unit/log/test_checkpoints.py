"""Checkpoint files in Kafka's text format; what cannot be read is not there."""

from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.log.checkpoints import read_offsets, write_offsets


def test_the_text(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    points = {("b-id", 1): 37, ("b-id", 0): 1500, ("c_id", 2): 0}
    write_offsets(DirectDisk(), path, points)
    assert path.read_text() == "1\n3\nb-id 0 1500\nb-id 1 37\nc_id 2 0\n"
    assert read_offsets(DirectDisk(), path) == points


def test_no_file_and_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "points"
    assert read_offsets(DirectDisk(), path) == {}
    write_offsets(DirectDisk(), path, {})
    assert (path.read_text(), read_offsets(DirectDisk(), path)) == ("1\n0\n", {})


@pytest.mark.parametrize(
    "garbage",
    [
        b"1",
        b"0\n0\n",
        b"1\n2\na 0 1\n",
        b"1\n1\na 0\n",
        b"1\n1\na b c\n",
        b"\x00" * 50,
        b"1\n-1\n",
        b"1\n1\n\xff\xff 0 x\n",
    ],
)
def test_garbage_is_said_and_passed_over(
    tmp_path: Path, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "points"
    path.write_bytes(garbage)
    assert read_offsets(DirectDisk(), path) == {}
    assert "is not readable" in caplog.text
