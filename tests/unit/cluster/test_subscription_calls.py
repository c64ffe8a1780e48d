"""Positions whose shards another broker leads: kept by calls, refused to who owns the topic no more."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import pytest_asyncio

from anabranch.base.errors import (
    AnabranchError,
    Conflict,
    CoordinatorLoading,
    Corrupt,
    FencedLeaderEpoch,
    NotCoordinator,
    NotOwner,
    TooLarge,
    Unavailable,
    UnknownTopic,
)
from anabranch.cluster import subscription_calls
from anabranch.cluster.positions import StoredPositions
from anabranch.cluster.subscription_calls import Stamp, SubscriptionCalls, WriteDocument
from anabranch.groups.other_brokers import OtherBrokers
from anabranch.groups.records import OffsetKey
from anabranch.server.kafka.envelope import envelope
from anabranch.subscriptions.durable import CursorName, GroupInUse, SubscriptionDocument
from anabranch.subscriptions.positions import Positions
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.coordinators import HostTopics
from tests.support.kept import Kept

ME, KEEPER = 1, 2
DOCUMENT = SubscriptionDocument(7, properties={"a": "b"})
NAME = CursorName("s", "orders", 0)
KEY = OffsetKey(*NAME)


class Wire:
    """Stands for `OtherBrokers`: broker 2 leads every shard, and is reached by what Envelope carries."""

    me = ME

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self.asked = 0
        self.failures: list[AnabranchError] = []
        """Of the next requests, which are carried out all the same."""

    def leader_of(self, topic: str, index: int) -> int:
        return KEEPER

    async def ask(self, broker: int, request: Any, timeout_s: float) -> Any:
        assert broker == KEEPER
        self.asked += 1
        services = SimpleNamespace(subscriptions=self._kept.subscriptions)
        ctx = SimpleNamespace(services=services, begun=lambda: None)
        answer = await envelope(SimpleNamespace(**request.values), cast(Any, ctx))
        if self.failures:
            raise self.failures.pop(0)
        return SimpleNamespace(**answer)

    def close(self) -> None: ...


class Owner:
    """A broker that leads `orders` in an epoch, or does not."""

    def __init__(self, kept: Kept, epoch: int | None) -> None:
        self.epoch = epoch
        self.wire = Wire(kept)
        self.calls = SubscriptionCalls(kept.subscriptions, cast(OtherBrokers, self.wire), Random(1))
        self.stored = StoredPositions(self.calls, HostTopics(kept.host), self._epoch_of)
        self.positions = Positions(self.stored, self.stored, kept.bounds)

    def _epoch_of(self, topic: str, partition: int) -> int:
        if self.epoch is None:
            raise NotOwner("another one leads it", KEEPER, 0)
        return self.epoch

    async def load(self) -> "Owner":
        await self.positions.of_topic("orders", 0)
        return self


async def looked() -> None:
    """It asks in the background."""
    for _ in range(100):
        await asyncio.sleep(0)


@pytest_asyncio.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    made = Kept(tmp_path)
    made.topic("orders", 100)
    yield made
    made.kill()


async def test_an_owner_finds_what_the_one_before_it_has_kept(kept: Kept) -> None:
    first = await Owner(kept, 0).load()
    cursor = await first.positions.create(NAME, DOCUMENT, 3)
    await first.positions.attached(cursor)
    for offset in (3, 4, 7, 20):
        cursor.cursor.ack(offset, offset + 1)
    await first.positions.save(cursor)
    await first.positions.snapshots.write_snapshot("orders", 0, b"snapshot")
    assert first.wire.asked > 0
    kept.leader_epoch = 1
    second = Owner(kept, 1)
    found = (await second.positions.of_topic("orders", 0))["s"]
    assert found.cursor.mark_delete == 5
    assert [offset for offset in range(5, 100) if found.cursor.is_acked(offset)] == [7, 20]
    assert found.document.properties == {"a": "b"}
    assert await second.positions.snapshots.snapshot_of("orders", 0) == b"snapshot"
    await second.positions.reset(found, 1)
    assert await kept.committed("s") == 1
    await second.positions.delete(found)
    assert await Owner(kept, 1).positions.of_topic("orders", 0) == {}
    assert await kept.committed("s") is None


async def test_an_owner_that_another_has_followed_keeps_nothing_more(kept: Kept) -> None:
    first = await Owner(kept, 0).load()
    cursor = await first.positions.create(NAME, DOCUMENT, 3)
    cursor.cursor.ack(3, 9)
    kept.leader_epoch = 1
    await first.positions.save(cursor)  # it leaves, and nobody has come yet
    second = await Owner(kept, 1).load()
    cursor.cursor.ack(9, 12)
    with pytest.raises(FencedLeaderEpoch):
        await first.positions.save(cursor)
    with pytest.raises(FencedLeaderEpoch):
        await first.stored.delete(NAME)
    with pytest.raises(FencedLeaderEpoch):
        await Owner(kept, 0).load()
    assert (await second.positions.of_topic("orders", 0))["s"].cursor.mark_delete == 9


async def test_a_keeper_that_has_heard_of_no_owner_goes_by_the_image(kept: Kept) -> None:
    await kept.create("s", at=0)  # so that there are shards
    kept.leader_epoch = 5
    with pytest.raises(FencedLeaderEpoch):
        await Owner(kept, 4).load()
    await Owner(kept, 5).load()
    await Owner(kept, 6).load()  # whose image is behind


async def test_a_write_that_was_given_up_does_not_undo_what_came_after_it(kept: Kept) -> None:
    late = WriteDocument(KEY, Stamp(0, 1), b"{}", False)
    await kept.states.ensure_topic()
    await WriteDocument(KEY, Stamp(0, 2), b"{}", True).run(kept.subscriptions)
    with pytest.raises(Conflict):
        await late.run(kept.subscriptions)
    await WriteDocument(KEY, Stamp(0, 3), b"{}", False).run(kept.subscriptions)


async def test_who_wrote_long_ago_is_forgotten(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_calls, "_MOST_STAMPS", 2)
    for number, group in enumerate(("a", "b", "a", "c"), 5):
        kept.subscriptions.check(OffsetKey(group, "orders", 0), Stamp(0, number))
    for group in ("a", "c"):
        with pytest.raises(Conflict):
            kept.subscriptions.check(OffsetKey(group, "orders", 0), Stamp(0, 4))
    kept.subscriptions.check(OffsetKey("b", "orders", 0), Stamp(0, 4))


async def test_who_is_not_answered_asks_again(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = await Owner(kept, 0).load()
    cursor = await owner.positions.create(NAME, DOCUMENT, 0)
    cursor.cursor.ack(0, 4)
    owner.wire.failures = [Unavailable("lost"), NotCoordinator("moved"), Corrupt("half")]
    await owner.positions.save(cursor)
    assert await kept.committed("s") == 4
    monkeypatch.setattr(subscription_calls, "_PATIENCE_S", 0.0)
    cursor.cursor.ack(4, 5)
    owner.wire.failures = [Unavailable("lost")]
    with pytest.raises(Unavailable):
        await owner.positions.save(cursor)
    await owner.positions.save(cursor)
    assert await kept.committed("s") == 5


async def test_a_keeper_that_does_not_know_of_the_shards_yet_is_asked_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await Owner(kept, 0).load()
    delete, misses = kept.states.delete, [UnknownTopic("there is no topic '__subscription_state'")]

    async def not_yet(name: OffsetKey) -> None:
        if misses:
            raise misses.pop()
        await delete(name)

    monkeypatch.setattr(kept.states, "delete", not_yet)
    cursor = await owner.positions.create(NAME, DOCUMENT, 0)
    await owner.positions.delete(cursor)
    assert not misses


async def test_errors_are_what_they_were(kept: Kept) -> None:
    owner = await Owner(kept, 0).load()
    with pytest.raises(TooLarge):
        await owner.stored.write_document(
            NAME, SubscriptionDocument(7, properties={"a": "b" * (1 << 20)}), new=True
        )
    with pytest.raises(Corrupt):
        await kept.subscriptions.answer(b"\x00")


async def test_what_is_no_call_of_a_broker_is_refused_and_leaves_nothing(kept: Kept) -> None:
    await kept.create("s", at=3)
    named, stamp, huge = ["s", "orders", 0], [0, 1], 1 << 63
    calls: list[Any] = [
        ["ReadNames", [3]],
        ["ReadNames", [huge]],
        ["ReadNames", {}],
        ["ReadStates", "orders", 0, 0, [-1]],
        ["ReadCommitted", [named] * 10_001, -1],
        ["ReadCommitted", [], -1],
        ["WritePositions", [[[named, huge, None], stamp, True]]],
        ["WritePositions", [[[["s", "orders", huge], 5, None], [-1, 1], True]]],
        ["WriteDocument", ["s", "orders", huge], [-1, 1], b"", True],
        ["WriteDocument", ["s" * 40_000, "orders", 0], stamp, b"", True],
        ["WriteChunks", [[[named, {huge: b""}, [], None], stamp]]],
        ["WriteChunks", [[[named, {}, [], huge], stamp]]],
    ]
    written = [msgspec.msgpack.encode(call) for call in calls]
    deep = msgspec.msgpack.encode("ReadNames") + b"\x90" + b"\x91" * 200_000 + b"\x90"
    for data in (b"", b"\xc1", b"\x93" + deep, *written):
        with pytest.raises(AnabranchError):
            await kept.subscriptions.answer(data)
    assert (await kept.subscriptions.answer(msgspec.msgpack.encode(["ReadNames", [0, 1, 2] * 5]))).count(
        b"orders"
    ) == 1
    assert (await kept.positions.of_topic("orders", 0))["s"].cursor.mark_delete == 3


async def test_while_consumers_are_attached_members_commit_nothing(kept: Kept) -> None:
    owner = await Owner(kept, 0).load()
    cursor = await owner.positions.create(NAME, DOCUMENT, 3)
    assert await kept.kafka_commits("s", 5) == ErrorCode.none
    await owner.positions.attached(cursor)
    assert cursor.cursor.mark_delete == 5
    assert await kept.kafka_commits("s", 6) == ErrorCode.unknown_member_id
    await owner.positions.detached(cursor)
    assert await kept.kafka_commits("s", 6) == ErrorCode.none
    await owner.positions.attached(cursor)
    assert cursor.cursor.mark_delete == 6
    kept.leader_epoch = 1  # the owner is gone without a word
    assert await kept.kafka_commits("s", 7) == ErrorCode.none


async def test_a_subscription_that_is_deleted_leaves_the_group_to_its_members(kept: Kept) -> None:
    owner = await Owner(kept, 0).load()
    cursor = await owner.positions.create(NAME, DOCUMENT, 3)
    await owner.positions.attached(cursor)
    await owner.positions.delete(cursor)
    assert await kept.kafka_commits("s", 5) == ErrorCode.none


async def test_a_claim_is_made_again_where_the_shard_has_moved_to(kept: Kept) -> None:
    owner = await Owner(kept, 0).load()
    cursor = await owner.positions.create(NAME, DOCUMENT, 3)
    await owner.positions.attached(cursor)
    shard = await kept.groups.look("s")
    shard.offsets.release(KEY)
    cursor.cursor.ack(3, 4)
    await owner.positions.save(cursor)
    assert await kept.kafka_commits("s", 6) == ErrorCode.unknown_member_id


async def test_a_subscription_does_not_attach_beside_members(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await Owner(kept, 0).load()
    cursor = await owner.positions.create(NAME, DOCUMENT, 3)
    monkeypatch.setattr(subscription_calls, "has_readers", lambda shard, group_id, topic: True)
    with pytest.raises(GroupInUse):
        await owner.positions.attached(cursor)
    assert await kept.kafka_commits("s", 6) == ErrorCode.none


async def test_retention_holds_everything_until_it_knows_better(kept: Kept) -> None:
    owner = await Owner(kept, 0).load()
    assert owner.stored.hold("orders", 0) is None  # there are no subscriptions at all
    await owner.positions.create(NAME, DOCUMENT, 30)
    await owner.positions.create(CursorName("slow", "orders", 0), DOCUMENT, 20)
    assert owner.stored.hold("orders", 0) == owner.stored.hold("orders", 1) == 0
    await looked()
    assert owner.stored.hold("orders", 0) == 20
    assert owner.stored.hold("orders", 1) is None
    await owner.positions.create(CursorName("new", "orders", 0), DOCUMENT, 10)
    assert owner.stored.hold("orders", 0) == 10  # as it has been made here


async def test_retention_goes_by_no_look_from_before_this_broker_led(kept: Kept) -> None:
    before, after = await Owner(kept, 0).load(), Owner(kept, 1)
    await before.positions.create(NAME, DOCUMENT, 30)
    after.stored.hold("orders", 1)
    await looked()
    await before.positions.create(CursorName("new", "orders", 0), DOCUMENT, 10)
    assert after.stored.hold("orders", 0) == 0
    await looked()
    assert after.stored.hold("orders", 0) == 10
    after.epoch = 2
    assert after.stored.hold("orders", 0) == 0
    await looked()
    assert after.stored.hold("orders", 0) == 10


async def test_a_follower_lets_go_of_what_its_leader_has_and_of_nothing_else(kept: Kept) -> None:
    owner = await Owner(kept, 0).load()
    follower = Owner(kept, None)
    assert follower.stored.hold("orders", 0) is None  # there are no subscriptions at all
    await owner.positions.create(NAME, DOCUMENT, 30)
    for _ in range(2):
        assert follower.stored.hold("orders", 0) == 0
        await looked()


@pytest.mark.parametrize("stops", [False, True])
async def test_a_shard_here_that_waits_for_its_replicas_is_not_waited_for_without_end(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    owner = await Owner(kept, 0).load()
    cursor = await owner.positions.create(NAME, DOCUMENT, 0)
    owner.wire.me = KEEPER
    cursor.cursor.ack(4, 5)

    async def waits(changes: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(kept.states, "write_chunks", waits)
    monkeypatch.setattr(subscription_calls, "_ASK_S", 0.01)
    monkeypatch.setattr(subscription_calls, "_LAST_PATIENCE_S", 0.0)
    if not stops:
        monkeypatch.setattr(subscription_calls, "_PATIENCE_S", 0.0)
    saving = asyncio.ensure_future(owner.positions.save(cursor))
    await asyncio.sleep(0)
    if stops:
        owner.calls.hurry()
    with pytest.raises(CoordinatorLoading):
        await asyncio.wait_for(saving, 5)


async def test_a_broker_that_stops_does_not_wait_for_others(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await Owner(kept, 0).load()
    cursor = await owner.positions.create(NAME, DOCUMENT, 0)
    cursor.cursor.ack(0, 4)
    monkeypatch.setattr(subscription_calls, "_LAST_PATIENCE_S", 0.0)
    owner.calls.hurry()
    owner.wire.failures = [Unavailable("gone")]
    with pytest.raises(Unavailable):
        await owner.positions.save(cursor)
