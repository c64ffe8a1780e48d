"""Leaders that move all the time under clients of both protocols: nothing acknowledged is lost or repeated.

Partitions of all topics, of the internal ones too, lose their leader and get one again, several times a
second, while real clients of every kind work beside each other on one broker:

    idempotent producer              -> every record is there once, in order, where the answer said
    groups, classic and KIP-848      -> every record comes; none from before what was committed
    copiers with transactions        -> every input has its result once
    share group                      -> every record is accepted by somebody, and does not come again then
    Pulsar producer                  -> every message is there
    subscriptions of all kinds       -> every message comes, in the order that the kind promises
    acknowledgements with receipts   -> what has one does not come again, all else does
    reader                           -> every message once, in order

40 moves; 200 and more with ANABRANCH_SOAK=1.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pulsar
import pytest
from pulsar import ConsumerType

from tests.compat.share_processes import SETTINGS, ShareGroup, tell_group
from tests.support import moving_kafka, moving_leaders, moving_pulsar
from tests.support.broker import BrokerProcess

IS_SOAK = bool(os.environ.get("ANABRANCH_SOAK"))
MOVES = 300 if IS_SOAK else 40
SEED = int(os.environ.get("ANABRANCH_SEED", "1"))
PATIENCE_S = 90.0
ROOT = Path(__file__).resolve().parents[2]
INTERNAL = ("__consumer_offsets", "__transaction_state", "__subscription_state", "__share_group_state")
KINDS = (ConsumerType.Exclusive, ConsumerType.Failover, ConsumerType.Shared, ConsumerType.KeyShared)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = SETTINGS | {
        "group.initial.rebalance.delay.ms": "0",
        "brokerDeduplicationEnabled": "true",
    }
    wrapper = moving_leaders.wrapper(SEED, pause_s=0.25, away_s=0.05)
    with BrokerProcess(tmp_path, settings, wrapper) as running:
        yield running


def eventually(
    condition: Callable[[], bool], what: Callable[[], object], patience_s: float = PATIENCE_S
) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"after {patience_s:g} s: {what()}"
        time.sleep(0.05)


class KafkaClients:
    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        moving_kafka.create_topics(bootstrap, numbers=4, work=4, **{"in": 4, "out": 4})
        self.numbers = moving_kafka.Sender(bootstrap, "numbers")
        self.inputs = moving_kafka.Sender(bootstrap, "in", pause_s=0.01)
        self.work = moving_kafka.Sender(bootstrap, "work", pause_s=0.01)
        self.readers = [
            moving_kafka.ConfluentReader(bootstrap, "numbers", "classic"),
            moving_kafka.ConfluentReader(bootstrap, "numbers", "consumer"),
            moving_kafka.AsyncioReader(bootstrap, "numbers"),
        ]
        self._share = ShareGroup(folder, bootstrap, "work")
        tell_group(bootstrap, self._share.group, {"share.auto.offset.reset": "earliest"})
        self._log = (folder / "copiers.log").open("ab")
        self._copiers: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for thread in (self.numbers, self.inputs, self.work, *self.readers):
            thread.start()
        command = [sys.executable, "-m", "tests.support.copier", self._bootstrap, "in", "out"]
        for name in ("one", "two"):
            copier = [*command, name, "classic"]
            self._copiers.append(subprocess.Popen(copier, cwd=ROOT, stdout=self._log, stderr=self._log))
        self._share.join()
        self._share.join("--explicit")

    def send_no_more(self) -> None:
        for sender in (self.numbers, self.inputs, self.work):
            sender.stopping.set()
        for sender in (self.numbers, self.inputs, self.work):
            sender.join(PATIENCE_S)
            assert not sender.is_alive(), "not all was sent"

    def wait(self) -> None:
        """Until everything has come where it belongs."""
        eventually(
            lambda: all(reader.wrong or len(reader.got) >= self.numbers.sent for reader in self.readers),
            lambda: f"{ ({one.group: len(one.got) for one in self.readers}) } of {self.numbers.sent}",
        )
        self._share.finishes(set(self.work.acknowledged))
        results: dict[tuple[int, int], bytes] = {}

        def copied() -> bool:
            results.update(moving_kafka.read_all(self._bootstrap, "out"))
            return len(results) >= self.inputs.sent

        eventually(copied, lambda: f"{len(results)} of {self.inputs.sent} have their result")

    def end(self) -> None:
        for reader in self.readers:
            reader.stopping.set()
            reader.join(PATIENCE_S)
        for copier in self._copiers:
            copier.kill()
            copier.wait()
        self._log.close()
        self._share.end()

    def check(self) -> None:
        for sender in (self.numbers, self.inputs, self.work):
            sender.check(self._bootstrap)
        for reader in self.readers:
            reader.check(self.numbers.acknowledged)
        results = sorted(moving_kafka.read_all(self._bootstrap, "out").values())
        assert results == sorted(b"<%d>" % number for number in range(self.inputs.sent))
        accepted = {
            line.place: line.time_s
            for member in self._share.members
            for line in reversed(member.lines())
            if line.what == "done" and line.rest == "ACCEPT"
        }
        again = [line for line in self._share.got() if line.time_s > accepted[line.place]]
        assert not again, f"{len(again)} records came again after they were accepted: {again[:3]}"


class PulsarClients:
    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._client = client = moving_pulsar.client_of(broker)
        self.sender = moving_pulsar.Sender(broker, "messages", batched=True)
        self.singles = moving_pulsar.Sender(broker, "singles", batched=False, pause_s=0.01)
        self.receivers = []
        for kind in KINDS:
            # A batch has several keys, and goes to who has the first of them.
            sender = self.singles if kind == ConsumerType.KeyShared else self.sender
            alone = kind == ConsumerType.Exclusive
            receiver = moving_pulsar.Receiver(kind.name, kind, sender, cumulative=alone)
            for _ in range(1 if alone else 2):
                receiver.attach(client)
            self.receivers.append(receiver)
        self.reader = moving_pulsar.TopicReader(client, "messages")
        self.receipts = moving_pulsar.Receipts(broker, "singles")

    def start(self) -> None:
        self.receipts.start()
        for thread in (*self.receivers, self.reader, self.sender, self.singles):
            thread.start()

    def send_no_more(self) -> None:
        for sender in (self.sender, self.singles):
            sender.stopping.set()
        for sender in (self.sender, self.singles):
            sender.join(PATIENCE_S)
            assert not sender.is_alive(), "not all was sent"

    def wait(self) -> None:
        eventually(
            lambda: not any(receiver.lacks for receiver in self.receivers),
            lambda: f"messages that never came: { ({one.name: one.lacks for one in self.receivers}) }",
        )
        eventually(
            lambda: len(self.reader.read) >= self.sender.sent,
            lambda: f"the reader has {len(self.reader.read)} of {self.sender.sent}",
        )
        eventually(
            lambda: len(self.receipts.deliveries) >= self.singles.sent,
            lambda: f"{len(self.receipts.deliveries)} of {self.singles.sent} came with receipts",
        )

    def end(self) -> None:
        for thread in (*self.receivers, self.reader, self.receipts):
            thread.stopping.set()
            thread.join(PATIENCE_S)

    def check(self) -> None:
        for sender in (self.sender, self.singles):
            sender.check()
        for receiver in self.receivers:
            receiver.check()
        assert self.reader.read == list(range(self.sender.sent))
        assert not self.receipts.wrong, self.receipts.wrong[:3]
        left = self._left_of_receipts()
        assert left.isdisjoint(self.receipts.confirmed), "what was acknowledged came again"
        assert left >= set(range(self.singles.sent)) - self.receipts.acknowledged, "a message is lost"
        self._client.close()

    def _left_of_receipts(self) -> set[int]:
        """What the subscription has left, in the end."""
        consumer = self._client.subscribe("singles", "receipts", ConsumerType.Shared)
        left = set()
        with suppress(pulsar.Timeout):
            while True:
                left.add(consumer.receive(2000).message_id().entry_id())
        return left


@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost(broker: BrokerProcess, tmp_path: Path) -> None:
    kafka, pulsars = KafkaClients(broker.bootstrap, tmp_path), PulsarClients(broker)
    try:
        for clients in (kafka, pulsars):
            clients.start()
        moves_s = PATIENCE_S + MOVES  # one takes a third of a second, and the machine is shared
        eventually(lambda: moving_leaders.moves_in(broker.log).total() >= MOVES, broker.last_lines, moves_s)
        for clients in (kafka, pulsars):
            clients.send_no_more()
        for clients in (kafka, pulsars):
            clients.wait()
    finally:
        kafka.end()
        pulsars.end()
    kafka.check()
    pulsars.check()
    moves = moving_leaders.moves_in(broker.log)
    assert all(moves[topic] for topic in INTERNAL), moves
    assert all(moves[topic] for topic in ("numbers", "in", "out", "work", "messages", "singles")), moves
    broker.stop()
