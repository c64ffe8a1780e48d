"""Groups of real clients, a process a member: they join, leave, die and freeze while a producer runs.

Whatever happens to members and broker: every record that was acknowledged is processed at least once, in the
end each partition has one owner among the living, and a group goes on where it had committed.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.group_members import HEARTBEAT_MS, SESSION_MS
from tests.support.broker import BrokerProcess

OwnBroker = Callable[..., BrokerProcess]

MEMBER = Path(__file__).with_name("group_members.py")
PRODUCER = Path(__file__).parents[1] / "support" / "counting_producer.py"
PARTITIONS = 6
ALL = range(PARTITIONS)
PATIENCE_S = 40.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
}
KINDS = {
    "confluent": ("--client", "confluent"),
    "confluent-cooperative": ("--client", "confluent", "--assignor", "cooperative-sticky"),
    "confluent-consumer": ("--client", "confluent", "--protocol", "consumer"),
    "kafka-python": ("--client", "kafka-python"),
    "aiokafka": ("--client", "aiokafka"),
}


def eventually(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"after {PATIENCE_S:g} s: {what()}"
        time.sleep(0.05)


class Read(NamedTuple):
    partition: int
    offset: int


class Member:
    """A process of the group and its journal."""

    def __init__(self, journal: Path, arguments: list[str]) -> None:
        self._journal = journal
        self.process = subprocess.Popen([sys.executable, str(MEMBER), *arguments, "--journal", str(journal)])

    def lines(self) -> list[str]:
        """The whole ones: one that is killed may leave half of one."""
        text = self._journal.read_text() if self._journal.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def ownerships(self) -> list[set[int]]:
        return [{int(word) for word in line.split()[1:]} for line in self.lines() if line.startswith("owns")]

    def owns(self) -> set[int]:
        return (self.ownerships() or [set()])[-1]

    def reads(self) -> list[Read]:
        found = (line.split() for line in self.lines() if line.startswith("read"))
        return [Read(int(partition), int(offset)) for _, partition, offset in found]

    def signal(self, sign: signal.Signals) -> None:
        self.process.send_signal(sign)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()

    def leave(self) -> None:
        self.signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0
        assert self.lines()[-1] == "left"


class Group:
    """The members of one group, those that are gone as well."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self._folder = folder
        self._arguments = arguments
        self.members: list[Member] = []

    def join(self, *arguments: str) -> Member:
        journal = self._folder / f"member-{len(self.members)}"
        self.members.append(Member(journal, [*self._arguments, *arguments]))
        return self.members[-1]

    def settles(self, *alive: Member) -> None:
        """Wait until each partition belongs to one of `alive`, and each of them has its share."""

        def is_settled() -> bool:
            owned = sorted(partition for member in alive for partition in member.owns())
            return owned == list(ALL) and all(member.owns() for member in alive)

        eventually(is_settled, lambda: [(self.members.index(member), member.owns()) for member in alive])

    def processed(self) -> set[Read]:
        return {read for member in self.members for read in member.reads()}

    def end(self) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.kill()


@pytest.fixture
def group_of(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    groups: list[Group] = []

    def make(broker: BrokerProcess, *arguments: str) -> Group:
        told = ["--bootstrap", broker.bootstrap, "--topic", "orders", "--group", "readers", *arguments]
        groups.append(Group(tmp_path, told))
        return groups[-1]

    yield make
    for group in groups:
        group.end()


def create(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(10)


def start_producer(broker: BrokerProcess, ledger: Path) -> "subprocess.Popen[bytes]":
    told = ["--bootstrap", broker.bootstrap, "--topic", "orders", "--partitions", str(PARTITIONS)]
    told += ["--idempotent", "--rate", "120", "--padding", "10", "--ledger", str(ledger)]
    return subprocess.Popen([sys.executable, str(PRODUCER), *told])


def acknowledged(ledger: Path) -> set[Read]:
    rows = (line.split() for line in ledger.read_text().splitlines() if line[0].isdigit())
    return {Read(int(partition), int(offset)) for _, partition, offset in rows if offset != "-1"}


def bystander(broker: BrokerProcess) -> ck.Consumer:
    """Asks about the group and does not join it."""
    return ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", "log_level": 0})


def committed(broker: BrokerProcess) -> dict[int, int]:
    consumer = bystander(broker)
    places = [ck.TopicPartition("orders", partition) for partition in ALL]
    found = {place.partition: place.offset for place in consumer.committed(places, timeout=10)}
    consumer.close()
    return found


def log_ends(broker: BrokerProcess) -> dict[int, int]:
    consumer = bystander(broker)
    places = [ck.TopicPartition("orders", partition) for partition in ALL]
    found = {place.partition: consumer.get_watermark_offsets(place, timeout=10)[1] for place in places}
    consumer.close()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_members_come_and_go(
    kind: str, own_broker: OwnBroker, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    broker = own_broker(SETTINGS)
    create(broker)
    group = group_of(broker, *KINDS[kind])
    producer = start_producer(broker, tmp_path / "ledger")
    try:
        lasting = group.join()
        group.settles(lasting)
        leaving, dying = group.join(), group.join()
        group.settles(lasting, leaving, dying)
        leaving.leave()
        group.settles(lasting, dying)
        dying.kill()
        group.settles(lasting)
        frozen = group.join()
        group.settles(lasting, frozen)
        frozen.signal(signal.SIGSTOP)
        group.settles(lasting)
        frozen.signal(signal.SIGCONT)
        group.settles(lasting, frozen)
        broker.kill()
        broker.start()
        producer.terminate()
        assert producer.wait(PATIENCE_S) == 0
    finally:
        producer.kill()
    ends = log_ends(broker)
    wanted = {Read(partition, offset) for partition, end in ends.items() for offset in range(end)}
    assert acknowledged(tmp_path / "ledger") <= wanted
    eventually(lambda: wanted <= group.processed(), lambda: sorted(wanted - group.processed())[:10])
    group.settles(lasting, frozen)
    eventually(lambda: committed(broker) == ends, lambda: (committed(broker), ends))
    lasting.leave()
    frozen.leave()
    _goes_on_where_it_was(broker, group, ends)


def _goes_on_where_it_was(broker: BrokerProcess, group: Group, ends: dict[int, int]) -> None:
    """Nobody reads now.  Another start of the broker, another member: it begins at what was committed."""
    broker.stop()
    broker.start()
    assert committed(broker) == ends
    late = group.join()
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for partition in ALL:
        producer.produce("orders", b"late", partition=partition)
    assert producer.flush(10) == 0
    group.settles(late)
    eventually(lambda: len(late.reads()) >= PARTITIONS, late.lines)
    assert set(late.reads()) == {Read(partition, ends[partition]) for partition in ALL}


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("confluent", Member.leave),
        ("confluent", Member.kill),
        ("confluent-consumer", Member.leave),
        ("kafka-python", Member.kill),
        ("aiokafka", Member.kill),
    ],
)
def test_a_static_member_restarts_unnoticed(
    kind: str, end: Callable[[Member], None], own_broker: OwnBroker, group_of: Callable[..., Group]
) -> None:
    broker = own_broker(SETTINGS | {"group.consumer.session.timeout.ms": "20000"})
    create(broker)
    group = group_of(broker, *KINDS[kind], "--session-ms", "20000")
    lasting, restarted = group.join("--instance", "one"), group.join("--instance", "two")
    group.settles(lasting, restarted)
    before = len(lasting.ownerships()), restarted.owns()
    end(restarted)
    again = group.join("--instance", "two")
    group.settles(lasting, again)
    assert (len(lasting.ownerships()), again.owns()) == before
