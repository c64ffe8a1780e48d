"""What the demo starts ends with it, whether it is told to end, killed, or never gets anywhere."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from demo import __main__ as command
from demo import child, showing

ROOT = Path(__file__).parents[2]
END_SECONDS = 90


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


# Stands for the demo: starts a broker, says so, and waits.
PARENT = """
import sys, time
from pathlib import Path
from demo.broker import brokers
with brokers(Path(sys.argv[1]), 1) as at:
    print(*at.pids, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="asks /proc")
def test_a_demo_that_is_killed_leaves_no_broker(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        try:
            assert parent.stdout is not None
            broker = int(parent.stdout.readline())
            assert is_alive(broker)
        finally:
            parent.kill()
    deadline = time.monotonic() + END_SECONDS
    while is_alive(broker):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_child_stops_as_an_operator_would_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "read", lambda fd, most: b"")
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    child._end_with_parent(signal.SIGINT)
    assert sent == [(os.getpid(), signal.SIGINT)]


def test_a_demo_that_is_told_to_end_unwinds() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            command._unwind(signal.SIGTERM, None)
        assert ended.value.code == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # told once is enough
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_demo_that_gets_nowhere_ends() -> None:
    feed: Any = SimpleNamespace(
        latest={}, is_over=False, has_begun=True, acknowledged={"clicks": 3, "orders": 0}, failures=[]
    )
    pipeline: Any = SimpleNamespace(
        words="update 1, running", flows=list, look=lambda: None, start=lambda: None, has_begun=True
    )
    ledger: Any = SimpleNamespace(sent={"clicks": 9, "orders": 9})
    with pytest.raises(SystemExit, match=r"not over after 0 s:\n.*clicks 3/9.*update 1, running"):
        showing._stream(Console(quiet=True), feed, pipeline, ledger, 0.0)
