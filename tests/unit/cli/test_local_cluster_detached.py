"""Waiting for a supervisor in the background: until it serves, whether or not anybody reads what is said."""

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.cli.local_cluster.up import _wait_for


class Closed(io.StringIO):
    """The other end of the pipe is gone, as with `| head -1`."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        if self.writes > 3:
            raise AssertionError("written again and again")
        raise BrokenPipeError


@pytest.fixture
def child() -> Iterator[int]:
    """A process that lives until the test is over."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    yield pid
    os.close(writing)
    os.waitpid(pid, 0)


def test_an_output_that_nobody_reads_ends_the_wait(
    tmp_path: Path, child: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = {"pid": child, "kafka": "127.0.0.1:9092"}
    (tmp_path / "ready.json").write_text(json.dumps(ready))
    monkeypatch.setattr("sys.stdout", Closed())
    with pytest.raises(BrokenPipeError):
        _wait_for(child, tmp_path, 0)
