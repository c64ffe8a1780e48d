"""A broker, and pipelines run as anybody would: by the command, in a process and a JVM of their own."""

import json
import os
import signal
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

RUN_SECONDS = 600
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    # A busy machine may miss the ten seconds that Spark gives a Python process to start.
    "spark.sql.pipelines.maxFlowRetryAttempts": "8",
    # Twice as long after each failure, up to an hour: what fails for good would seem to hang.
    "spark.sql.pipelines.execution.watchdog.maxRetryTime": "10s",
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


class Run(subprocess.Popen[str]):
    """`anabranch pipeline WORDS` under way, in a project's folder."""

    def __init__(self, folder: Path, bootstrap: str, *words: str) -> None:
        environment = {**os.environ, "ANABRANCH_BOOTSTRAP": bootstrap, "PYTHONFAULTHANDLER": "1"}
        pipe = subprocess.PIPE
        super().__init__(command(*words), cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)
        self._folder = folder

    def kill_driver(self) -> None:
        """kill -9 of the JVM that it has started."""
        (java,) = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        os.kill(int(java), signal.SIGKILL)

    def last_lines(self) -> str:
        """Where its threads stand, and what Spark has said; ends it."""
        self.send_signal(signal.SIGABRT)
        self.wait(60)  # what it wrote is in Spark's log: its own pipes may be held by a JVM
        logs = [log.read_text(errors="replace")[-20_000:] for log in self._folder.rglob("spark.log")]
        return "\n".join(logs)


def on_spark(folder: Path, bootstrap: str, *words: str) -> Run:
    settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    return Run(folder, bootstrap, *words, "--master", "local[2]", *settings)


def finish(process: Run) -> tuple[int, str, str]:
    """Its exit code, what it said, what it complained of."""
    try:
        said, complained = process.communicate(timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it does not end:\n{process.last_lines()}") from None
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
