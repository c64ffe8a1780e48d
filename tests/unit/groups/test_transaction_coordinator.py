"""Transactions on real partitions: what readers see, who is fenced, what is tried again."""

import asyncio
import errno
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.base.errors import (
    CoordinatorLoading,
    CoordinatorUnreadable,
    DiskFull,
    InvalidProducerEpoch,
    InvalidTransactionState,
    NotCoordinator,
)
from anabranch.base.ids import LeaderEpoch, TopicName
from anabranch.base.seldom import Seldom
from anabranch.groups import runtime, transaction_shard
from anabranch.groups import transaction_coordinator as module
from anabranch.groups.effects import Producer
from anabranch.groups.transaction_coordinator import STATE_TOPIC
from anabranch.groups.transaction_markers import End
from anabranch.groups.transaction_records import State, encode_key, encode_value
from anabranch.groups.transactions import LAST_EPOCH
from anabranch.meta.session import Session, SessionState
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Appended, Isolation
from anabranch.records.control import Marker
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.acknowledgements import Follower
from tests.support.images import led_by
from tests.support.logs import records
from tests.support.transactions import Refused, Transacting
from tests.support.waiting import until

ID = "copy"
OUT, OTHER = ("out", 0), ("out", 1)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Transacting]:
    node = Transacting(tmp_path)
    yield node
    node.kill()


def refused(code: ErrorCode) -> AbstractContextManager[Any]:
    return pytest.raises(Refused, match=f"^{code.name}$")


@pytest.mark.parametrize("version", [0, 2])
async def test_what_is_committed_is_seen_and_what_is_aborted_is_not(node: Transacting, version: int) -> None:
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "a", version=version)
    await node.write(ID, me, OTHER, "b", version=version)
    assert (node.committed(*OUT), node.committed(*OTHER)) == ([], [])
    me = await node.end(ID, me, commit=True, version=version)
    assert (node.committed(*OUT), node.committed(*OTHER)) == (["a"], ["b"])
    await node.write(ID, me, OUT, "c", version=version)
    me = await node.end(ID, me, commit=False, version=version)
    await node.write(ID, me, OUT, "d", version=version)
    me = await node.end(ID, me, commit=True, version=version)
    assert node.committed(*OUT) == ["a", "d"]
    assert node.stored(*OUT) == ["a", "c", "d"]
    assert me.epoch == (3 if version else 0)


@pytest.mark.parametrize("commit", [True, False])
async def test_offsets_are_part_of_it(node: Transacting, commit: bool) -> None:
    me = await node.introduce(ID)
    await node.commit_offset(ID, me, "g", 5)
    assert await node.offset("g") == -1
    await node.end(ID, me, commit=commit)
    assert await node.offset("g") == (5 if commit else -1)


async def test_readers_are_woken_when_a_transaction_ends(node: Transacting) -> None:
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "a")
    partition = node.host.partition(*OUT)
    seen: list[int] = []
    partition.wait(waiter := lambda: seen.append(partition.last_stable))
    before = partition.last_stable
    await node.end(ID, me, commit=True)
    partition.stop_waiting(waiter)
    assert before == 0
    assert seen == [partition.log_end]


async def test_a_new_instance_aborts_what_the_old_one_left(node: Transacting) -> None:
    old = await node.introduce(ID)
    await node.write(ID, old, OUT, "old")
    new = await node.introduce(ID)
    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 2)
    assert node.host.partition(*OUT).last_stable == node.host.partition(*OUT).log_end
    with refused(ErrorCode.producer_fenced):
        await node.add(ID, old, OUT)
    with pytest.raises(InvalidTransactionState):
        node.store(ID, old, OUT, "zombie")
    for version in (0, 2):
        with refused(ErrorCode.producer_fenced):
            await node.end(ID, old, commit=True, version=version)
    await node.write(ID, new, OUT, "new")
    await node.end(ID, new, commit=True)
    assert node.committed(*OUT) == ["new"]


async def test_a_zombie_that_goes_on_from_its_old_epoch_does_no_harm(node: Transacting) -> None:
    old = await node.introduce(ID)
    new = await node.introduce(ID)
    await node.write(ID, new, OUT, "new")
    with refused(ErrorCode.producer_fenced):
        await node.introduce(ID, known=old)
    await node.end(ID, new, commit=True)
    assert node.committed(*OUT) == ["new"]


