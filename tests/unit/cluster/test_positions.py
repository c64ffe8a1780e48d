"""Durable subscriptions on logs and coordinators: found again after kill -9, shared with Kafka's groups."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from anabranch.base.errors import CoordinatorLoading, NotCoordinator, TooLarge
from anabranch.groups.config import GroupConfig
from anabranch.groups.deletion import delete_group
from anabranch.groups.group import GroupKind
from anabranch.groups.offsets import TopicPartitions
from anabranch.groups.records import OffsetKey, write_offset_key
from anabranch.groups.subscription_states import SUBSCRIPTION_TOPIC
from anabranch.subscriptions import flushing
from anabranch.subscriptions.cursor import CHUNK
from anabranch.subscriptions.durable import CursorName, GroupInUse, SubscriptionGone
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.images import led_by, partition_image
from tests.support.kept import Kept, until


@pytest_asyncio.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    made = Kept(tmp_path, GroupConfig(retention_minutes=1))
    made.topic("orders", 100)
    yield made
    made.kill()


def restart(kept: Kept) -> None:
    kept.kill()
    kept.start()


# --- found again


async def test_a_subscription_without_an_ack_is_there_after_a_kill(kept: Kept) -> None:
    await kept.create("s", at=7)
    restart(kept)
    found = await kept.find("s")
    assert found is not None
    assert found.cursor.mark_delete == 7
    assert found.document.properties == {"made": "here"}


async def test_what_was_saved_is_there_after_a_kill(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    for offset in (0, 1, 2, 5, 9, 30):
        cursor.cursor.ack(offset, offset + 1)
    await kept.positions.save(cursor)
    restart(kept)
    found = await kept.find("s")
    assert found is not None
    assert found.cursor.mark_delete == 3
    assert [offset for offset in range(3, 100) if found.cursor.is_acked(offset)] == [5, 9, 30]


async def test_properties_and_kind_are_kept(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    await kept.positions.set_properties(cursor, {"a": "b"})
    await kept.positions.set_kind(cursor, "Shared")
    restart(kept)
    found = await kept.find("s")
    assert found is not None
    assert (found.document.kind, found.document.properties) == ("Shared", {"a": "b"})


async def test_properties_beyond_a_record_are_refused(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    with pytest.raises(TooLarge):
        await kept.positions.set_properties(cursor, {"a": "b" * (1 << 20)})


async def test_what_was_touched_is_kept_at_once_when_others_are_to_lead(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    cursor.cursor.ack(0, 4)
    kept.positions.touched(cursor)
    await kept.positions.flush()
    assert await kept.committed("s") == 4


async def test_an_acknowledgement_is_kept_soon_without_being_asked(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushing, "FLUSH_AFTER_S", 0.0)
    cursors = [await kept.create(name, at=0) for name in "abcd"]
    for cursor in cursors:
        cursor.cursor.ack(0, 4)
        kept.positions.touched(cursor)
    await until(lambda: all(cursor.saved == 4 for cursor in cursors))


async def test_a_clean_stop_keeps_everything(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    cursor.cursor.ack(3, 5)
    kept.positions.touched(cursor)
    await kept.positions.stop()
    restart(kept)
    found = await kept.find("s")
    assert found is not None
    assert found.cursor.is_acked(4)


async def test_everybody_who_asks_at_once_shares_a_write(kept: Kept) -> None:
    cursors = [await kept.create(f"s{i}", at=0) for i in range(30)]
    before = [kept.host.partition("__consumer_offsets", index).log_end for index in range(3)]
    for cursor in cursors:
        cursor.cursor.ack(0, 9)
    await asyncio.gather(*(kept.positions.save(cursor) for cursor in cursors for _ in range(5)))
    after = [kept.host.partition("__consumer_offsets", index).log_end for index in range(3)]
    assert sum(after) - sum(before) == len(cursors)  # one record each, whoever asked


async def test_a_second_creation_finds_the_first(kept: Kept) -> None:
    first, second = await asyncio.gather(kept.create("s", at=3), kept.create("s", at=9))
    assert first is second


async def test_a_chunk_that_was_passed_is_not_kept(kept: Kept) -> None:
    kept.ends["orders"] = 2 * CHUNK
    cursor = await kept.create("s", at=0)
    cursor.cursor.ack(10, 20)
    cursor.cursor.ack(CHUNK + 7, CHUNK + 9)
    await kept.positions.save(cursor)
    await kept.states.load()
    state = kept.states.known_of_topic("orders", 0)["s"]
    assert sorted(state.chunks) == [0, 1]
    cursor.cursor.ack_up_to(CHUNK)
    await kept.positions.save(cursor)
    assert sorted(state.chunks) == [1]
    assert state.floor == CHUNK
    cursor.cursor.ack_up_to(2 * CHUNK)
    await kept.positions.save(cursor)
    assert not state.chunks


async def test_many_holes_take_several_batches(kept: Kept) -> None:
    kept.ends["orders"] = 300 * CHUNK
    cursor = await kept.create("s", at=0)
    for chunk in range(300):
        for offset in range(chunk * CHUNK, chunk * CHUNK + 3000, 2):
            cursor.cursor.ack(offset + 1, offset + 2)
    await kept.positions.save(cursor)
    await kept.states.load()
    assert len(kept.states.known_of_topic("orders", 0)["s"].chunks) == 300


# --- reset


async def test_a_reset_forgets_what_was_acknowledged_ahead(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    cursor.cursor.ack(0, 50)
    cursor.cursor.ack(60, 70)
    await kept.positions.save(cursor)
    await kept.positions.reset(cursor, 5)
    assert not cursor.cursor.is_acked(65)
    restart(kept)
    found = await kept.find("s")
    assert found is not None
    assert (found.cursor.mark_delete, found.cursor.acked_ahead()) == (5, 0)


# --- deleted


async def test_a_deleted_subscription_is_gone(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    cursor.cursor.ack(5, 6)
    await kept.positions.save(cursor)
    await kept.positions.delete(cursor)
    for _ in range(2):
        assert await kept.find("s") is None
        assert "s" not in (await kept.groups.look("s")).groups
        restart(kept)
    again = await kept.create("s", at=2)
    assert (again.cursor.mark_delete, again.cursor.acked_ahead()) == (2, 0)


async def test_a_deletion_that_was_cut_off_is_one(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    cursor.cursor.ack(5, 6)
    await kept.positions.save(cursor)
    states, kept.states.delete = kept.states, None  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError):
        await kept.positions.delete(cursor)
    kept.states = states
    restart(kept)
    assert await kept.find("s") is None
    again = await kept.create("s", at=2)
    assert not again.cursor.is_acked(5)
    restart(kept)
    found = await kept.find("s")
    assert found is not None
    assert not found.cursor.is_acked(5)


async def test_a_deleted_topic_takes_its_subscriptions_along(kept: Kept) -> None:
    kept.topic("others", 10)
    cursor = await kept.create("s", at=0)
    await kept.create("s", at=0, topic="others")
    cursor.cursor.ack(5, 6)
    await kept.positions.save(cursor)
    await kept.positions.snapshots.write_snapshot("orders", 0, b"snapshot")
    kept.delete_topic("orders")
    kept.topic("orders", 100)
    assert await kept.positions.snapshots.snapshot_of("orders", 0) is None
    assert await kept.find("s") is None
    await until(lambda: "s" not in kept.states.known_of_topic("orders", 0))
    assert await kept.find("s", "others") is not None
    restart(kept)
    assert await kept.find("s") is None
    assert await kept.find("s", "others") is not None


# --- Kafka's groups


async def test_a_subscription_goes_on_where_the_group_of_its_name_was(kept: Kept) -> None:
    assert await kept.kafka_commits("s", 42) == ErrorCode.none
    cursor = await kept.create("s", at=0)
    assert cursor.cursor.mark_delete == 42


async def test_the_position_is_the_groups_offset(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    cursor.cursor.ack(0, 6)
    await kept.positions.save(cursor)
    assert await kept.committed("s") == 6


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_kafka_client_moves_a_group_that_nobody_is_attached_to(kept: Kept, restarts: bool) -> None:
    cursor = await kept.create("s", at=0)
    cursor.cursor.ack(0, 20)
    cursor.cursor.ack(30, 40)
    await kept.positions.save(cursor)
    for offset, mark, is_acked in ((25, 25, True), (10, 10, False), (1 << 40, 100, True)):
        assert await kept.kafka_commits("s", offset) == ErrorCode.none
        if restarts:
            restart(kept)
        found = await kept.find("s")
        assert found is not None
        await kept.positions.attached(found)
        assert found.cursor.mark_delete == mark
        assert found.cursor.is_acked(35) == is_acked
        await kept.positions.detached(found)


async def test_a_subscription_that_is_open_hears_of_it(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    cursor.cursor.ack(30, 40)
    await kept.positions.save(cursor)
    for offset, mark in ((25, 25), (30, 40), (10, 10), (1 << 40, 100)):
        assert await kept.kafka_commits("s", offset) == ErrorCode.none
        assert cursor.cursor.mark_delete == mark
    assert await kept.committed("s") == 1 << 40  # nobody wrote it anew
    await kept.positions.close(cursor)
    assert await kept.committed("s") == 1 << 40


async def test_members_are_told_what_is_acknowledged_ahead(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    cursor.cursor.ack(0, 5)
    cursor.cursor.ack(30, 40)
    await kept.positions.save(cursor)
    await kept.states.load()
    assert kept.stored.ahead("s", "orders", 0) is None  # nobody reads
    (await kept.groups.look("s")).groups["s"] = Members()  # type: ignore[assignment]
    ahead = kept.stored.ahead("s", "orders", 0)
    assert ahead is not None
    assert (ahead.mark_delete, ahead.acked_end(), ahead.acked_ahead()) == (5, 40, 10)
    assert kept.stored.ahead("s", "orders", 1) is None
    assert kept.stored.ahead("other", "orders", 0) is None


async def test_a_group_that_was_moved_back_reads_everything_anew(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    cursor.cursor.ack(0, 20)
    cursor.cursor.ack(30, 40)
    await kept.positions.save(cursor)
    await kept.positions.close(cursor)
    await kept.states.load()
    for offset in (10, 25):  # back, and past where it was
        assert await kept.kafka_commits("s", offset) == ErrorCode.none
        await asyncio.sleep(0)
    (await kept.groups.look("s")).groups["s"] = Members()  # type: ignore[assignment]
    await until(lambda: kept.stored.ahead("s", "orders", 0) is None)
    restart(kept)
    found = await kept.find("s")
    assert found is not None
    assert (found.cursor.mark_delete, found.cursor.acked_ahead()) == (25, 0)


async def test_while_consumers_are_attached_the_offset_is_theirs(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    await kept.positions.attached(cursor)
    assert await kept.kafka_commits("s", 9) == ErrorCode.unknown_member_id
    assert await kept.kafka_commits("other", 9) == ErrorCode.none
    await kept.positions.detached(cursor)
    assert await kept.kafka_commits("s", 9) == ErrorCode.none


class Members:
    """A group that somebody reads every topic in."""

    group_id = "s"
    kind = GroupKind.CONSUMER
    is_empty = False

    def is_subscribed_to(self, topic: str) -> bool:
        return True


async def test_members_that_come_later_do_not_keep_positions_from_being_kept(kept: Kept) -> None:
    cursor = await kept.create("s", at=4)
    await kept.positions.attached(cursor)
    (await kept.groups.look("s")).groups["s"] = Members()  # type: ignore[assignment]
    cursor.cursor.ack(4, 9)
    await kept.positions.save(cursor)
    await kept.positions.detached(cursor)
    assert cursor.saved == 9
    cursor.cursor.ack(9, 12)
    with pytest.raises(GroupInUse):  # the offsets are the members' now
        await kept.positions.save(cursor)
    with pytest.raises(GroupInUse):
        await kept.positions.attached(cursor)


async def handed_over(kept: Kept, committed: int) -> None:
    """Offsets 10 and 11 were acknowledged ahead of 4; now Kafka's members read, and are at `committed`."""
    cursor = await kept.create("s", at=4)
    cursor.cursor.ack(10, 12)
    await kept.positions.save(cursor)
    restart(kept)
    await kept.kafka_commits("s", committed)
    restart(kept)
    (await kept.groups.look("s")).groups["s"] = Members()  # type: ignore[assignment]


