"""Exactly once, whatever is killed: driver, executors' workers and broker, with -9, at random moments.

A query copies numbers from topic to topic while they keep coming.  In the end every number is there once.
One kill of the broker and one of the driver, since a driver takes long to start; 20 of all three kinds with
ANABRANCH_SOAK=1.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.spark.conftest import SETTINGS, Topics
from tests.support.broker import BrokerProcess

IS_SOAK = bool(os.environ.get("ANABRANCH_SOAK"))
KILLS = ("broker", "driver", *(("workers", "driver", "broker") * 6 if IS_SOAK else ()))
ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 240


class Driver:
    """The copier, its JVM and its workers: one session of processes."""

    def __init__(self, words: list[str], log: Path) -> None:
        self._command = [sys.executable, "-m", "tests.spark.copier", *words]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """A query stops when it has failed too often; whoever runs it starts it again."""
        if self._process is None or self._process.poll() is not None:
            self.kill()
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
                )

    def kill(self) -> None:
        if self._process is not None:
            for pid in self._members():
                _kill(pid)
            self._process.wait()
            self._process = None

    def kill_workers(self) -> None:
        for pid in self._members():
            if b"pyspark.daemon" in _words(pid):
                _kill(pid)

    def _members(self) -> list[int]:
        """Everything of the session, whatever process group it made for itself."""
        assert self._process is not None
        listed = subprocess.run(
            ["ps", "-o", "pid=", "-s", str(self._process.pid)], capture_output=True, text=True
        )
        return [int(word) for word in listed.stdout.split()]


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def test_every_record_once_whatever_is_killed(tmp_path: Path) -> None:
    rng = random.Random(7)
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    topics = Topics(broker.bootstrap)
    source, sink = topics.create(name="from"), topics.create(name="to")
    driver = Driver([broker.bootstrap, source, sink, str(tmp_path / "checkpoint")], tmp_path / "driver.log")
    sent = 0
    try:
        for what in KILLS:
            driver.ensure()
            wanted = len(topics.values(sink)) + 1
            topics.fill(source, range(sent, sent := sent + 1500))
            wait_for(topics, sink, wanted, driver)
            time.sleep(rng.random() * 0.7)
            if what == "driver":
                driver.kill()
            elif what == "workers":
                driver.kill_workers()
            else:
                broker.kill()
                broker.start()
        driver.ensure()
        wait_for(topics, sink, sent, driver)
        found = sorted(int(value) for value in topics.values(sink))
        assert found == list(range(sent)), f"{len(found)} records, {len(set(found))} different, of {sent}"
    except BaseException:
        print((tmp_path / "driver.log").read_text()[-6000:])
        raise
    finally:
        driver.kill()
        broker.kill()


def wait_for(topics: Topics, sink: str, count: int, driver: Driver) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(topics.values(sink)) < count:
        assert time.monotonic() < deadline, f"no {count} records after {WAIT_S} s"
        driver.ensure()
        time.sleep(0.3)
