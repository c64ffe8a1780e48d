"""Exactly once, whatever is killed with -9 at random moments: driver, executors, their Python, the broker.

A query copies numbers from a topic to another topic while they keep coming.  In the end every row is there,
once.  Here one kill of the broker and one of the driver, in local mode, for a driver takes long to start.

With ANABRANCH_SOAK=1 there are 20 of all kinds, on a standalone cluster of two workers, where executors are
processes of their own, and a second query that writes a table of Parquet files.
"""

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.conftest import SETTINGS, Topics
from tests.support.broker import BrokerProcess
from tests.support.process_session import ProcessSession
from tests.support.spark_cluster import SparkCluster

IS_SOAK = bool(os.environ.get("ANABRANCH_SOAK"))
ROOT = Path(__file__).resolve().parents[2]
A_ROUND = 1500
WAIT_S = 600
_PYTHON = b"pyspark.daemon"


class Copying:
    """A broker, a driver that copies, and what there is to kill; all in one folder."""

    def __init__(self, folder: Path, cluster: SparkCluster | None) -> None:
        self.folder = folder
        self.table = folder / "table" if IS_SOAK else None
        self._cluster = cluster
        self._broker = BrokerProcess(folder, SETTINGS)
        self._broker.start()
        self.topics = Topics(self._broker.bootstrap)
        self.source, self.sink = self.topics.create(name="from"), self.topics.create(name="to")
        master = "local[2,4]" if cluster is None else cluster.url
        words = [master, self._broker.bootstrap, self.source, self.sink, str(folder / "checkpoints")]
        words += [str(self.table)] if self.table is not None else []
        command = [sys.executable, "-m", "tests.spark.copier", *words]
        environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "SPARK_LOCAL_IP": "127.0.0.1"}
        self._driver = ProcessSession(command, folder / "driver.log", environment)
        self.sent = 0

    def send(self) -> None:
        numbers = range(self.sent, self.sent + A_ROUND)
        self.topics.fill(self.source, numbers)
        self.sent = numbers.stop

    def kill(self, what: str) -> None:
        if what == "driver":
            self._driver.kill()
        elif what == "executors":
            assert self._cluster is not None
            self._cluster.kill_executors()
        elif what == "workers":
            self._driver.kill_those(_PYTHON)
            if self._cluster is not None:
                self._cluster.kill_those(_PYTHON)
        else:
            self._broker.kill()
            self._broker.start()

    def wait_for(self, count: int) -> None:
        """Until so many rows are in the topic, and in the table."""
        deadline = time.monotonic() + WAIT_S
        while any(len(values) < count for values in self.copies().values()):
            assert time.monotonic() < deadline, f"no {count} rows after {WAIT_S} s"
            if not self._driver.running:
                # A query ends when it has failed too often; whoever runs it starts it again.
                self._driver.kill()
                self._driver.start()
            time.sleep(0.3)

    def copies(self) -> dict[str, list[bytes]]:
        """What is where."""
        found = {"topic": self.topics.values(self.sink)}
        if self.table is not None:
            found["table"] = table_values(self.table)
        return found

    def end(self) -> None:
        self._driver.kill()
        self._broker.kill()


def table_values(table: Path) -> list[bytes]:
    """The values of a table that a streaming query writes: of the files in its journal, and no others."""
    journal = {path.name: path for path in (table / "_spark_metadata").glob("[0-9]*")}
    numbers = sorted(journal, key=lambda name: int(name.partition(".")[0]))
    whole = max((at for at, name in enumerate(numbers) if name.endswith(".compact")), default=0)
    entries = [line for name in numbers[whole:] for line in journal[name].read_text().splitlines()[1:]]
    files = [Path(unquote(urlparse(json.loads(entry)["path"]).path)) for entry in entries]
    values = [pq.read_table(file, columns=["value"])["value"] for file in files]
    return pa.concat_arrays([chunk for one in values for chunk in one.chunks]).to_pylist() if values else []


@contextmanager
def copying(folder: Path) -> Iterator[Copying]:
    cluster = SparkCluster(folder) if IS_SOAK else None
    try:
        if cluster is not None:
            cluster.start()
        copies = Copying(folder, cluster)
        try:
            yield copies
        except BaseException:
            print((folder / "driver.log").read_text()[-6000:])
            raise
        finally:
            copies.end()
    finally:
        if cluster is not None:
            cluster.stop()


def kills(rng: random.Random) -> list[str]:
    if not IS_SOAK:
        return ["broker", "driver"]
    found = [*("driver", "executors", "broker") * 6, "workers", "workers"]
    rng.shuffle(found)
    return found


@pytest.mark.timeout(3600)
def test_every_row_once_whatever_is_killed(tmp_path: Path) -> None:
    rng = random.Random(7)
    with copying(tmp_path) as copies:
        for number, what in enumerate(kills(rng)):
            there = copies.sent
            copies.send()
            copies.wait_for(there + 1)  # it goes on, and is in the midst of it
            time.sleep(rng.random() * 0.7)
            print(f"{number + 1}: {what}", flush=True)
            copies.kill(what)
        copies.wait_for(copies.sent)
        for name, values in copies.copies().items():
            found = sorted(int(value) for value in values)
            said = f"{name}: {len(found)} rows, {len(set(found))} different, of {copies.sent}"
            assert found == list(range(copies.sent)), said
