"""Runs `tests.spark.job` in a process of its own: a process has one Spark session, and tests have theirs."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.spark.conftest import Topics

ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 900


def run_job(where: str, *words: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What the job saw.  `environment` in place of this process's."""
    given = dict(os.environ if environment is None else environment)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.job", where, *words],
        cwd=ROOT,
        env=given | {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, f"the job ended with {done.returncode}:\n{done.stderr[-6000:]}"
    saw = json.loads(lines[-1])
    assert isinstance(saw, dict)
    return saw


def check_copies(where: str, topics: Topics, folder: Path, executors: int) -> None:
    """The whole job on the Spark that is at `where`: everything is read, everything is written once."""
    numbers = 5000
    source, batch, stream = topics.create(), topics.create(), topics.create()
    topics.fill(source, range(numbers))
    checkpoint = folder / "checkpoint"
    saw = run_job(where, topics.bootstrap, source, batch, stream, str(checkpoint))
    assert saw == {
        "count": numbers,
        "sum": sum(range(numbers)),
        "filtered": numbers // 3 + 1 - 10,
        "executors": executors,
    }
    assert len(list((checkpoint / "commits").glob("[0-9]*"))) >= 2
    for name, sink in {"batch": batch, "stream": stream}.items():
        found = sorted(int(value) for value in topics.values(sink))
        assert found == list(range(numbers)), f"{name}: {len(found)} rows, {len(set(found))} different"
