"""Fetches of followers: the log as it is up to its end, and what they do to the high watermark."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.base.ids import TopicName
from anabranch.log.config import LogConfig
from anabranch.partition.partition import Partition
from anabranch.server.kafka.fetch import Fetch
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.images import led_by, partition_image
from tests.support.logs import records
from tests.support.serving import FETCH, Answered, Served, read_answer
from tests.support.topics import send

PLACE = ("t", 0)
HOUR_MS = 3_600_000


@pytest.fixture
def served(tmp_path: Path) -> Served:
    made = Served(tmp_path)
    made.topic("t")
    change(made, epoch=3)
    return made


def change(
    served: Served, epoch: int, in_sync: tuple[int, ...] = (1, 2), replicas: tuple[int, ...] = (1, 2)
) -> None:
    """Brokers 1, which is us and leads, and 2 have replicas."""
    image = served.host.topic("t").image
    state = partition_image(0, epoch=epoch, replicas=replicas, in_sync=in_sync)
    served.host.change_topic(led_by(image, 0, state))


def by_replica(served: Served, offset: int, replica: int = 2, version: int = 16, **extra: int) -> Any:
    who: dict[str, Any] = {"replica_state": {"replica_id": replica, "replica_epoch": -1}}
    if version < 15:
        who = {"replica_id": replica}
    answered = served.fetch([("t", 0, offset)], version, **who, extra={"current_leader_epoch": 3} | extra)
    return answered.parts[PLACE]


def put(served: Served, *values: str) -> Partition:
    partition = served.partition("t")
    partition.append(memoryview(records(*values)), 1)
    return partition


def stored(partition: Partition) -> bytes:
    (segment,) = partition.log.segments
    return segment.file.pread(segment.size, 0)


@pytest.mark.parametrize("version", [4, 11, 12, 14, 15, 18])
def test_a_follower_gets_what_is_not_safe_and_makes_it_so(served: Served, version: int) -> None:
    partition = put(served, "a", "b")
    extra = {"current_leader_epoch": 3} if version >= 9 else {}
    who: dict[str, Any] = {"replica_id": 2} if version < 15 else {"replica_state": {"replica_id": 2}}
    got = served.fetch([("t", 0, 0)], version, **who, extra=extra).parts[PLACE]
    assert bytes(got.records) == stored(partition)
    assert (got.high_watermark, partition.high_watermark) == (0, 0)
    assert served.fetch([("t", 0, 0)]).sizes == {PLACE: 0}
    assert served.fetch([("t", 0, 2)], version, **who, extra=extra).parts[PLACE].high_watermark == 2
    assert served.fetch([("t", 0, 0)]).sizes == {PLACE: len(stored(partition))}


def test_a_broker_without_a_replica_is_refused_and_counts_for_nothing(served: Served) -> None:
    partition = put(served, "a")
    assert by_replica(served, 1, replica=7).error_code == ErrorCode.unknown_leader_epoch
    unnamed = by_replica(served, 1, replica=7, current_leader_epoch=-1)
    assert unnamed.error_code == ErrorCode.not_leader_or_follower
    assert (unnamed.current_leader.leader_id, unnamed.current_leader.leader_epoch) == (1, 3)
    assert partition.high_watermark == 0
    change(served, epoch=3, replicas=(1, 2, 7))
    assert by_replica(served, 1, replica=7).error_code == ErrorCode.none
    assert partition.high_watermark == 0  # it is not in sync


@pytest.mark.parametrize(
    ("epoch", "code", "high_watermark"),
    [
        (6, ErrorCode.not_leader_or_follower, 0),
        (7, ErrorCode.none, 1),
        (8, ErrorCode.none, 1),  # of which the image does not know yet
        (-1, ErrorCode.none, 1),
    ],
)
def test_a_broker_that_has_restarted_since_it_asked_is_refused(
    served: Served, epoch: int, code: ErrorCode, high_watermark: int
) -> None:
    partition = put(served, "a")
    served.host.replication.epoch_of = lambda broker: 7
    who = {"replica_state": {"replica_id": 2, "replica_epoch": epoch}, "extra": {"current_leader_epoch": 3}}
    got = served.fetch([("t", 0, 1)], **who).parts[PLACE]
    assert (got.error_code, partition.high_watermark) == (code, high_watermark)


@pytest.mark.parametrize(
    ("offset", "extra", "code"),
    [
        (2, {}, ErrorCode.offset_out_of_range),
        (1 << 62, {}, ErrorCode.offset_out_of_range),
        (-1, {}, ErrorCode.offset_out_of_range),
        (1, {"current_leader_epoch": 2}, ErrorCode.fenced_leader_epoch),
        (1, {"current_leader_epoch": 4}, ErrorCode.unknown_leader_epoch),
        (1, {"last_fetched_epoch": 4}, ErrorCode.offset_out_of_range),
    ],
)
def test_what_cannot_be_moves_no_high_watermark(
    served: Served, offset: int, extra: dict[str, int], code: ErrorCode
) -> None:
    partition = put(served, "a")
    assert by_replica(served, offset, **extra).error_code == code
    assert partition.high_watermark == 0


def test_a_follower_whose_history_parted_is_told_where(served: Served) -> None:
    put(served, "a")
    change(served, epoch=6)
    partition = put(served, "b")
    parted = by_replica(served, 2, current_leader_epoch=6, last_fetched_epoch=3)
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (3, 1)
    assert not parted.records
    assert partition.high_watermark == 0
    followed = by_replica(served, 2, current_leader_epoch=6, last_fetched_epoch=6)
    assert followed.diverging_epoch is None or followed.diverging_epoch.end_offset == -1
    assert partition.high_watermark == 2


@pytest.mark.parametrize("led_meanwhile", [4, 5])
def test_a_leader_that_has_written_nothing_knows_where_its_history_ends(
    served: Served, led_meanwhile: int
) -> None:
    """Of an epoch that it has nothing of: else a follower that led for a moment would ask for ever."""
    put(served, "a", "b")
    change(served, epoch=6)
    parted = by_replica(served, 1, current_leader_epoch=6, last_fetched_epoch=led_meanwhile)
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (3, 2)


def test_a_leader_with_an_empty_log_has_a_follower_begin_there(served: Served) -> None:
    change(served, epoch=6)
    parted = by_replica(served, 2, current_leader_epoch=6, last_fetched_epoch=5)
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (5, 0)
    assert by_replica(served, 0, current_leader_epoch=6, last_fetched_epoch=5).error_code == ErrorCode.none


async def test_entries_come_as_they_are(served: Served) -> None:
    partition = served.partition("t")
    partition.append_entries([send(0), send(1, messages=3)])
    assert partition.has_entries
    assert bytes(by_replica(served, 0).records) == stored(partition)


async def test_a_follower_is_woken_by_what_is_written_and_a_consumer_by_what_is_safe(served: Served) -> None:
    partition = put(served, "a")
    who = {"replica_state": {"replica_id": 2, "replica_epoch": -1}, "extra": {"current_leader_epoch": 3}}
    follower = served.fetch_raw([("t", 0, 1)], max_wait=HOUR_MS, **who)
    consumer = served.fetch_raw([("t", 0, 1)], max_wait=HOUR_MS)
    assert isinstance(follower, Fetch)
    assert isinstance(consumer, Fetch)
    appended = partition.append(memoryview(records("b")), -1)
    got = Answered(served, read_answer(FETCH, 16, await asyncio.wait_for(follower.answered, 60)))
    assert got.sizes[PLACE] > 0
    await asyncio.sleep(0.01)
    assert not consumer.answered.done()
    assert appended.acknowledged is not None
    assert not appended.acknowledged.done()
    by_replica(served, 2)
    await asyncio.wait_for(appended.acknowledged, 60)
    got = Answered(served, read_answer(FETCH, 16, await asyncio.wait_for(consumer.answered, 60)))
    assert got.sizes[PLACE] > 0


async def test_a_throttled_follower_is_given_what_is_let_through_once_it_is_woken(served: Served) -> None:
    """What its fetch finds when it looks is not paid for twice, or a busy partition would never be moved."""
    change(served, epoch=3, in_sync=(1,))
    topic = served.host.topic("t")
    other = partition_image(1, epoch=3, replicas=(1, 2))
    served.host.change_topic(replace(topic.image, partitions=(*topic.image.partitions, other)))
    topic.image = replace(topic.image, config={"leader.replication.throttled.replicas": "*"})
    throttle = served.host.replication.leader_throttle
    throttle.rate = lambda: 10
    throttle.let_through(1000)
    partition = put(served, "a")
    who = {"replica_state": {"replica_id": 2, "replica_epoch": -1}, "extra": {"current_leader_epoch": 3}}
    follower = served.fetch_raw([("t", 0, 0), ("t", 1, 0)], max_wait=HOUR_MS, **who)
    assert isinstance(follower, Fetch)
    served.clock.ms += 1000 * 100
    partition.append(memoryview(records("b")), 1)
    got = Answered(served, read_answer(FETCH, 16, await asyncio.wait_for(follower.answered, 60)))
    assert got.sizes[PLACE] == partition.log.size_bytes
    assert throttle.is_exceeded


def test_fewer_in_sync_than_there_have_to_be(served: Served) -> None:
    served.host.configure_topic(TopicName.from_kafka("t"), LogConfig(min_insync_replicas=2))
    change(served, epoch=3, in_sync=(1,))
    refused = served.produce("t", records("a"))
    assert refused.error_code == ErrorCode.not_enough_replicas
    assert served.produce("t", records("a"), acks=1).error_code == ErrorCode.none
    assert served.partition("t").high_watermark == 0
    served.host.configure_topic(TopicName.from_kafka("t"), LogConfig())
    assert served.partition("t").high_watermark == 1
    assert served.produce("t", records("a")).error_code == ErrorCode.none
