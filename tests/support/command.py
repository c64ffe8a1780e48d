"""The `anabranch` command, run as people run it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.broker import without_settings

PROGRAM = str(Path(sys.executable).with_name("anabranch"))


def anabranch(
    *arguments: str, bootstrap: str = "", stdin: str = "", exit_code: int | None = 0, timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and check its exit code, unless that is None."""
    environment = without_settings()
    if bootstrap:
        environment["ANABRANCH_BOOTSTRAP"] = bootstrap
    done = subprocess.run(
        [PROGRAM, *arguments], input=stdin, env=environment, capture_output=True, text=True, timeout=timeout_s
    )
    assert exit_code in (None, done.returncode), (
        f"{arguments} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def from_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def from_json_lines(done: subprocess.CompletedProcess[str]) -> list[Any]:
    return [json.loads(line) for line in done.stdout.splitlines()]
