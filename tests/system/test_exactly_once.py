"""Exactly once: applications that copy with transactions, and their broker, are killed again and again.

Inputs keep coming, so that there is always a transaction under way, and two applications share them, so that
who reads what changes under way as well.  A reader of committed records sees the result of every input once,
whatever was killed and when.  8 kills; 50 with ANABRANCH_SOAK=1, from several seeds.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess

PARTITIONS = 3
IS_SOAK = bool(os.environ.get("ANABRANCH_SOAK"))
KILLS = 50 if IS_SOAK else 8
SEEDS = range(4, 7 if IS_SOAK else 5)
INPUTS_A_KILL = 400
ROOT = Path(__file__).resolve().parents[2]


class Application:
    """The copier in a process of its own."""

    def __init__(self, bootstrap: str, name: str, protocol: str, log: Path) -> None:
        self._command = [sys.executable, "-m", "tests.support.copier", bootstrap, "in", "out", name, protocol]
        self._log = log.open("ab")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._log.close()


@pytest.fixture
def broker(tmp_path: Path) -> BrokerProcess:
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.heartbeat.interval.ms": "1000",
    }
    return BrokerProcess(tmp_path, settings)


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic("in", PARTITIONS, 1), NewTopic("out", PARTITIONS, 1)]
    for future in admin.create_topics(wanted).values():
        future.result(timeout=60)


class Inputs:
    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self.count = 0

    def more(self) -> None:
        for number in range(self.count, self.count + INPUTS_A_KILL):
            self._producer.produce("in", f"{number}", partition=number % PARTITIONS)
        assert self._producer.flush(90) == 0
        self.count += INPUTS_A_KILL


def results(bootstrap: str) -> list[str]:
    """Everything that a reader of committed records sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("out", index, 0) for index in range(PARTITIONS)])
    found: list[str] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + 90
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append((message.value() or b"").decode())
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_input_has_its_result_once(
    seed: int, protocol: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    with broker:
        create_topics(broker.bootstrap)
        inputs = Inputs(broker.bootstrap)
        applications = [
            Application(broker.bootstrap, name, protocol, tmp_path / f"{name}.log") for name in ("one", "two")
        ]
        try:
            for _ in range(KILLS):
                inputs.more()
                time.sleep(chance.uniform(0.02, 1.0))
                if chance.random() < 0.5:
                    broker.kill()
                    broker.start()
                else:
                    application = chance.choice(applications)
                    application.kill()
                    application.start()
            deadline = time.monotonic() + 240
            while len(seen := results(broker.bootstrap)) < inputs.count and time.monotonic() < deadline:
                time.sleep(0.5)
        finally:
            for application in applications:
                application.close()
    assert len(seen) == len(set(seen)), "a result is there twice"
    assert set(seen) == {f"<{number}>" for number in range(inputs.count)}
