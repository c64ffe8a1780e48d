"""Groups of one to eight real clients, one process each, that come and go at random while a producer runs.

Members join, leave, are killed with -9, blink (stopped for a moment) and freeze (stopped past their session,
then go on as if nothing were).  Static members are replaced under their instance id, also while the one that
has it is frozen.  Then: every record was processed, no partition was owned by two live members
(`group_history`), and the group has settled and committed everything.

The actions come from a seed.  A few of them for each kind of client; with ANABRANCH_SOAK=1 many, and from
several seeds.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.compat.group_history import judge, owned_twice, spans_of, while_live
from tests.compat.group_members import SESSION_MS
from tests.compat.group_processes import (
    KINDS,
    PATIENCE_S,
    SETTINGS,
    Group,
    Member,
    Owning,
    Read,
    acknowledged,
    committed,
    create,
    eventually,
    log_ends,
    start_producer,
)
from tests.support.broker import BrokerProcess
from tests.support.stalls import Stalls

IS_SOAK = bool(os.environ.get("ANABRANCH_SOAK"))
ACTIONS = 120 if IS_SOAK else 8
SEEDS = range(3 if IS_SOAK else 1)
MOST = 8
FROZEN_S = SESSION_MS / 1000 + 1.5
BLINK_S = SESSION_MS / 1000 / 4

MIXED = "mixed"
"""One group, members of three libraries."""
# A quarter of a minute each.  The cooperative kinds are in `test_groups`; the soak has all of them here.
DYNAMIC = (*KINDS, MIXED) if IS_SOAK else ("confluent", "confluent-consumer", "aiokafka")
STATIC = (
    ("confluent", "confluent-consumer", "kafka-python", "aiokafka") if IS_SOAK else ("confluent-consumer",)
)
REPLACED_WHILE_FROZEN = ("confluent",)
"""In other clients whoever wakes up joins anew, takes its instance id back, and its successor is the one that
ends, or waits; they must not be two processes."""
NEVER_FREEZE = ("kafka-python-cooperative",)
"""Whoever has lost its partitions claims them when it joins again, and its leader believes that."""


class Churn:
    """What happens to a group: `members` are those that live or will again."""

    def __init__(self, group: Group, kind: str, chance: random.Random, *, static: bool) -> None:
        self._group = group
        self._kind = kind
        self._chance = chance
        self._static = static
        self._thaw_s: dict[Member, float] = {}
        self.members: list[Member] = []
        self.said: list[str] = []

    def act(self) -> None:
        self.replace_fenced()
        room = len(self._present) < MOST
        able = [member for member in self.members if member not in self._thaw_s]
        actions = [self.join] * (4 if room else 0)
        if len(able) > 1:
            actions += [self.leave, self.kill, self.kill, self.blink]
            actions += [self.freeze] * (0 if self._kind in NEVER_FREEZE else 2)
        action = self._chance.choice(actions or [self.wait])
        action()
        self.thaw()

    def replace_fenced(self) -> None:
        """A client that was late may fence itself (librdkafka heartbeats without its id): start it anew."""
        for member in [member for member in self.members if member.process.poll() is not None]:
            assert member.is_fenced, member.lines()[-3:]
            self.members.remove(member)
            self._start(member.instance)

    def take_back(self) -> None:
        """Who was replaced while frozen is a member again if its successor has left, or never was one."""
        taken = {member.instance for member in self.members}
        self.members += [member for member in self._present if member.instance not in taken]

    @property
    def _present(self) -> list[Member]:
        return [member for member in self._group.members if member.process.poll() is None]

    def wait(self) -> None:
        time.sleep(0.5)

    def join(self) -> None:
        taken = {member.instance for member in self.members}
        free = [f"i{number}" for number in range(MOST) if f"i{number}" not in taken]
        self._start(self._chance.choice(free))

    def _start(self, instance: str) -> None:
        kind = self._kind
        if kind == MIXED:
            kind = self._chance.choice(("confluent", "kafka-python", "aiokafka"))
        self.members.append(
            self._group.join(*KINDS[kind], *(("--instance", instance) if self._static else ()))
        )
        self._say(f"join as {instance}", self.members[-1])

    def _pick(self, what: str) -> Member:
        member = self._chance.choice([member for member in self.members if member not in self._thaw_s])
        self._say(what, member)
        return member

    def _say(self, what: str, member: Member) -> None:
        self.said.append(f"{time.monotonic():.3f} {what} {self._group.members.index(member)}")

    def leave(self) -> None:
        member = self._pick("leave")
        self.members.remove(member)
        member.leave()

    def kill(self) -> None:
        member = self._pick("kill")
        self.members.remove(member)
        member.kill()
        if self._static:
            self._start(member.instance)

    def blink(self) -> None:
        member = self._pick("blink")
        member.signal(signal.SIGSTOP)
        time.sleep(BLINK_S)
        member.signal(signal.SIGCONT)

    def freeze(self) -> None:
        member = self._pick("freeze")
        self._thaw_s[member] = time.monotonic() + FROZEN_S
        member.freeze()
        if self._static and self._kind in REPLACED_WHILE_FROZEN and self._chance.random() < 0.5:
            self.members.remove(member)
            self._start(member.instance)

    def thaw(self, within_s: float = 0.0) -> None:
        """Let those go on who have been frozen for long enough, or will have been."""
        for member, time_s in list(self._thaw_s.items()):
            wait_s = time_s - time.monotonic()
            if wait_s <= within_s:
                time.sleep(max(0.0, wait_s))
                self._say("thaw", member)
                member.thaw()
                del self._thaw_s[member]


def standstills(stalls: Stalls) -> list[float]:
    """When the machine stood still for so long that sessions may have ended, of whoever was a member."""
    return [stall.since_s for stall in stalls.longer_than(SESSION_MS / 1000 / 2)]


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("kind", "static"), [*((kind, False) for kind in DYNAMIC), *((kind, True) for kind in STATIC)]
)
def test_a_group_is_never_torn(
    kind: str,
    static: bool,
    seed: int,
    own_broker: Callable[..., BrokerProcess],
    group_of: Callable[..., Group],
    tmp_path: Path,
) -> None:
    broker = own_broker(SETTINGS)
    create(broker)
    group = group_of(broker)
    chance = random.Random(f"{kind} {static} {seed}")
    churn = Churn(group, kind, chance, static=static)
    with Stalls() as stalls:
        producer = start_producer(broker, tmp_path / "ledger")
        try:
            churn.join()
            for _ in range(ACTIONS):
                churn.act()
                time.sleep(chance.uniform(0.1, 1.5))
                wrong = judge(group.members, standstills(stalls))
                assert not wrong, "\n".join((*wrong, *churn.said))
            churn.thaw(FROZEN_S)
            if static:
                time.sleep(FROZEN_S)  # whoever has been fenced has heard of it
                churn.take_back()
            churn.replace_fenced()
            producer.terminate()
            assert producer.wait(PATIENCE_S) == 0
        finally:
            producer.kill()
            producer.wait()
        ends = log_ends(broker)
        wanted = {Read(partition, offset) for partition, end in ends.items() for offset in range(end)}
        assert acknowledged(tmp_path / "ledger") <= wanted
        eventually(lambda: wanted <= group.processed(), lambda: sorted(wanted - group.processed())[:10])
        eventually(lambda: committed(broker) == ends, lambda: (committed(broker), ends))
        group.settles(*churn.members)
        for gone in set(group.members) - set(churn.members):
            eventually(lambda gone=gone: gone.process.poll() is not None, gone.lines)  # type: ignore[misc]
        assert not (wrong := judge(group.members, standstills(stalls))), "\n".join((*wrong, *churn.said))


# --- the judge


def _owning(time_s: float, *partitions: int) -> Owning:
    return Owning(time_s, 1, frozenset(partitions))


def test_the_judge_sees_an_overlap() -> None:
    one = list(spans_of("0", [_owning(1, 7), _owning(4)], float("inf")))
    early = list(spans_of("1", [_owning(3, 7), _owning(6)], float("inf")))
    late = list(spans_of("1", [_owning(4, 7), _owning(6)], float("inf")))
    assert list(owned_twice([*early, *one]))
    assert not list(owned_twice([*late, *one]))


def test_who_was_killed_owns_nothing() -> None:
    one = list(spans_of("0", [_owning(1, 7)], 2.5))
    other = list(spans_of("1", [_owning(3, 7)], float("inf")))
    assert not list(owned_twice([*one, *other]))


def test_who_stood_still_with_the_machine_was_frozen() -> None:
    one = SimpleNamespace(instance="", frozen=[], killed_s=float("inf"))
    two = SimpleNamespace(**vars(one))
    one.ownerships = lambda: [_owning(1, 7), _owning(6)]
    two.ownerships = lambda: [Owning(5, 2, frozenset([7]))]
    members: Any = [one, two]
    assert judge(members)
    assert judge(members, [5.5])
    assert not judge(members, [3.0])


def test_who_was_frozen_is_back_once_it_has_given_up_what_it_had() -> None:
    owned = [_owning(1, 7), _owning(6, 7, 8), _owning(7), _owning(8, 9)]
    assert list(while_live(owned, [3.0])) == [owned[0], _owning(3), owned[3]]