async def test_a_group_that_has_members_keeps_no_other_position_from_being_kept(kept: Kept) -> None:
    await handed_over(kept, 20)
    assert (await kept.find("s")) is not None, "and what it has acknowledged ahead is of no use any more"
    shard = kept.stored.shard_of("s")
    other = next(name for name in "abcdefgh" if kept.stored.shard_of(name) == shard)
    cursor = await kept.create(other, at=0)
    cursor.cursor.ack(0, 5)
    kept.positions.touched(cursor)
    await kept.positions.stop()
    assert await kept.committed(other) == 5


async def test_a_topic_is_opened_though_members_have_moved_a_subscription_back(kept: Kept) -> None:
    await handed_over(kept, 2)
    cursor = await kept.find("s")
    assert cursor is not None
    assert (cursor.cursor.mark_delete, cursor.cursor.acked_ahead()) == (2, 0)


async def test_offsets_of_subscriptions_do_not_expire(kept: Kept) -> None:
    await kept.create("s", at=3)
    await kept.kafka_commits("other", 5)
    await kept.states.load()
    shard = await kept.groups.look("s")
    other = await kept.groups.look("other")
    kept.clock.advance(3_600_000)
    expired = [
        record
        for one in {id(shard): shard, id(other): other}.values()
        for record in one.offsets.timeout(("offsets", "expire"), kept.clock.now_ms()).records
    ]
    assert [b"other" in record.key for record in expired] == [True, True]


