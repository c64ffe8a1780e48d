"""Damaged commands and noise against the Pulsar port of a live broker: it goes on serving, and in good order.

10 seconds; minutes with ANABRANCH_SOAK=1.  A failure names its seed: ANABRANCH_FUZZ_SEED=N runs it again.
"""

import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.pulsar_commands import PulsarCorpus
from tests.support.broker import BrokerProcess
from tests.support.hostile import Bystander, memory_mb, unexpected

SECONDS = 300 if os.environ.get("ANABRANCH_SOAK") else 10
LONGER_S = 200  # on a machine where as much as is wanted takes longer
WANTED = 3 * SECONDS
SEED = int(os.environ.get("ANABRANCH_FUZZ_SEED", "21"))
PATIENCE_S = 0.01


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder: Path = tmp_path_factory.mktemp("fuzzed")
    settings = {"keepAliveIntervalSeconds": "1", "transactionCoordinatorEnabled": "true"}
    with BrokerProcess(folder, settings) as running:
        yield running


class Victim:
    """A client to send damage through, opened again when the broker has closed it."""

    def __init__(self, url: str, corpus: PulsarCorpus) -> None:
        host, port = url.rpartition("/")[2].rsplit(":", 1)
        self._address = (host, int(port))
        self._corpus = corpus
        self.outcomes: Counter[str] = Counter()
        self._socket = self._connect()

    @property
    def least(self) -> int:
        """How many were answered, or how many ended their connection: whichever is less."""
        return min(self.outcomes["answered"], self.outcomes["closed"])

    def _connect(self) -> socket.socket:
        client = socket.create_connection(self._address, 10)
        client.settimeout(PATIENCE_S)
        client.sendall(b"".join(self._corpus.opening()))
        return client

    def send(self, data: bytes) -> None:
        outcome = self._outcome(data)
        self.outcomes[outcome] += 1
        if outcome == "closed":
            self._socket.close()
            self._socket = self._connect()

    def _outcome(self, data: bytes) -> str:
        try:
            self._socket.sendall(data)
            return "answered" if self._socket.recv(1 << 20) else "closed"
        except TimeoutError:
            return "silent"  # there is nothing to say, or the rest of a frame is to come
        except ConnectionError:
            return "closed"

    def renew(self) -> None:
        self._socket.close()
        self._socket = self._connect()

    def close(self) -> None:
        self._socket.close()


def assert_sound(broker: BrokerProcess, what: str) -> None:
    assert broker.running, f"{what}: the broker is gone\n{broker.last_lines()}"
    assert not unexpected(broker.log), f"{what}:\n{unexpected(broker.log)}"


def test_odd_commands_in_one_piece(broker: BrokerProcess) -> None:
    """Undamaged commands with unlikely contents: whatever they mean, they are not our mistake."""
    corpus = PulsarCorpus(SEED)
    victim = Victim(broker.pulsar, corpus)
    for _ in range(600):
        victim.send(corpus.real())
    victim.close()
    assert_sound(broker, f"seed {SEED}")
    assert victim.outcomes["answered"] > 100, victim.outcomes


@pytest.mark.timeout(SECONDS + 400)
def test_damaged_commands(broker: BrokerProcess) -> None:
    corpus = PulsarCorpus(SEED + 1)
    victim, sent = Victim(broker.pulsar, corpus), 0
    with Bystander(broker.bootstrap) as other:
        before = memory_mb(broker.pid)
        began = time.monotonic()
        while (spent_s := time.monotonic() - began) < SECONDS or (
            victim.least <= WANTED and spent_s < SECONDS + LONGER_S
        ):
            make = corpus.chance.choices(
                [corpus.real, corpus.reframed, corpus.mangled, corpus.noise], [40, 40, 15, 5]
            )[0]
            victim.send(make())
            sent += 1
            if sent % 40 == 0:
                victim.renew()  # it may wait for the rest of a frame that never comes
            if sent % 500 == 0:
                assert_sound(broker, f"seed {SEED}, {sent} commands")
        other.check()
        victim.close()
        assert memory_mb(broker.pid) - before < 150
    assert_sound(broker, f"seed {SEED}, {sent} commands")
    assert victim.least > WANTED, victim.outcomes


def test_and_it_still_stops_and_starts(broker: BrokerProcess) -> None:
    broker.stop()
    broker.start()
    with Bystander(broker.bootstrap, "afterwards") as other:
        other.check()
    assert_sound(broker, f"seed {SEED}")
