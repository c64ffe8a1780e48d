"""Topics that are kept as tables, read by Spark: history from files and the tail from the broker, as one.

The maintainer runs on Spark in the first test, and without it in the others, where it is not what is tested.
"""

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.pipelines.tables.maintainer import Maintainer
from anabranch.pipelines.tables.tasks import run_tasks
from anabranch.tables.folder import TableFolder
from tests.spark.conftest import Topics
from tests.support.broker import BrokerProcess
from tests.support.command import anabranch
from tests.support.tables import Tables
from tests.tidy.documents import blocks

Rows = Callable[..., DataFrame]


def numbers(rows: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in rows.select("value").collect())


def history_only(folder: Path) -> int:
    table = TableFolder(folder).latest()
    assert table is not None
    return table.rows


def test_history_and_tail_are_the_topic(
    spark: SparkSession, bootstrap: str, topics: Topics, tables: Tables, rows: Rows, tmp_path: Path
) -> None:
    topic = topics.create(**{"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(900):
        headers = {"n": b"%d" % number} if number % 2 else None
        key = None if number % 5 == 0 else b"k"
        producer.produce(
            topic, b"%d" % number, key, number % 3, timestamp=1 + number * 60_000, headers=headers
        )
    assert producer.flush(30) == 0
    tables.enable(topic, tmp_path / "table")
    done = Maintainer(partial(run_tasks, spark), bootstrap).round()
    assert (done.rows, done.is_behind) == (900, False)
    topics.fill(topic, range(900, 1000))
    asked = rows(topic, includeHeaders="true", includePulsar="true")
    expected = rows(topic, includeHeaders="true", includePulsar="true", useTable="false")
    assert asked.schema == expected.schema
    place = itemgetter("partition", "offset")
    assert sorted(asked.collect(), key=place) == sorted(expected.collect(), key=place)
    assert asked.where("partition = 1 and offset between 290 and 310").count() == 21
    hour = "timestamp >= timestamp'1970-01-01 03:00:00' and timestamp < timestamp'1970-01-01 04:00:00'"
    assert numbers(asked.where(hour)) == list(range(180, 240))


def test_history_outlives_the_log(topics: Topics, topic_in_files: Callable[[int], str], rows: Rows) -> None:
    topic = topic_in_files(300)
    topics.fill(topic, range(300, 400), partitions=1)
    topics.trim(topic, 0, 250)
    assert numbers(rows(topic, maxRecordsPerPartition="70")) == list(range(400))
    assert rows(topic, useTable="false").count() == 150
    few = rows(
        topic, startingOffsets=f'{{"{topic}": {{"0": 100}}}}', endingOffsets=f'{{"{topic}": {{"0": 310}}}}'
    )
    assert numbers(few) == list(range(100, 310))
    time_ms = rows(topic).where("offset = 200").selectExpr("unix_millis(timestamp)").collect()[0][0]
    since = rows(topic, startingTimestamp=str(time_ms)).agg({"offset": "min"}).collect()[0][0]
    assert (
        rows(topic).where(f"unix_millis(timestamp) >= {time_ms}").agg({"offset": "min"}).collect()[0][0]
        == since
    )


def test_what_was_lost_is_said(
    topics: Topics, tables: Tables, topic_in_files: Callable[[int], str], rows: Rows, tmp_path: Path
) -> None:
    topic = topic_in_files(100)
    topics.fill(topic, range(100, 300), partitions=1)
    topics.trim(topic, 0, 200)
    for _ in range(2):  # before the maintainer has noticed, and after
        with pytest.raises(PySparkException, match="gone"):
            rows(topic).count()
        left = [*range(100), *range(200, 300)]
        assert numbers(rows(topic, failOnDataLoss="false")) == left
        tables.round()
    assert history_only(tmp_path / "table") == 200


def test_reading_goes_on_while_files_are_merged_and_removed(
    topics: Topics, tables: Tables, rows: Rows, tmp_path: Path
) -> None:
    topic = topics.create(2)
    tables.enable(topic, tmp_path / "table")
    stop = threading.Event()
    sent = 0

    def maintain() -> None:
        nonlocal sent
        while not stop.is_set():
            topics.fill(topic, range(sent, sent + 40), partitions=2)
            sent += 40
            tables.round()

    def merged() -> bool:
        table = TableFolder(tmp_path / "table").latest()
        return table is not None and bool(table.dropped)

    thread = threading.Thread(target=maintain)
    thread.start()
    deadline = time.monotonic() + 300
    reads = 0
    try:
        while reads < 4 or not merged():
            assert time.monotonic() < deadline, "no files were merged"
            reads += 1
            before = sent
            found = numbers(rows(topic))
            assert len(found) >= before
            assert found == list(range(len(found)))
    finally:
        stop.set()
        thread.join()
    assert numbers(rows(topic)) == list(range(sent))


def test_only_what_is_committed_comes_into_a_table(
    bootstrap: str, topics: Topics, tables: Tables, rows: Rows, tmp_path: Path
) -> None:
    topic = topics.create(1)
    tables.enable(topic, tmp_path / "table")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(20)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(20)
        if number == 3:
            break
        (producer.commit_transaction if number % 2 == 0 else producer.abort_transaction)(20)
    tables.round()
    assert history_only(tmp_path / "table") == 2
    assert numbers(rows(topic, kafka__isolation__level="read_committed")) == [0, 2]
    producer.commit_transaction(20)
    assert numbers(rows(topic, kafka__isolation__level="read_committed")) == [0, 2, 3]


def test_history_is_read_by_its_schema(
    broker: BrokerProcess, topics: Topics, tables: Tables, rows: Rows, tmp_path: Path
) -> None:
    topic = topics.create(1)
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    (tmp_path / "r.avsc").write_text(json.dumps(schema))
    told = anabranch("schema", "register", f"{topic}-value", str(tmp_path / "r.avsc"), "--http", broker.admin)
    frame = b"\0" + int(told.stdout.split()[-1]).to_bytes(4, "big")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    tables.enable(topic, tmp_path / "table")
    for number in range(20):
        producer.produce(topic, frame + bytes([2 * number]))
        if number == 10:
            assert producer.flush(30) == 0
            tables.round()
            topics.trim(topic, 0, 5)
    assert producer.flush(30) == 0
    found = rows(topic, valueSchema="registry", schema__registry__url=broker.admin).select("a", "offset")
    assert sorted(map(tuple, found.collect())) == [(number, number) for number in range(20)]


def test_a_table_that_is_not_ours_or_not_there_is_an_error(
    topics: Topics, tables: Tables, rows: Rows, tmp_path: Path
) -> None:
    topic = topics.create(1)
    topics.fill(topic, range(10), partitions=1)
    tables.enable(topic, tmp_path / "table")
    assert numbers(rows(topic)) == list(range(10)), "there is no table yet"
    tables.round()
    (tmp_path / "table").rename(tmp_path / "elsewhere")
    with pytest.raises(PySparkException, match="not to be reached"):
        rows(topic).count()
    (tmp_path / "elsewhere").rename(tmp_path / "table")
    topics.delete(topic)
    topics.create(1, topic)
    tables.enable(topic, tmp_path / "table")
    with pytest.raises(PySparkException, match="another --location"):
        rows(topic).count()
    assert numbers(rows(topic, useTable="false")) == []


def test_the_page_runs(spark: SparkSession, bootstrap: str, tables: Tables) -> None:
    """docs/tables.md as it stands; what maintains tables is here already."""
    names: dict[str, object] = {}
    for block in blocks("docs/tables.md"):
        for command in block.commands:
            if command.startswith("anabranch table run"):
                tables.round()
            elif not command.startswith("pip "):
                shell(command, bootstrap)
        if block.language == "python":
            exec(block.text.replace("127.0.0.1:9092", bootstrap), names)


def shell(command: str, bootstrap: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ANABRANCH_BOOTSTRAP": bootstrap}
    done = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