async def test_a_late_batch_opens_no_transaction(node: Transacting) -> None:
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "a")
    await node.end(ID, me, commit=True)
    with pytest.raises(InvalidTransactionState):
        node.store(ID, me, OUT, "late")
    await node.add(ID, me, OTHER)
    with pytest.raises(InvalidTransactionState):
        node.store(ID, me, OUT, "still late")


async def test_a_late_marker_does_not_end_the_next_transaction(node: Transacting) -> None:
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "a", version=2)
    next_me = await node.end(ID, me, commit=True, version=2)
    await node.write(ID, next_me, OUT, "b", version=2)
    late = End(next_me, Marker(False, 0), strict=True)
    with pytest.raises(InvalidProducerEpoch):
        await node.coordinator.markers.append(*OUT, late)
    await node.end(ID, next_me, commit=True, version=2)
    assert node.committed(*OUT) == ["a", "b"]


async def test_the_same_marker_twice_does_no_harm(node: Transacting) -> None:
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "a", version=2)
    next_me = await node.end(ID, me, commit=True, version=2)
    await node.coordinator.markers.append(*OUT, End(next_me, Marker(True, 0), strict=True))
    await node.write(ID, next_me, OUT, "b", version=2)
    await node.end(ID, next_me, commit=False, version=2)
    assert node.committed(*OUT) == ["a"]


async def test_a_transaction_that_takes_too_long_is_aborted(node: Transacting) -> None:
    me = await node.introduce(ID, timeout_ms=1000)
    await node.write(ID, me, OUT, "slow")
    node.clock.advance(1000)
    await node.look_after()
    assert node.host.partition(*OUT).last_stable == 0
    node.clock.advance(1)
    await node.look_after()
    assert node.host.partition(*OUT).last_stable == node.host.partition(*OUT).log_end
    with refused(ErrorCode.producer_fenced):
        await node.end(ID, me, commit=True)
    with refused(ErrorCode.invalid_txn_state):
        await node.end(ID, me, commit=True, version=2)
    assert node.committed(*OUT) == []
    me = await node.end(ID, me, commit=False, version=2)  # the second protocol finds it aborted and goes on
    await node.write(ID, me, OUT, "fast", version=2)
    await node.end(ID, me, commit=True, version=2)
    assert node.committed(*OUT) == ["fast"]


async def test_epochs_that_are_used_up_bring_another_producer_id(node: Transacting) -> None:
    me = await node.introduce(ID)
    spent = node.coordinator.find(ID)
    assert spent is not None
    shard = node.coordinator._runtime.read(node.coordinator.shard_of(ID))
    shard.replay(encode_key(ID), encode_value(spent._replace(epoch=LAST_EPOCH - 1)))
    me = Producer(me.producer_id, LAST_EPOCH - 1)
    await node.write(ID, me, OUT, "a", version=2)
    after = await node.end(ID, me, commit=True, version=2)
    assert after.producer_id != me.producer_id
    assert after.epoch == 0
    assert await node.end(ID, me, commit=True, version=2) == after
    await node.write(ID, after, OUT, "b", version=2)
    await node.end(ID, after, commit=True, version=2)
    assert node.committed(*OUT) == ["a", "b"]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_timeouts_have_bounds(node: Transacting, timeout_ms: int) -> None:
    with refused(ErrorCode.invalid_transaction_timeout):
        await node.introduce(ID, timeout_ms=timeout_ms)


async def test_ids_that_nobody_uses_are_forgotten(node: Transacting) -> None:
    me = await node.introduce(ID)
    await node.introduce("other")
    node.clock.advance(node.config.expiration_ms - 1)
    await node.write(ID, me, OUT, "a")
    node.clock.advance(1)
    await node.coordinator._each_shard(node.coordinator._expire)
    await node.look_after()
    assert set(node.coordinator.all()) == {ID}
    node.stop()
    node.start()
    await node.look_after()
    assert set(node.coordinator.all()) == {ID}


