"""What a leader must do whose watermark lags, and what one leader owes to the next.

The suite of `PartitionLog` (test_partition_log.py) has a follower and many leaders, too; here is what it
cannot see, which is everything between an append and the watermark, and between two roles of a replica.
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.base.errors import (
    NotEnoughReplicas,
    NotOwner,
    OffsetOutOfRange,
)
from anabranch.base.ids import BrokerId
from anabranch.meta.image import NO_BROKER
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.partition.standing import standing_of
from anabranch.records.control import Marker
from anabranch.topics.publish import Send
from tests.conform.test_partition_log import ALL, append, read_all
from tests.support.acknowledgements import FOLLOWER
from tests.support.entries import entry_of
from tests.support.images import ME
from tests.support.led import Led
from tests.support.logs import records

AN_ENTRY = Send(0, 0, 1, 0, memoryview(entry_of(b"x")))


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return Led(tmp_path)


@pytest.fixture
def role(led: Led) -> Partition:
    return led.add()


def put(role: Partition, *values: str, acks: int = 1, **fields: object) -> "asyncio.Future[None] | None":
    return role.append(memoryview(records(*values or ("x",), **fields)), acks).acknowledged  # type: ignore[arg-type]


def numbered(role: Partition, sequence: int, acks: int = 1) -> "tuple[int, asyncio.Future[None] | None]":
    """One record of an idempotent producer."""
    batch = records("x", producer_id=1, producer_epoch=0, base_sequence=sequence)
    appended = role.append(memoryview(batch), acks)
    return appended.base_offset, appended.acknowledged


def marks(role: Partition) -> tuple[int, int, int]:
    """LSO, HW, LEO."""
    return role.last_stable, role.high_watermark, role.log_end


async def is_refused(acknowledged: "asyncio.Future[None] | None") -> bool:
    assert acknowledged is not None
    with pytest.raises(NotOwner):
        await asyncio.wait_for(acknowledged, 60)
    return True


# --- below the watermark


def test_readers_see_what_the_follower_has(led: Led, role: Partition) -> None:
    put(role, "a")
    put(role, "b", "c")
    assert marks(role) == (0, 0, 3)
    assert read_all(role) == read_all(role, isolation=Isolation.COMMITTED) == []
    assert [offset for offset, _ in read_all(role, isolation=Isolation.LOG_END)] == [0, 1, 2]
    led.follower.release(1)
    assert marks(role) == (1, 1, 3)
    assert read_all(role) == [(0, "a")]
    for offset in (1, 2, 3):
        assert role.read(offset, ALL, Isolation.UNCOMMITTED, whole_first=True) is None
    with pytest.raises(OffsetOutOfRange):
        role.read(4, ALL, Isolation.UNCOMMITTED, whole_first=True)
    led.follower.release()
    assert read_all(role) == [(0, "a"), (1, "b"), (2, "c")]


def test_what_is_not_safe_is_not_trimmed(led: Led, role: Partition) -> None:
    put(role, "a")
    put(role, "b")
    led.follower.release(1)
    with pytest.raises(OffsetOutOfRange):
        role.trim(2)
    assert role.trim(1) == 1


async def test_a_transaction_is_decided_when_its_marker_is_safe(led: Led, role: Partition) -> None:
    put(role, "a")
    put(role, "in", transactional=True, producer_id=9, producer_epoch=0, base_sequence=0)
    put(role, "b")
    led.follower.release()
    assert marks(role) == (1, 3, 3)
    ended = role.end_transaction(9, 0, Marker(False, 0))
    put(role, "c")
    assert marks(role) == (1, 3, 5)
    assert read_all(role, isolation=Isolation.COMMITTED) == [(0, "a")]
    led.follower.release(1)
    assert ended.acknowledged is not None
    assert ended.acknowledged.done()
    assert marks(role) == (4, 4, 5)
    chunk = role.read(1, ALL, Isolation.COMMITTED, whole_first=True)
    (aborted,) = role.aborted(1, Isolation.COMMITTED, chunk) or []
    assert (aborted.producer_id, aborted.first_offset) == (9, 1)


async def test_a_transaction_whose_marker_is_not_safe_is_open_to_the_next_leader(
    led: Led, role: Partition
) -> None:
    put(role, "in", transactional=True, producer_id=9, producer_epoch=0, base_sequence=0)
    led.follower.release()
    ended = role.end_transaction(9, 0, Marker(True, 0))
    new = led.elect()
    assert await is_refused(ended.acknowledged)
    assert marks(new) == (0, 1, 2)
    led.follower.release()
    assert marks(new) == (2, 2, 2)
    assert not bool(standing_of(new).open_transactions)


def test_readers_wait_for_the_watermark_and_followers_for_the_log(led: Led, role: Partition) -> None:
    seen: dict[str, list[int]] = {"readers": [], "followers": []}
    role.wait(lambda: seen["readers"].append(role.high_watermark))
    role.wait(lambda: seen["followers"].append(role.log_end), Isolation.LOG_END)
    put(role)
    put(role)
    assert seen == {"readers": [], "followers": [1, 2]}
    led.follower.release(1)
    led.follower.release()
    assert seen == {"readers": [1, 2], "followers": [1, 2]}
    role.replica_reached(FOLLOWER, 1)  # it says again what was known
    assert seen["readers"] == [1, 2]
    assert role.high_watermark == 2


def test_what_a_broker_fetched_before_it_restarted_counts_no_more(led: Led, role: Partition) -> None:
    put(role)
    put(role)
    role.replica_reached(FOLLOWER, 1, epoch=7)
    role.replica_reached(FOLLOWER, 2, epoch=6)  # was on its way meanwhile
    assert role.high_watermark == 1
    role.replica_reached(FOLLOWER, 2, epoch=7)
    assert role.high_watermark == 2


def test_an_epoch_that_no_broker_has_is_not_what_its_fetches_are_held_against(
    led: Led, role: Partition
) -> None:
    put(role)
    put(role)
    led.host.replication.epoch_of = lambda broker: 7
    role.replica_reached(FOLLOWER, 1, epoch=1 << 62)
    role.replica_reached(FOLLOWER, 2, epoch=7)
    assert role.high_watermark == 2


# --- acknowledgements


async def test_acknowledgements_of_all_come_in_order(led: Led, role: Partition) -> None:
    told: list[int] = []
    waits = [put(role, acks=-1) for _ in range(5)]
    for number, wait in enumerate(waits):
        assert wait is not None
        wait.add_done_callback(lambda _, number=number: told.append(number))
    role.replica_reached(FOLLOWER, 2)
    await asyncio.sleep(0)
    assert told == [0, 1]
    role.replica_reached(FOLLOWER, 5)
    await asyncio.sleep(0)
    assert told == [0, 1, 2, 3, 4]
    assert put(role, acks=-1) is not None, "what was safe before says nothing of what comes"


@pytest.mark.parametrize("acks", [0, 1])
def test_who_asks_for_the_leader_alone_waits_for_nobody(role: Partition, acks: int) -> None:
    assert put(role, acks=acks) is None
    assert role.high_watermark == 0


async def test_one_that_repeats_waits_until_its_original_is_safe(led: Led, role: Partition) -> None:
    offset, _ = numbered(role, 0)
    assert numbered(role, 0) == (offset, None)
    again, repeated = numbered(role, 0, acks=-1)
    assert again == offset
    assert repeated is not None
    assert not repeated.done()
    led.follower.release()
    assert repeated.done()
    assert numbered(role, 0, acks=-1) == (offset, None)


async def test_entries_and_a_coordinators_batches_wait_for_all(led: Led, role: Partition) -> None:
    entries = role.append_entries([AN_ENTRY])
    own = role.append_own(memoryview(records("y")))
    assert entries.acknowledged is not None
    assert own.acknowledged is not None
    led.follower.release(1)
    assert (entries.acknowledged.done(), own.acknowledged.done()) == (True, False)
    led.follower.release()
    assert own.acknowledged.done()


async def test_too_few_replicas(led: Led) -> None:
    role = led.add(min_insync_replicas=2)
    clients, before = put(role, acks=-1), role.append_own(memoryview(records("own"))).acknowledged
    assert clients is not None
    assert before is not None
    led.in_sync(ME)
    with pytest.raises(NotEnoughReplicas) as refused:
        put(role, acks=-1)
    assert refused.type is NotEnoughReplicas
    assert role.log_end == 2
    assert put(role, acks=1) is None
    assert (role.high_watermark, clients.done(), before.done()) == (0, False, False), (
        "what two were promised is not one's to keep"
    )
    led.in_sync(ME, FOLLOWER)
    assert not before.done()
    role.replica_reached(FOLLOWER, 3)
    assert before.done()
    assert clients.done()
    assert role.high_watermark == 3


async def test_a_follower_that_is_out_of_sync_holds_up_nobody(led: Led, role: Partition) -> None:
    waits = put(role, acks=-1)
    led.in_sync(ME)
    assert waits is not None
    assert waits.done()
    assert put(role, acks=-1) is None
    assert role.high_watermark == 2
    led.in_sync(ME, FOLLOWER)
    assert role.high_watermark == 2, "it never moves back"
    assert put(role, acks=-1) is not None


# --- the end of a role, and the next

ASKED: dict[str, Callable[[Partition], object]] = {
    "append": lambda role: put(role),
    "append for all": lambda role: put(role, acks=-1),
    "append_entries": lambda role: role.append_entries([AN_ENTRY]),
    "append_own": lambda role: role.append_own(memoryview(records("x"))),
    "end_transaction": lambda role: role.end_transaction(9, 0, Marker(True, 0)),
    "acknowledgement": lambda role: role.acknowledgement(role.log_end),
    "read": lambda role: role.read(0, ALL, Isolation.UNCOMMITTED, whole_first=True),
    "trim": lambda role: role.trim(0),
    "replica_reached": lambda role: role.replica_reached(FOLLOWER, 1),
}


@pytest.mark.parametrize("what", ASKED)
def test_who_has_resigned_does_nothing(led: Led, role: Partition, what: str) -> None:
    put(role, transactional=True, producer_id=9, producer_epoch=0, base_sequence=0)
    new = led.elect()
    with pytest.raises(NotOwner):
        ASKED[what](role)
    assert (new.log_end, bool(standing_of(new).open_transactions)) == (1, True)
    assert role.high_watermark == new.high_watermark == 0


async def test_resigning_wakes_and_refuses_everybody(led: Led, role: Partition) -> None:
    woken: list[str] = []
    role.wait(lambda: woken.append("reader"))
    role.wait(lambda: woken.append("follower"), Isolation.LOG_END)
    role.on_resign(lambda: woken.append("guest"))
    role.on_resign(lambda: woken.append("who left"))()
    waits = [put(role, acks=-1) for _ in range(3)]
    led.follower.release(1)
    woken.clear()
    led.elect()
    assert sorted(woken) == ["follower", "guest", "reader"]
    first, *others = waits
    assert first is not None
    await first
    for wait in others:
        assert await is_refused(wait)
    assert role.high_watermark == 1


def test_nobody_leads_until_somebody_is_elected(led: Led, role: Partition) -> None:
    put(role)
    led.vacate()
    with pytest.raises(NotOwner) as refused:
        led.host.partition("orders", 0)
    assert (refused.value.leader, refused.value.epoch) == (NO_BROKER, 1)
    new = led.elect()
    assert (new.leader_epoch, new.log_end, new.high_watermark) == (2, 1, 0)
    assert new is not role


def test_another_leads_and_this_one_again(led: Led, role: Partition) -> None:
    put(role)
    with pytest.raises(NotOwner) as refused:
        led.elect(leader=BrokerId(2))
    assert (refused.value.leader, refused.value.epoch) == (2, 1)
    assert led.elect().epoch_end(0) == (0, 1)


def test_the_watermark_outlives_the_role(led: Led, role: Partition) -> None:
    put(role)
    led.follower.release()
    put(role)
    for epoch in range(1, 4):
        new = led.elect()
        assert (new.leader_epoch, *marks(new)) == (epoch, 1, 1, 2)
        assert read_all(new) == [(0, "x")]
    led.follower.release()
    assert new.high_watermark == 2


def test_producers_are_known_across_roles(led: Led, role: Partition) -> None:
    first = [numbered(role, sequence)[0] for sequence in range(3)]
    new = led.elect()
    assert [numbered(new, sequence)[0] for sequence in (1, 2, 3)] == [*first[1:], 3]
    newer = led.elect()
    assert [numbered(newer, sequence)[0] for sequence in (2, 3, 4)] == [2, 3, 4]
    assert newer.log_end == 5


async def test_a_repetition_in_the_next_role_is_acknowledged_when_its_original_is_safe(
    led: Led, role: Partition
) -> None:
    offset, original = numbered(role, 0, acks=-1)
    new = led.elect()
    assert await is_refused(original)
    again, repeated = numbered(new, 0, acks=-1)
    assert again == offset
    assert repeated is not None
    assert not repeated.done()
    led.follower.release()
    await repeated


def test_epochs_are_where_they_were_written(led: Led, role: Partition) -> None:
    append_all = ((0, 2), (1, 0), (2, 3), (3, 1))
    for epoch, count in append_all:
        role = led.elect() if epoch else role
        for _ in range(count):
            put(role)
    assert [role.epoch_of(offset) for offset in range(6)] == [0, 0, 2, 2, 2, 3]
    assert [role.epoch_end(epoch) for epoch in range(4)] == [(0, 2), (0, 2), (2, 5), (3, 6)]
    assert role.epoch_end(4) == (-1, -1)
    unwritten = led.elect()
    assert unwritten.epoch_end(4) == (4, 6), "its own epoch ends where the log does"


def test_a_new_leader_knows_its_end_when_all_before_it_is_safe(led: Led, role: Partition) -> None:
    assert role.knows_its_end
    put(role)
    assert role.knows_its_end, "what it wrote itself is no question"
    new = led.elect()
    put(new)
    assert not new.knows_its_end
    new.replica_reached(FOLLOWER, 1)
    assert new.knows_its_end
    assert marks(new) == (1, 1, 2)


# --- at random


@pytest.mark.parametrize("seed", range(6))
async def test_at_random_nothing_acknowledged_is_lost(led: Led, role: Partition, seed: int) -> None:
    """One idempotent producer that repeats what was refused, a follower that lags, elections."""
    chance = random.Random(seed)
    sent = done = 0
    waits: list[tuple[int, asyncio.Future[None] | None]] = []
    safe = 0
    for _ in range(400):
        action = chance.random()
        if action < 0.5 and sent - done < 5:  # as many as the broker tells duplicates among
            waits.append(numbered(role, sent, acks=-1))
            assert waits[-1][0] == sent
            sent += 1
        elif action < 0.9:
            reached = chance.randint(safe, role.log_end)
            role.replica_reached(FOLLOWER, reached)
            safe = max(safe, reached)
        else:
            if chance.random() < 0.5:
                led.vacate()
            role = led.elect()
            for _, wait in waits:
                assert wait is None or wait.done()
            waits = [numbered(role, sequence, acks=-1) for sequence in range(done, sent)]
            assert [offset for offset, _ in waits] == list(range(done, sent))
        assert role.high_watermark == safe
        while waits and (waits[0][1] is None or waits[0][1].done()):
            offset, _ = waits.pop(0)
            assert offset == done < safe
            done += 1
        assert done == safe
        assert [offset for offset, _ in read_all(role)] == list(range(safe))
    assert role.log_end == sent > 50
    assert role.leader_epoch > 10


def test_the_suites_own_appends_are_read_by_the_next_role(led: Led, role: Partition) -> None:
    led.follower.is_holding = False
    append(role, "a", "b")
    assert read_all(led.elect()) == [(0, "a"), (1, "b")]