async def test_a_group_that_is_a_subscription_is_not_deleted(kept: Kept) -> None:
    await kept.create("s", at=3)
    await kept.kafka_commits("other", 5)
    await kept.states.load()
    for group_id, code in (("s", ErrorCode.non_empty_group), ("other", ErrorCode.none)):
        answer = await kept.groups.submit(
            group_id,
            lambda shard, token, now_ms, id=group_id: delete_group(shard.groups, shard.offsets, id, token),  # type: ignore[misc]
        )
        assert answer["error_code"] == code
    answer = await kept.groups.submit(
        "s",
        lambda shard, token, now_ms: shard.offsets.delete(
            "s", [TopicPartitions("orders", None, [0])], token, now_ms
        ),
    )
    assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.group_subscribed_to_topic


async def test_a_subscription_that_went_meanwhile(kept: Kept) -> None:
    cursor = await kept.create("s", at=3)
    await kept.stored.delete(cursor.name)
    with pytest.raises(SubscriptionGone):
        await kept.positions.attached(cursor)
    assert kept.positions.find(cursor.name) is None


# --- logs


async def test_a_log_that_lost_its_end_does_not_have_it_acknowledged(kept: Kept) -> None:
    """After a power cut the internal topics may be ahead of the log."""
    cursor = await kept.create("s", at=0)
    cursor.cursor.ack(0, 20)
    cursor.cursor.ack(30, 90)
    await kept.positions.save(cursor)
    kept.ends["orders"] = 40
    restart(kept)
    found = await kept.find("s")
    assert found is not None
    assert (found.cursor.is_acked(39), found.cursor.is_acked(40)) == (True, False)
    kept.ends["orders"] = 100  # it has grown since
    restart(kept)
    found = await kept.find("s")
    assert found is not None
    assert (found.cursor.is_acked(39), found.cursor.is_acked(40)) == (True, False)


