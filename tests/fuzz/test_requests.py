"""Damaged requests and noise against a live broker, for a while: it goes on serving, and in good order.

10 seconds; minutes with ANABRANCH_SOAK=1.  A failure names its seed: ANABRANCH_FUZZ_SEED=N runs it again.
"""

import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.compat.clients import raw
from tests.fuzz.requests import Corpus, served
from tests.support.broker import BrokerProcess
from tests.support.hostile import Bystander, memory_mb, unexpected

SECONDS = 300 if os.environ.get("ANABRANCH_SOAK") else 10
LONGER_S = 200  # on a machine where as much as is wanted takes longer
WANTED = 10 * SECONDS
SEED = int(os.environ.get("ANABRANCH_FUZZ_SEED", "20"))
PATIENCE_S = 0.05
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


class Victim:
    """A connection to send damage through, opened again when the broker has closed it or does not answer."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._address = (host, int(port))
        self._socket = self._connect()
        self.outcomes: Counter[str] = Counter()

    @property
    def least(self) -> int:
        """How many were answered, or how many ended their connection: whichever is less."""
        return min(self.outcomes["answered"], self.outcomes["closed"])

    def _connect(self) -> socket.socket:
        client = socket.create_connection(self._address, 10)
        client.settimeout(PATIENCE_S)
        return client

    def send(self, data: bytes) -> None:
        outcome = self._outcome(data)
        self.outcomes[outcome] += 1
        if outcome != "answered":
            self._socket.close()
            self._socket = self._connect()

    def _outcome(self, data: bytes) -> str:
        try:
            self._socket.sendall(data)
            return "answered" if self._socket.recv(1 << 16) else "closed"
        except TimeoutError:
            return "silent"  # it waits for something, or for the rest of a frame
        except ConnectionError:
            return "closed"

    def close(self) -> None:
        self._socket.close()


def assert_sound(broker: BrokerProcess, what: str) -> None:
    assert broker.running, f"{what}: the broker is gone\n{broker.last_lines()}"
    assert not unexpected(broker.log), f"{what}:\n{unexpected(broker.log)}"


def test_every_api_and_version_in_one_piece(broker: BrokerProcess, corpus: Corpus) -> None:
    """Undamaged requests with unlikely contents: whatever they mean, they are not our mistake."""
    with closing(Victim(broker.bootstrap)) as victim:
        for _ in range(3):
            for key, version in served():
                victim.send(corpus.framed(corpus.real(key, version)))
    assert_sound(broker, f"seed {SEED}")
    assert victim.outcomes["answered"] > 100, victim.outcomes


@pytest.mark.timeout(SECONDS + 400)
def test_damaged_requests(broker: BrokerProcess, corpus: Corpus) -> None:
    sent = 0
    with closing(Victim(broker.bootstrap)) as victim, Bystander(broker.bootstrap) as other:
        before = memory_mb(broker.pid)
        began = time.monotonic()
        while (spent_s := time.monotonic() - began) < SECONDS or (
            victim.least <= WANTED and spent_s < SECONDS + LONGER_S
        ):
            noisy = corpus.chance.random() < 0.02
            victim.send(corpus.noise() if noisy else corpus.framed(corpus.mangled()))
            sent += 1
            if sent % 500 == 0:
                assert_sound(broker, f"seed {SEED}, {sent} requests")
        other.check()
        assert memory_mb(broker.pid) - before < 150
    assert_sound(broker, f"seed {SEED}, {sent} requests")
    assert victim.least > WANTED, victim.outcomes


def test_and_it_still_stops_and_starts(broker: BrokerProcess) -> None:
    broker.stop()
    broker.start()
    with Bystander(broker.bootstrap, "afterwards") as other:
        other.check()
    assert_sound(broker, f"seed {SEED}")
