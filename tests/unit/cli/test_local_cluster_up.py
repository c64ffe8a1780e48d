"""The end of `cluster up --detach`."""

import builtins
import json
import os
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.local_cluster.up import _wait_for


def test_nobody_reads_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `| head -1`: it ends, and the cluster runs."""

    def gone(*values: Any, **options: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(builtins, "print", gone)
    monkeypatch.setattr(os, "waitpid", lambda pid, how: pytest.fail("it waits on"))
    (tmp_path / "ready.json").write_text(json.dumps({"pid": 7, "kafka": "127.0.0.1:9092"}))
    with pytest.raises(BrokenPipeError):
        _wait_for(7, tmp_path, 0)
