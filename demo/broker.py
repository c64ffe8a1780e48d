"""The broker of the demo: a process of its own, on free ports, stopped as an operator would stop it."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from demo.child import start

START_SECONDS = 60
STOP_SECONDS = 60


class Broker(NamedTuple):
    kafka: str
    pulsar: str
    http: str
    pid: int
    start_seconds: float

    def memory_mb(self) -> float | None:
        """What it holds now; None where the system does not say."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        except OSError:
            return None
        (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(kilobytes) / 1024


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker with its data in `folder`.  SystemExit, with the reason, if it does not start or stop well."""
    ready = folder / "ready.json"
    command = ["standalone", "--data", str(folder / "data"), "--kafka-port", "0", "--ready-file", str(ready)]
    started = time.monotonic()
    process = start(signal.SIGTERM, command, subprocess.DEVNULL)
    try:
        while not ready.exists():
            if process.poll() is not None or time.monotonic() - started > START_SECONDS:
                raise SystemExit("the broker did not start; its reason is above")
            time.sleep(0.01)
        at = json.loads(ready.read_text())
        yield Broker(at["kafka"], at["pulsar"], at["http"], process.pid, time.monotonic() - started)
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