async def test_a_log_that_lost_its_beginning_is_read_from_what_is_left(kept: Kept) -> None:
    await kept.create("s", at=3)
    restart(kept)
    kept.host.partition("orders", 0).trim(60)
    found = await kept.find("s")
    assert found is not None
    assert found.cursor.mark_delete == 60


async def test_the_slowest_subscription_holds_the_log(kept: Kept) -> None:
    assert kept.stored.hold("orders", 0) is None
    await kept.create("slow", at=10)
    await kept.create("fast", at=50)
    restart(kept)
    assert kept.stored.hold("orders", 0) == 0, "nobody knows yet"
    await kept.groups.load()
    await kept.states.load()
    slow = await kept.find("slow")
    assert slow is not None
    assert (kept.stored.hold("orders", 0), kept.stored.hold("orders", 1)) == (10, None)
    slow.cursor.ack_up_to(70)
    await kept.positions.save(slow)
    assert kept.stored.hold("orders", 0) == 50


# --- on several brokers


async def shards_elsewhere(kept: Kept) -> None:
    """Somebody has used Pulsar's protocol once, and another broker leads a part of what is kept of that."""
    await kept.stored.write_snapshot("orders", 0, b"")
    topic = kept.host.topic(SUBSCRIPTION_TOPIC)
    image = topic.image
    for index in range(len(topic.partitions)):
        image = led_by(image, index, partition_image(index, leader=2, epoch=1, replicas=(1, 2)))
    kept.host.change_topic(image)