class Full:
    """Partitions that take no markers for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        ending = Partition.end_transaction

        def end_transaction(
            partition: Partition, producer_id: int, epoch: int, marker: Marker, *, strict: bool = False
        ) -> Appended:
            if self.is_full and partition.index == 1:
                raise DiskFull("no room")
            return ending(partition, producer_id, epoch, marker, strict=strict)

        self.is_full = True
        monkeypatch.setattr(Partition, "end_transaction", end_transaction)


async def test_markers_are_written_until_all_are_there(
    node: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Full(monkeypatch)
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "a")
    await node.write(ID, me, OTHER, "b")
    await node.end(ID, me, commit=True)  # decided, and the client is told so
    prepared = node.coordinator.find(ID)
    assert prepared is not None
    assert prepared.state is State.PREPARE_COMMIT
    with refused(ErrorCode.concurrent_transactions):
        await node.add(ID, me, OUT)
    with refused(ErrorCode.concurrent_transactions):
        await node.introduce(ID)
    full.is_full = False
    await node.look_after()
    assert (node.committed(*OUT), node.committed(*OTHER)) == (["a"], ["b"])
    await node.write(ID, me, OUT, "c")


async def test_what_cannot_be_completed_is_tried_again_after_a_pause_and_seldom_said(
    node: Transacting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "a")
    tries = 0

    async def refuse(*_: object) -> bool:
        nonlocal tries
        tries += 1
        raise DiskFull("no room")

    monkeypatch.setattr(module, "_trouble", Seldom(module.log, 3600.0))
    with monkeypatch.context() as full:
        full.setattr(node.coordinator, "_try_to_finish", refuse)
        full.setattr(module, "_RETRY_S", 0.05)
        await node.end(ID, me, commit=True)
        began_s = time.monotonic()
        running = asyncio.ensure_future(node.coordinator.run())
        for _ in range(100):
            await asyncio.sleep(0)
        assert tries <= 5 + (time.monotonic() - began_s) / 0.05, "the disk and the loop have their peace"
        await until(lambda: tries >= 6)
    assert caplog.text.count("cannot be completed yet") == 1
    await until(lambda: node.committed(*OUT) == ["a"])
    assert not running.done()
    running.cancel()


async def test_run_ends_when_it_is_told_to_whatever_happens_just_then(node: Transacting) -> None:
    await node.introduce(ID)
    running = asyncio.ensure_future(node.coordinator.run())
    await node.coordinator.loaded()
    for _ in range(20):  # to where it rests
        await asyncio.sleep(0)
    node.coordinator._work.set()
    running.cancel()
    is_over, _ = await asyncio.wait((running,), timeout=10)
    running.cancel()
    assert is_over


async def test_run_finishes_what_a_kill_left(node: Transacting, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Full(monkeypatch)
    me = await node.introduce(ID)
    await node.write(ID, me, OTHER, "b")
    await node.commit_offset(ID, me, "g", 5)
    await node.end(ID, me, commit=True)
    node.kill()
    full.is_full = False
    node.start()
    running = asyncio.ensure_future(node.coordinator.run())
    for _ in range(1000):
        await asyncio.sleep(0)
        found = node.coordinator.find(ID) if node.coordinator._loaded.is_set() else None
        if found is not None and found.state is State.COMPLETE_COMMIT:
            break
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert node.committed(*OTHER) == ["b"]
    assert await node.offset("g") == 5


async def test_run_comes_back_to_what_could_not_be_read(
    node: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Full(monkeypatch)
    me = await node.introduce(ID)
    await node.write(ID, me, OTHER, "b")
    await node.end(ID, me, commit=True)
    node.kill()
    full.is_full = False
    node.start()
    with monkeypatch.context() as patch:
        patch.setattr(transaction_shard.TransactionShard, "replay", _broken_disk)
        running = asyncio.ensure_future(node.coordinator.run())
        await node.coordinator.loaded()
        with pytest.raises(CoordinatorUnreadable):
            node.coordinator.all()
        assert node.coordinator.known() == {}
    node.clock.advance(node.config.abort_check_interval_ms)
    node.coordinator._work.set()
    await until(lambda: node.committed(*OTHER))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert node.committed(*OTHER) == ["b"]
    assert set(node.coordinator.all()) == {ID}


async def test_what_could_not_be_read_is_missed_no_more_when_its_topic_is_gone(
    node: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.introduce(ID)
    node.kill()
    node.start()
    monkeypatch.setattr(transaction_shard.TransactionShard, "replay", _broken_disk)
    running = asyncio.ensure_future(node.coordinator.run())
    await node.coordinator.loaded()
    with pytest.raises(CoordinatorUnreadable):
        node.coordinator.all()
    node.host.remove_topic(TopicName.from_kafka(module.STATE_TOPIC))
    node.clock.advance(node.config.abort_check_interval_ms)
    node.coordinator._work.set()
    await until(lambda: not node.coordinator._unread)
    assert node.coordinator.all() == {}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def _broken_disk(*_: object) -> None:
    raise OSError(errno.EIO, "it is broken")


async def test_a_partition_that_is_gone_needs_no_marker(node: Transacting) -> None:
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "a")
    await node.add(ID, me, ("deleted", 4))
    await node.end(ID, me, commit=True)
    done = node.coordinator.find(ID)
    assert done is not None
    assert done.state is State.COMPLETE_COMMIT
    assert node.committed(*OUT) == ["a"]


async def test_records_outside_of_an_open_transaction_are_refused(node: Transacting) -> None:
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "a")
    plain = records("x", producer_id=me.producer_id, producer_epoch=me.epoch, base_sequence=1)
    with pytest.raises(InvalidTransactionState):
        node.host.partition(*OUT).append(memoryview(plain), -1)


async def test_readers_are_told_of_aborts_in_what_they_get(node: Transacting) -> None:
    me = await node.introduce(ID)
    for number in range(50):
        await node.write(ID, me, OUT, f"{number}")
        await node.end(ID, me, commit=False)
    partition = node.host.partition(*OUT)
    for start in (0, 1, 40):
        part = partition.read(start, 1000, Isolation.COMMITTED, whole_first=True)
        assert part is not None
        end = partition.log.end_of(part)
        assert start < end < start + 30
        listed = partition.aborted(start, Isolation.COMMITTED, part) or []
        assert [one.first_offset for one in listed] == list(range(start - start % 2, end, 2))
    assert partition.aborted(100, Isolation.COMMITTED, None) == []
    assert partition.aborted(0, Isolation.UNCOMMITTED, part) is None


async def test_a_shard_that_waits_for_its_replicas_holds_up_no_other(node: Transacting) -> None:
    follower = Follower(node.host, 0)
    waits, goes_on = "a", next(id for id in "bcdefgh" if node.coordinator.shard_of(id) != 1)
    assert node.coordinator.shard_of(waits) == 1
    producers = {id: await node.introduce(id) for id in (waits, goes_on)}
    for id, me in producers.items():
        await node.write(id, me, OUT, id)

    async def left_ending(id: str) -> None:
        """Its client goes before the end is acknowledged."""
        ending = asyncio.create_task(node.end(id, producers[id], commit=True))
        await asyncio.sleep(0.05)
        ending.cancel()
        await asyncio.wait([ending])

    follower.is_holding = True
    await left_ending(waits)
    running = asyncio.create_task(node.coordinator.run())
    await asyncio.sleep(0.3)
    await left_ending(goes_on)
    follower.is_holding = False
    follower.release(partition=node.host.partition(STATE_TOPIC, 0))
    async with asyncio.timeout(10):
        await until(lambda: _state(node, goes_on) is State.COMPLETE_COMMIT)
    assert _state(node, waits) is State.PREPARE_COMMIT
    assert len(node.host.partition(STATE_TOPIC, 1)._acks.waiting) < 5, "it is waited for once"
    follower.release()
    await until(lambda: _state(node, waits) is State.COMPLETE_COMMIT)
    running.cancel()


async def test_who_is_elected_again_while_it_reads_reads_on(node: Transacting) -> None:
    follower = Follower(node.host, 0)
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "a")
    await node.coordinator._load_all()
    index, topic = node.coordinator.shard_of(ID), node.host.topic(STATE_TOPIC)
    follower.is_holding = True
    ending = asyncio.create_task(node.end(ID, me, commit=True))
    await asyncio.sleep(0.01)
    for epoch in (1, 2):
        state = replace(topic.image.partitions[index], leader_epoch=LeaderEpoch(epoch), partition_epoch=epoch)
        node.host.change_topic(led_by(topic.image, index, state))
        node.coordinator.elected(index)
        await asyncio.sleep(0.01)
    follower.is_holding = False
    follower.release()
    await until(lambda: not node.coordinator._elected)
    assert node.coordinator.all()[ID].state is State.PREPARE_COMMIT
    assert node.coordinator._unfinished == {(index, ID)}
    await asyncio.gather(ending, return_exceptions=True)


async def test_a_coordinator_in_doubt_says_nothing_of_who_takes_part(node: Transacting) -> None:
    """Another may have ended the transaction: a late batch would open one that nobody ends."""
    Follower(node.host, 0)
    session = Session(7)
    node.host.replication.certainty.depend_on(session)
    me = await node.introduce(ID)
    await node.add(ID, me, OUT)
    assert node.coordinator.verify(ID, me, [OUT]) == {OUT: ErrorCode.none}
    session.become(SessionState.EXPIRED)
    with pytest.raises(NotCoordinator):
        node.coordinator.verify(ID, me, [OUT])
    session.become(SessionState.CONNECTED, 8)
    with pytest.raises(NotCoordinator):
        node.coordinator.verify(ID, me, [OUT])
    node.host.replication.certainty.image_read()
    assert node.coordinator.verify(ID, me, [OUT]) == {OUT: ErrorCode.none}


def _elect(node: Transacting, index: int) -> None:
    """A leader that does not know yet how much of its log is safe."""
    topic = node.host.topic(STATE_TOPIC)
    state = replace(topic.image.partitions[index], leader_epoch=LeaderEpoch(1), partition_epoch=1)
    node.host.change_topic(led_by(topic.image, index, state))
    node.host.replica_of(topic, index)._high_watermark = 0


@pytest.mark.parametrize("version", [0, 2])
async def test_nobody_waits_for_a_shard_whose_replicas_are_away(
    node: Transacting, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(runtime, "_PATIENCE_S", 0.05)
    follower = Follower(node.host, 0)
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "a", version=version)
    follower.is_holding = True
    _elect(node, node.coordinator.shard_of(ID))
    async with asyncio.timeout(5):
        with pytest.raises(CoordinatorLoading):
            await node.introduce(ID)
        with pytest.raises(CoordinatorLoading):
            await node.end(ID, me, commit=True, version=version)
    follower.is_holding = False
    follower.release()
    await node.end(ID, me, commit=True, version=version)
    assert node.committed(*OUT) == ["a"]


async def test_run_waits_for_no_shard_that_cannot_be_read_yet(
    node: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOADED_S", 0.01)
    follower = Follower(node.host, 0)
    waits, goes_on = "a", next(id for id in "bcdefgh" if node.coordinator.shard_of(id) != 1)
    producers = {id: await node.introduce(id) for id in (waits, goes_on)}
    for id, me in producers.items():
        await node.write(id, me, OUT, id)
    follower.is_holding = True
    for index in (0, 1):
        _elect(node, index)
    running = asyncio.create_task(node.coordinator.run())
    await asyncio.sleep(0)
    follower.release(partition=node.host.partition(STATE_TOPIC, 0))
    await until(lambda: len(node.coordinator.known()) == 1)
    ending = asyncio.create_task(node.end(goes_on, producers[goes_on], commit=True))
    await asyncio.sleep(0.01)
    ending.cancel()  # who asked is gone: it is for `run` to finish
    await asyncio.wait([ending])
    waiting = node.host.partition(STATE_TOPIC, 1)

    def is_complete() -> bool:
        for partition, _ in follower.waiting:
            if partition is not waiting:
                follower.release(partition=partition)
        return _state(node, goes_on) is State.COMPLETE_COMMIT

    async with asyncio.timeout(10):
        await until(is_complete)
    with pytest.raises(CoordinatorLoading):
        node.coordinator.all()
    follower.release()
    await until(lambda: node.coordinator._loaded.is_set())
    assert node.coordinator.all()[waits].state is State.ONGOING
    running.cancel()


async def test_run_waits_for_no_acknowledgement_of_what_is_complete(node: Transacting) -> None:
    """Another leader would find it prepared, and complete it as well."""
    follower = Follower(node.host, 0)
    shards = {1: "a", 0: next(id for id in "bcdefgh" if node.coordinator.shard_of(id) != 1)}
    assert node.coordinator.shard_of("a") == 1
    producers = {id: await node.introduce(id) for id in shards.values()}
    for id, me in producers.items():
        await node.write(id, me, OUT, id)
    follower.is_holding = True
    running = asyncio.create_task(node.coordinator.run())
    for index, id in shards.items():
        ending = asyncio.create_task(node.end(id, producers[id], commit=True))
        await asyncio.sleep(0.01)
        ending.cancel()  # its client is gone: it is for `run` to finish
        await asyncio.wait([ending])
        follower.release(partition=node.host.partition(STATE_TOPIC, index))

        def is_complete(id: str = id) -> bool:
            follower.release(partition=node.host.partition(*OUT))
            return _state(node, id) is State.COMPLETE_COMMIT

        async with asyncio.timeout(5):
            await until(is_complete)
    assert len(follower.waiting) == 2, "that they are complete is acknowledged by nobody"
    follower.release()
    running.cancel()


def _state(node: Transacting, transactional_id: str) -> State:
    found = node.coordinator.find(transactional_id)
    assert found is not None
    return found.state
