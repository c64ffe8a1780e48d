"""A group of real clients as the tests see it: processes that are members, and their journals.

    group = Group(folder, broker.bootstrap, ("--client", "aiokafka"))
    one, two = group.join(), group.join()
    group.settles(one, two)             # each partition has its owner, each member its share
    two.kill()
    group.settles(one)

The topic `orders` has `PARTITIONS`, and the group is called `readers`.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.group_members import HEARTBEAT_MS, SESSION_MS
from tests.support.broker import BrokerProcess

MEMBER = Path(__file__).with_name("group_members.py")
PRODUCER = Path(__file__).parents[1] / "support" / "counting_producer.py"
PARTITIONS = 6
ALL = range(PARTITIONS)
PATIENCE_S = 90.0
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
    "kafka-python-cooperative": ("--client", "kafka-python", "--assignor", "cooperative-sticky"),
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


class Owning(NamedTuple):
    """From `time_s` on the member owns `partitions`, as far as it knows."""

    time_s: float
    generation: int
    partitions: frozenset[int]


class Member:
    """A process of the group and its journal."""

    def __init__(self, journal: Path, arguments: Sequence[str]) -> None:
        self._journal = journal
        self.instance = arguments[arguments.index("--instance") + 1] if "--instance" in arguments else ""
        self.killed_s = float("inf")
        self.frozen: list[float] = []
        """When it was stopped for longer than its session."""
        self.process = subprocess.Popen([sys.executable, str(MEMBER), *arguments, "--journal", str(journal)])

    def lines(self) -> list[str]:
        """The whole ones: one that is killed may leave half of one."""
        text = self._journal.read_text() if self._journal.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def ownerships(self) -> list[Owning]:
        found = (line.split() for line in self.lines())
        return [
            Owning(float(time_s), int(what[1]), frozenset(map(int, what[2:])))
            for time_s, *what in found
            if what[0] == "owns"
        ]

    def owns(self) -> frozenset[int]:
        found = self.ownerships()
        return found[-1].partitions if found else frozenset()

    def reads(self) -> list[Read]:
        found = (line.split() for line in self.lines())
        return [Read(int(what[1]), int(what[2])) for _, *what in found if what[0] == "read"]

    @property
    def is_fenced(self) -> bool:
        """It was told that another process is this static member, and has ended."""
        return any(line.endswith(" fenced") for line in self.lines()[-1:])

    def signal(self, sign: signal.Signals) -> None:
        self.process.send_signal(sign)

    def kill(self) -> None:
        self.killed_s = min(self.killed_s, time.monotonic())
        self.signal(signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        """Stop it, for longer than its session."""
        self.frozen.append(time.monotonic())
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def leave(self) -> None:
        eventually(self._journal.exists, lambda: "it has not begun")
        self.signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0
        assert self.lines()[-1].endswith((" left", " fenced"))


class Group:
    """The members of one group, those that are gone as well."""

    def __init__(self, folder: Path, bootstrap: str, arguments: Sequence[str]) -> None:
        self._folder = folder
        self._arguments = ("--bootstrap", bootstrap, "--topic", "orders", "--group", "readers", *arguments)
        self.members: list[Member] = []

    def join(self, *arguments: str) -> Member:
        journal = self._folder / f"member-{len(self.members)}"
        self.members.append(Member(journal, (*self._arguments, *arguments)))
        return self.members[-1]

    def settles(self, *alive: Member) -> None:
        """Wait until each partition belongs to one of `alive`, and each of them has its share."""
        with_share = min(len(alive), PARTITIONS)

        def is_settled() -> bool:
            assert all(member.process.poll() is None for member in alive), "a member has ended by itself"
            shares = [member.owns() for member in alive]
            owned = sorted(partition for share in shares for partition in share)
            return owned == list(ALL) and sum(map(bool, shares)) == with_share

        eventually(is_settled, lambda: [(self.members.index(member), set(member.owns())) for member in alive])

    def processed(self) -> set[Read]:
        return {read for member in self.members for read in member.reads()}

    def end(self) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.kill()


def create(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(60)


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
    found = {place.partition: place.offset for place in consumer.committed(places, timeout=60)}
    consumer.close()
    return found


def log_ends(broker: BrokerProcess) -> dict[int, int]:
    consumer = bystander(broker)
    places = [ck.TopicPartition("orders", partition) for partition in ALL]
    found = {place.partition: consumer.get_watermark_offsets(place, timeout=60)[1] for place in places}
    consumer.close()
    return found
