"""A share group of real clients as the tests see it: processes that are members, and what their journals say.

group = ShareGroup(folder, broker.bootstrap)
one, two = group.join(), group.join("--explicit")
one.kill()
group.finishes({(0, 0), (0, 1)})    # somebody accepted all of these, and the broker knows
group.check()                       # nobody had what was another's, nothing came again that was done
"""

import io
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic
from kio.serial import entity_writer

from anabranch.wire.kafka.decoder import decode_answer
from anabranch.wire.kafka.schema import request_schema
from tests.unit.server.kafka.whole_broker import build

MEMBER = Path(__file__).with_name("share_members.py")
PATIENCE_S = 90.0
LOCK_S = 6.0
SETTINGS = {
    "group.share.record.lock.duration.ms": str(int(LOCK_S * 1000)),
    "group.share.session.timeout.ms": "6000",
    "group.share.heartbeat.interval.ms": "300",
}

Place = tuple[int, int]
"""Partition and offset."""

NO_PARTITION = -1
_NO_ANSWER = "code=_"  # the client's own errors begin so: the connection broke, or it took too long


class Line(NamedTuple):
    time_s: float
    what: str
    place: Place
    rest: str


class Member:
    def __init__(self, journal: Path, arguments: Iterable[str]) -> None:
        self._journal = journal
        self.killed_s = float("inf")
        self.process = subprocess.Popen([sys.executable, str(MEMBER), *arguments, "--journal", str(journal)])

    def lines(self) -> list[Line]:
        """The whole ones: one that is killed may leave half of one."""
        text = self._journal.read_text() if self._journal.exists() else ""
        found = []
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                time_s, what, *rest = line.split()
                if what == "failed":
                    rest.insert(1, "-1")  # for all offsets of the partition
                place = (int(rest[0]), int(rest[1])) if rest else (NO_PARTITION, -1)
                found.append(Line(float(time_s), what, place, " ".join(rest[2:])))
        return found

    def kill(self) -> None:
        self.killed_s = time.monotonic()  # what it had is another's as soon as it is dead
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        eventually(self._journal.exists, lambda: "it has not begun")
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0


class ShareGroup:
    def __init__(self, folder: Path, bootstrap: str, topic: str, group: str = "workers") -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self.topic = topic
        self.group = group
        self.members: list[Member] = []

    def join(self, *arguments: str) -> Member:
        journal = self._folder / f"{self.group}-{len(self.members)}"
        names = ("--bootstrap", self._bootstrap, "--topic", self.topic, "--group", self.group)
        self.members.append(Member(journal, (*names, *arguments)))
        return self.members[-1]

    def end(self) -> None:
        for member in self.members:
            member.process.kill()
            member.process.wait()

    def settled(self, kind: str = "ACCEPT") -> set[Place]:
        """What the broker has been told, and has said so."""
        return {
            line.place
            for member in self.members
            for line in member.lines()
            if line.what == "done" and line.rest == kind
        }

    def got(self) -> list[Line]:
        lines = (line for member in self.members for line in member.lines() if line.what == "got")
        return sorted(lines, key=lambda line: line.time_s)

    def perhaps_settled(self) -> set[Place]:
        """What somebody had begun to tell the broker, which may have heard it before either was killed."""
        told: set[Place] = set()
        for member in self.members:
            settles: set[Place] = set()
            for line in member.lines():
                if line.what == "settles":
                    settles.add(line.place)
                elif line.what == "done":
                    settles.discard(line.place)
                elif line.what == "failed":
                    failed = {place for place in settles if line.place[0] in (place[0], NO_PARTITION)}
                    settles -= failed
                    if _NO_ANSWER in line.rest:
                        told |= failed
            if member.killed_s < float("inf"):
                told |= settles
        return told

    def finishes(self, places: set[Place]) -> None:
        wanted = places - self.perhaps_settled()
        eventually(lambda: self.settled() >= wanted, lambda: sorted(wanted - self.settled())[:20])

    def check(self) -> None:
        """No two members had a record at the same time, and what was accepted did not come again."""
        held: dict[Place, list[tuple[float, float, int]]] = {}
        accepted: dict[Place, float] = {}
        for number, member in enumerate(self.members):
            since: dict[Place, float] = {}
            for line in member.lines():
                if line.what == "got":
                    since[line.place] = line.time_s
                elif line.what == "settles" and line.place in since:
                    # It is written down after it was given out, so the lock may have ended a little earlier.
                    begun = since.pop(line.place)
                    end = min(line.time_s, begun + LOCK_S / 2)
                    held.setdefault(line.place, []).append((begun, end, number))
                elif line.what == "done" and line.rest == "ACCEPT":
                    accepted[line.place] = min(line.time_s, accepted.get(line.place, float("inf")))
            for place, begun in since.items():
                end = min(member.killed_s, begun + LOCK_S / 2)
                held.setdefault(place, []).append((begun, end, number))
        for place, times in held.items():
            times.sort()
            for (_, end, one), (begun, _, other) in pairwise(times):
                assert begun >= end, (
                    f"{place} was with {one} until {end:.3f} and with {other} from {begun:.3f}"
                )
        for line in self.got():
            done_s = accepted.get(line.place, float("inf"))
            assert line.time_s <= done_s, f"{line.place} came again at {line.time_s:.3f}, after {done_s:.3f}"


def eventually(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"after {PATIENCE_S:g} s: {what()}"
        time.sleep(0.05)


def make_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> str:
    options = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=options)])[name].result(60)
    return name


def produce(bootstrap: str, topic: str, values: Iterable[bytes], partitions: int = 1) -> set[Place]:
    """One record for each value, round and round; where they went."""
    places: set[Place] = set()
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})

    def delivered(error: object, message: ck.Message) -> None:
        assert error is None, error
        places.add((message.partition(), message.offset()))

    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    return places


def tell_group(bootstrap: str, group: str, options: dict[str, str]) -> None:
    """Set options of a group, which the client's own admin has no way to name."""
    told = [{"name": name, "config_operation": 0, "value": value} for name, value in options.items()]
    resource = {"resource_type": 32, "resource_name": group, "configs": told}
    body = io.BytesIO()
    schema = request_schema(44, 1)
    entity_writer(schema)(body, build(schema, {"resources": [resource], "validate_only": False}))
    frame = struct.pack(">hhih", 44, 1, 1, -1) + b"\0" + body.getvalue()
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as link:
        link.sendall(struct.pack(">i", len(frame)) + frame)
        received = link.makefile("rb")
        (size,) = struct.unpack(">i", received.read(4))
        answer = decode_answer(44, 1, memoryview(received.read(size)), 5)
    assert [one.error_code for one in answer.responses] == [0], answer


def read_all(bootstrap: str, topic: str, count: int) -> list[ck.Message]:
    """The first `count` records of a topic, as any consumer reads them."""
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[ck.Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records are there"
        found += [message for message in consumer.consume(count, 0.2) if message.error() is None]
    consumer.close()
    return found