async def test_groups_of_kafkas_clients_go_though_subscriptions_are_kept_elsewhere(kept: Kept) -> None:
    await kept.create("s", at=3)
    for group_id in ("old", "gone", "left"):
        await kept.kafka_commits(group_id, 5)
    await shards_elsewhere(kept)
    for group_id, code in (("gone", ErrorCode.none), ("s", ErrorCode.non_empty_group)):
        answer = await kept.groups.submit(
            group_id,
            lambda shard, token, now_ms, id=group_id: delete_group(shard.groups, shard.offsets, id, token),  # type: ignore[misc]
        )
        assert answer["error_code"] == code
    for group_id, code in (("left", ErrorCode.none), ("s", ErrorCode.group_subscribed_to_topic)):
        answer = await kept.groups.submit(
            group_id,
            lambda shard, token, now_ms, id=group_id: shard.offsets.delete(  # type: ignore[misc]
                id, [TopicPartitions("orders", None, [0])], token, now_ms
            ),
        )
        assert answer["topics"][0]["partitions"][0]["error_code"] == code
    kept.clock.advance(3_600_000)
    shards = {id(shard): shard for group_id in ("s", "old") if (shard := await kept.groups.look(group_id))}
    expired = [
        record.key
        for shard in shards.values()
        for record in shard.offsets.timeout(("offsets", "expire"), kept.clock.now_ms()).records
    ]
    assert any(b"old" in key for key in expired)
    assert not any(key.startswith(write_offset_key(OffsetKey("s", "orders", 0))) for key in expired)


# --- snapshots


async def test_snapshots_of_producers(kept: Kept) -> None:
    snapshots = kept.positions.snapshots
    assert await snapshots.snapshot_of("orders", 0) is None
    await snapshots.write_snapshot("orders", 0, b"one")
    await snapshots.write_snapshot("orders", 0, b"two")
    restart(kept)
    assert await kept.positions.snapshots.snapshot_of("orders", 0) == b"two"
    assert await kept.positions.snapshots.snapshot_of("orders", 1) is None
    await kept.positions.snapshots.write_snapshot("orders", 0, None)
    restart(kept)
    assert await kept.positions.snapshots.snapshot_of("orders", 0) is None


async def test_names_are_found_by_what_they_are(kept: Kept) -> None:
    cursor = await kept.create("s", at=0)
    assert kept.positions.find(CursorName("s", "orders", 0)) is cursor
    assert kept.positions.find(CursorName("s", "orders", 1)) is None
    assert kept.states.has(OffsetKey("s", "orders", 0))
    restart(kept)
    with pytest.raises(CoordinatorLoading):
        kept.states.has(OffsetKey("s", "orders", 0))
    await kept.states.load()
    assert not kept.states.has(OffsetKey("s", "orders", 1))
    assert kept.states.has(OffsetKey("s", "orders", 0))


async def test_what_kafka_may_delete_while_the_state_is_elsewhere(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(name: OffsetKey) -> bool:
        raise NotCoordinator("broker 2 has it")

    await kept.create("subscription", at=3)
    assert await kept.kafka_commits("group", 5) == ErrorCode.none
    monkeypatch.setattr(kept.states, "has", elsewhere)
    for name, code in (("subscription", ErrorCode.non_empty_group), ("group", ErrorCode.none)):
        answer = await kept.groups.submit(
            name,
            lambda shard, token, now_ms, name=name: delete_group(shard.groups, shard.offsets, name, token),
        )
        assert answer["error_code"] == code
