"""Whoever maintains a table is killed with -9 at any moment, again and again; the table is always right.

The maintainer runs without Spark, in small steps, so that a kill hits each of them: copying, committing,
merging, removing.  Two run at once part of the time.  What can be seen of the table is checked after every
kill: every offset that it covers is in one file, whole, and no other.
"""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch.tables.folder import TableFolder
from anabranch.tables.merging import MANY
from anabranch.tables.scanning import read_slices
from anabranch.tables.seam import cut
from anabranch.tables.snapshot import Snapshot, Span
from tests.support.broker import BrokerProcess
from tests.support.tables import Tables

ROOT = Path(__file__).resolve().parents[2]
KILLS = 8
PARTITIONS = 2
COLUMNS = pa.schema([("value", pa.binary()), ("offset", pa.int64())])


def produce(bootstrap: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2})
    for number in numbers:
        producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(90) == 0


def rows_of(folder: Path, table: Snapshot, partition: int, asked: Span) -> list[tuple[int, int]]:
    slices = cut(table, partition, asked).slices
    found = [
        (offset, int(value))
        for batch in read_slices(folder, slices, COLUMNS)
        for value, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    return sorted(found)


def check(folder: Path) -> int:
    """Every covered offset is there once.  Returns how many."""
    table = TableFolder(folder).latest()
    if table is None:
        return 0
    for partition, covered in table.covered.items():
        expected = [(at, at * PARTITIONS + partition) for at in range(*covered)]
        assert rows_of(folder, table, partition, covered) == expected
    assert table.rows == sum(span.size for span in table.covered.values())
    return table.rows


@pytest.mark.timeout(600)
def test_killed_again_and_again(tmp_path: Path) -> None:
    rng = random.Random(3)
    folder = tmp_path / "table"
    command = [sys.executable, "-m", "tests.support.tables"]
    with BrokerProcess(tmp_path, {"anabranch.table.maintain": "false"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(60)
        tables = Tables(broker.bootstrap)
        tables.enable("orders", folder, file_delete_delay_ms="50")
        sent = 0
        for number in range(KILLS):
            produce(broker.bootstrap, range(sent, sent := sent + 3000))
            running = [
                subprocess.Popen(
                    [*command, broker.bootstrap], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
                for _ in range(1 + number % 2)
            ]
            for process in running:
                assert process.stdout is not None
                process.stdout.readline()
            time.sleep(rng.random() * 0.5)
            for process in running:
                process.send_signal(signal.SIGKILL)
                process.communicate()
            check(folder)
        while tables.round().is_behind or check(folder) < sent:
            pass
        assert check(folder) == sent
        table = TableFolder(folder).latest()
        assert table is not None
        assert len(table.files) <= 2 * PARTITIONS * MANY, "small files are merged"
