"""A broker, and pipelines run as anybody would: by the command, in a process and a JVM of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from anabranch.pipelines.project import Project
from tests.pipelines.numbers import numbers_project
from tests.support.broker import BrokerProcess

RUN_SECONDS = 900
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    # A busy machine may miss the ten seconds that Spark gives a Python process to start.
    "spark.sql.pipelines.maxFlowRetryAttempts": "8",
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("pipeline-broker"), {"auto.create.topics.enable": "false"}
    ) as started:
        yield started
        assert started.running, f"the broker died under test:\n{started.last_lines()}"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return numbers_project(tmp_path / "sums")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "anabranch.cli.main", "pipeline", *words]


def start(folder: Path, bootstrap: str, *words: str) -> subprocess.Popen[str]:
    """`anabranch pipeline WORDS` under way."""
    environment = {**os.environ, "ANABRANCH_BOOTSTRAP": bootstrap}
    return subprocess.Popen(
        command(*words),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def on_spark(folder: Path, bootstrap: str, *words: str) -> subprocess.Popen[str]:
    settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    return start(folder, bootstrap, *words, "--master", "local[2]", *settings)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit code, what it said, what it complained of."""
    try:
        said, complained = process.communicate(timeout=RUN_SECONDS)
    finally:
        process.kill()
    return process.returncode, said, complained


def rows_of(table: Path) -> list[dict[str, Any]]:
    """The rows of a streaming table, from the files that the sink's log says are in it."""
    import pyarrow.parquet as pq

    files = []
    for log in sorted((table / "_spark_metadata").iterdir()):
        if not log.name.startswith("."):
            lines = log.read_text().splitlines()[1:]  # after the version
            files += [json.loads(line)["path"].removeprefix("file://") for line in lines]
    return [row for file in sorted(set(files)) for row in pq.ParquetFile(file).read().to_pylist()]


class Letter(NamedTuple):
    key: str
    value: bytes
    headers: dict[str, str]


def letters_in(bootstrap: str, topic: str) -> list[Letter]:
    """What is in the one partition of `topic`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "letters",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Letter] = []
    while True:
        message = consumer.poll(90)
        assert message is not None, "the broker does not answer"
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF"
            consumer.close()
            return found
        headers = {name: value.decode() for name, value in message.headers() or ()}
        found.append(Letter((message.key() or b"").decode(), message.value() or b"", headers))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here:
            item.add_marker(pytest.mark.timeout(3 * RUN_SECONDS))
