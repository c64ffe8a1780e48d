"""The broker of the demo, or a cluster of them: on free ports, stopped as an operator would stop it.

Each broker is a process of its own.  Of a cluster every topic has as many replicas as it has brokers, three
at most: `anabranch standalone --brokers N` has it so.
"""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from demo.child import start

START_SECONDS = 60
STOP_SECONDS = 60


class Brokers(NamedTuple):
    """One broker or several, and where any of them is found."""

    kafka: str
    pulsar: str
    http: str
    pids: list[int]
    start_seconds: float

    @property
    def title(self) -> str:
        return "the broker" if len(self.pids) == 1 else f"the {len(self.pids)} brokers"

    def memory_mb(self) -> float | None:
        """What they hold now, together; None where the system does not say."""
        try:
            return sum(map(_memory_mb, self.pids))
        except OSError:
            return None


def _memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kilobytes) / 1024


@contextmanager
def brokers(folder: Path, count: int) -> Iterator[Brokers]:
    """So many, with their data in `folder`.  SystemExit, with the reason, if starting or stopping fails."""
    ready = folder / "ready.json"
    command = ["standalone", "--data", str(folder / "data"), "--kafka-port", "0", "--ready-file", str(ready)]
    command += ["--brokers", str(count)]
    started = time.monotonic()
    process = start(signal.SIGTERM, command, subprocess.DEVNULL)
    try:
        while not ready.exists():
            if process.poll() is not None or time.monotonic() - started > START_SECONDS:
                raise SystemExit("the broker did not start; its reason is above")
            time.sleep(0.01)
        at = json.loads(ready.read_text())
        yield Brokers(at["kafka"], at["pulsar"], at["http"], _pids(at), time.monotonic() - started)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise SystemExit("the broker did not stop when told to") from None
    if code != 0:
        raise SystemExit(f"the broker stopped with exit code {code}")


def _pids(ready: dict[str, Any]) -> list[int]:
    """The brokers' process ids: of one broker the ready file is its own, of several their supervisor's."""
    rows = ready.get("processes", [{"role": "broker", "pid": ready["pid"]}])
    return [row["pid"] for row in rows if row["role"] == "broker"]
