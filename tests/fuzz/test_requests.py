"""Damaged requests and noise against a live broker, for a while: it goes on serving, and in good order.

10 seconds; minutes with ANABRANCH_SOAK=1.  A failure names its seed: ANABRANCH_FUZZ_SEED=N runs it again.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.compat.clients import raw
from tests.fuzz.requests import Corpus, served
from tests.support.broker import BrokerProcess
from tests.support.hostile import Bystander, memory_mb, unexpected

SECONDS = 300 if os.environ.get("ANABRANCH_SOAK") else 10
SEED = int(os.environ.get("ANABRANCH_FUZZ_SEED", "20"))
TOPICS = [f"fuzz-{number}" for number in range(4)]
CONFIGS = [
    {},
    {"cleanup_policy": "compact"},
    {"compression_type": "gzip"},
    {"message_timestamp_type": "LogAppendTime", "segment_bytes": "1048576"},
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder: Path = tmp_path_factory.mktemp("fuzzed")
    with BrokerProcess(folder, {"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture(scope="module")
def corpus(broker: BrokerProcess) -> Corpus:
    with raw.Connection(broker.bootstrap) as client:
        return Corpus(
            SEED,
            {
                name: raw.create_topic(client, name, 2, **config)
                for name, config in zip(TOPICS, CONFIGS, strict=True)
            },
        )


class Victims:
    """Connections to send damage through, opened again when the broker closes them."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._address = (host, int(port))
        self._open: list[socket.socket] = []
        self.closed = 0

    def send(self, number: int, data: bytes) -> None:
        while len(self._open) <= number:
            self._open.append(self._connect())
        client = self._open[number]
        try:
            client.sendall(data)
            with suppress(BlockingIOError):
                client.setblocking(False)
                while client.recv(1 << 16):
                    pass
                raise ConnectionResetError
        except OSError:
            client.close()
            self.closed += 1
            self._open[number] = self._connect()
        else:
            client.setblocking(True)
            client.settimeout(1)

    def _connect(self) -> socket.socket:
        client = socket.create_connection(self._address, 10)
        client.settimeout(1)
        return client

    def close(self) -> None:
        for client in self._open:
            client.close()


def assert_sound(broker: BrokerProcess, what: str) -> None:
    assert broker.running, f"{what}: the broker is gone\n{broker.last_lines()}"
    assert not unexpected(broker.log), f"{what}:\n{unexpected(broker.log)}"


def test_every_api_and_version_in_one_piece(broker: BrokerProcess, corpus: Corpus) -> None:
    """Undamaged requests with unlikely contents: whatever they mean, they are not our mistake."""
    victims = Victims(broker.bootstrap)
    for turn in range(3):
        for key, version in served():
            victims.send(turn, corpus.framed(corpus.real(key, version)))
    victims.close()
    time.sleep(0.2)
    assert_sound(broker, f"seed {SEED}")


@pytest.mark.timeout(SECONDS + 120)
def test_damaged_requests(broker: BrokerProcess, corpus: Corpus) -> None:
    victims, sent = Victims(broker.bootstrap), 0
    with Bystander(broker.bootstrap) as other:
        before = memory_mb(broker.pid)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            for number in range(5):
                data = corpus.noise() if corpus.chance.random() < 0.02 else corpus.framed(corpus.mangled())
                victims.send(number, data)
                sent += 1
            if sent % 500 == 0:
                assert_sound(broker, f"seed {SEED}, {sent} requests")
        other.check()
        victims.close()
        other.check()
        assert memory_mb(broker.pid) - before < 150
    time.sleep(0.2)
    assert_sound(broker, f"seed {SEED}, {sent} requests")
    assert sent > 300
    assert victims.closed > 10, "nothing was damaged"


def test_and_it_still_stops_and_starts(broker: BrokerProcess) -> None:
    broker.stop()
    broker.start()
    with Bystander(broker.bootstrap, "afterwards") as other:
        other.check()
    assert_sound(broker, f"seed {SEED}")
