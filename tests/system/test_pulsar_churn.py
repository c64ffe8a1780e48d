"""Consumers that come, go and die by the second: order and ownership of keys, redelivery, nothing lost.

Consumers are processes of their own (tests/support/pulsar_member.py) that write down, by the machine's clock,
when each message came and when they acknowledged it.  One joins, leaves or is killed with -9 about every
second while a producer runs.  Afterwards the diaries of all of them are put together:

    key_shared   nobody gets a message of a key while another holds one of it, unless that one has left or
                 died; the first deliveries of a key's messages are in order
    both         what came again was not acknowledged before (give or take the client's own 0.1 s of
                 waiting); every message was acknowledged in the end

10 s, 2 minutes with ANABRANCH_SOAK=1.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pulsar
import pytest

from tests.support.broker import BrokerProcess
from tests.support.stalls import Stalls

SECONDS = 120 if os.environ.get("ANABRANCH_SOAK") else 10
KEYS = 40
ACK_WAIT_S = 0.3  # the client groups acknowledgements for 0.1 s; a busy machine takes its time
MEMBER = Path(__file__).parents[1] / "support" / "pulsar_member.py"


class Event(NamedTuple):
    at: float
    what: str  # "got", "ack", or "end" of the member
    number: int
    key: str


class Member:
    def __init__(self, broker: BrokerProcess, folder: Path, name: str, kind: str) -> None:
        self.name = name
        self.diary = folder / name
        command = [sys.executable, str(MEMBER), "--service", broker.pulsar, "--topic", "churn"]
        command += ["--kind", kind, "--diary", str(self.diary)]
        self._process = subprocess.Popen(command)
        self.told_at: float | None = None
        """When it was told to end: what it held is others' from then on."""

    def leave(self) -> None:
        self._end(signal.SIGTERM)

    def die(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, sign: signal.Signals) -> None:
        self.told_at = time.monotonic()
        self._process.send_signal(sign)
        assert self._process.wait(60) in (0, -sign)

    def events(self) -> list[Event]:
        lines = self.diary.read_text().splitlines() if self.diary.exists() else []
        whole = [line.split() for line in lines if line.endswith(".")]
        return [Event(float(at), what, int(number), key) for at, what, number, key, _ in whole]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as running:
        yield running


def churn(broker: BrokerProcess, folder: Path, kind: str) -> tuple[list[Member], int]:
    """Run it; everybody who took part, and how many messages there are."""
    chance = random.Random(f"{kind}7")
    client = pulsar.Client(broker.pulsar, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    client.subscribe("churn", "s", getattr(pulsar.ConsumerType, kind)).close()
    producer = client.create_producer("churn", block_if_queue_full=True)
    members = [Member(broker, folder, f"m{number}", kind) for number in range(3)]
    live = list(members)
    sent, ends = 0, time.monotonic() + SECONDS
    next_change = time.monotonic() + 1.5
    while time.monotonic() < ends:
        for _ in range(10):
            producer.send_async(str(sent).encode(), None, partition_key=f"k{chance.randrange(KEYS)}")
            sent += 1
        time.sleep(0.01)
        if time.monotonic() >= next_change:
            next_change += 1.0
            how = chance.choice(("join", "leave", "die")) if len(live) > 1 else "join"
            if how == "join" or len(live) < 2:
                members.append(Member(broker, folder, f"m{len(members)}", kind))
                live.append(members[-1])
            else:
                gone = live.pop(chance.randrange(len(live)))
                gone.leave() if how == "leave" else gone.die()
    producer.flush()
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and len(acknowledged(members)) < sent:
        time.sleep(0.5)
    time.sleep(1.0)  # what would come without need has come by then
    for member in live:
        member.leave()
    client.close()
    return members, sent


def acknowledged(members: list[Member]) -> dict[int, float]:
    """Number of a message -> when it was first acknowledged."""
    first: dict[int, float] = {}
    for member in members:
        for event in member.events():
            if event.what == "ack":
                first[event.number] = min(event.at, first.get(event.number, event.at))
    return first


def check_redelivery(members: list[Member], sent: int, stood_still_s: float) -> None:
    wait_s = ACK_WAIT_S + stood_still_s
    acks = acknowledged(members)
    missing = set(range(sent)) - acks.keys()
    assert not missing, f"{len(missing)} of {sent} were never acknowledged: {sorted(missing)[:5]}"
    late = [
        (event.number, round(event.at - acks[event.number], 3))
        for member in members
        for event in member.events()
        if event.what == "got"
        and event.at > acks[event.number] + wait_s
        # An acknowledgement that its client had not sent yet when it was killed never was.
        and not any(m.told_at and -wait_s < m.told_at - acks[event.number] < wait_s for m in members)
    ]
    assert not late, f"{len(late)} came again after they were acknowledged: {late[:5]}"


def check_keys(members: list[Member]) -> None:
    history: dict[str, list[tuple[float, str, int, Member]]] = defaultdict(list)
    for member in members:
        for event in member.events():
            history[event.key].append((event.at, event.what, event.number, member))
    for key, events in history.items():
        events.sort(key=lambda event: event[0])
        held: dict[int, Member] = {}
        for at, what, number, member in events:
            if what == "ack":
                held.pop(number, None)
                continue
            others = {
                n: owner.name
                for n, owner in held.items()
                if owner is not member and not (owner.told_at is not None and owner.told_at <= at)
            }
            assert not others, f"{key}: {member.name} got {number} while others hold {others}"
            held = {n: owner for n, owner in held.items() if owner is member}
            held[number] = member
    assert history


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["KeyShared", "Shared"])
def test_consumers_come_and_go(broker: BrokerProcess, tmp_path: Path, kind: str) -> None:
    with Stalls() as stalls:
        members, sent = churn(broker, tmp_path, kind)
    check_redelivery(members, sent, stalls.longest_s)
    if kind == "KeyShared":
        check_keys(members)
        check_first_deliveries(members)


def check_first_deliveries(members: list[Member]) -> None:
    """Of every key, messages are first delivered in the order they were sent in."""
    first: dict[int, tuple[float, str]] = {}
    for member in members:
        for event in member.events():
            if event.what == "got" and (event.number not in first or event.at < first[event.number][0]):
                first[event.number] = (event.at, event.key)
    by_key: dict[str, list[int]] = defaultdict(list)
    for number, (_, key) in sorted(first.items(), key=lambda item: item[1][0]):
        by_key[key].append(number)
    for key, numbers in by_key.items():
        assert numbers == sorted(numbers), f"{key} is out of order"
