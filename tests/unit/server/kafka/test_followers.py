"""What a broker answers of partitions that it follows, or has no replica of."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.base.ids import BrokerId
from anabranch.groups.transaction_markers import Markers
from anabranch.meta.image import BrokerImage
from anabranch.partition.config import RACK_AWARE
from anabranch.partition.partition import Partition
from anabranch.server.kafka.alter_replica_log_dirs import alter_replica_log_dirs
from anabranch.server.kafka.delete_records import delete_records
from anabranch.server.kafka.describe_log_dirs import describe_log_dirs
from anabranch.server.kafka.describe_producers import describe_producers
from anabranch.server.kafka.list_offsets import list_offsets
from anabranch.server.kafka.offset_for_leader_epoch import offset_for_leader_epoch
from anabranch.server.kafka.registry import RequestContext
from anabranch.server.kafka.write_txn_markers import write_txn_markers
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.images import led_by, partition_image
from tests.support.logs import records
from tests.support.serving import FETCH, Answered, Served, read_answer

PLACE = ("t", 0)
CONSUMER, DEBUGGER = -1, -2
NO_OFFSETS: Any = None


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """Broker 1, which is us, led in epoch 3 and wrote two batches, of which one is safe; 2 leads in 4."""
    made = Served(tmp_path)
    made.topic("t")
    change(made, leader=1, epoch=3)
    partition: Partition = made.partition("t")
    for value in ("a", "b"):
        partition.append(
            memoryview(records(value, producer_id=7, producer_epoch=0, base_sequence=ord(value) - ord("a"))),
            1,
        )
    change(made, leader=2, epoch=4)
    replica(made).follow_to(1)
    return made


def change(served: Served, leader: int, epoch: int, replicas: tuple[int, ...] = (1, 2)) -> None:
    image = served.host.topic("t").image
    state = partition_image(0, leader=leader, epoch=epoch, replicas=replicas)
    served.host.change_topic(led_by(image, 0, state))


def replica(served: Served) -> Any:
    return served.host.replica(served.host.topic("t"), 0)


def context(served: Served, version: int) -> RequestContext:
    served.services.threads = None
    return RequestContext(version, "test", 1, served.services, served.peer)


def fetched(served: Served, offset: int = 0, version: int = 16, epoch: int = -1, **options: Any) -> Any:
    extra = {"current_leader_epoch": epoch} if version >= 9 else {}
    return served.fetch([("t", 0, offset)], version, extra=extra, **options).parts[PLACE]


# --- Fetch


@pytest.mark.parametrize("version", [11, 12, 13, 18])
def test_a_consumer_gets_what_the_follower_knows_to_be_safe(served: Served, version: int) -> None:
    got = fetched(served, version=version)
    assert (got.error_code, got.high_watermark, got.last_stable_offset) == (ErrorCode.none, 1, 1)
    (segment,) = replica(served).log.segments
    first = len(got.records)
    assert bytes(got.records) == segment.file.pread(first, 0)
    assert 0 < first < segment.size
    beyond = fetched(served, offset=2, version=version)
    assert (beyond.error_code, beyond.records or b"") == (ErrorCode.none, b"")
    assert fetched(served, offset=3, version=version).error_code == ErrorCode.offset_out_of_range
    assert served.host.traffic.past.bytes_out == first


@pytest.mark.parametrize("version", [4, 10])
def test_an_older_consumer_is_sent_to_the_leader(served: Served, version: int) -> None:
    assert fetched(served, version=version).error_code == ErrorCode.not_leader_or_follower


def test_a_follower_is_sent_to_the_leader(served: Served) -> None:
    got = fetched(served, replica_state={"replica_id": 2})
    assert got.error_code == ErrorCode.not_leader_or_follower
    assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == (2, 4)


@pytest.mark.parametrize(
    ("epoch", "code", "leader"),
    [(3, "fenced_leader_epoch", 2), (4, "none", -1), (5, "unknown_leader_epoch", -1)],
)
def test_the_epoch_that_a_consumer_knows(served: Served, epoch: int, code: str, leader: int) -> None:
    got = fetched(served, epoch=epoch)
    assert (got.error_code, got.current_leader.leader_id) == (ErrorCode[code], leader)
    older = fetched(served, epoch=epoch, version=9).error_code
    assert older == (ErrorCode[code] if epoch != 4 else ErrorCode.not_leader_or_follower)


@pytest.mark.parametrize(
    ("last", "code", "diverging"),
    [(2, "none", (2, 0)), (3, "none", None), (4, "offset_out_of_range", None)],
)
def test_the_epoch_of_what_a_consumer_has(
    served: Served, last: int, code: str, diverging: tuple[int, int] | None
) -> None:
    """The leader has begun epoch 4; where, only who has something of it can say."""
    extra = {"current_leader_epoch": 4, "last_fetched_epoch": last}
    got = served.fetch([("t", 0, 1)], extra=extra).parts[PLACE]
    parted = got.diverging_epoch
    told = None if parted is None or parted.end_offset < 0 else (parted.epoch, parted.end_offset)
    assert (got.error_code, told) == (ErrorCode[code], diverging)


def test_a_broker_without_a_replica_knows_nothing(served: Served) -> None:
    change(served, leader=2, epoch=4, replicas=(2,))
    for epoch in (-1, 3, 4, 5):
        got = fetched(served, epoch=epoch)
        assert (got.error_code, got.current_leader.leader_id) == (ErrorCode.not_leader_or_follower, 2)


async def test_a_consumer_waits_for_what_becomes_safe(served: Served) -> None:
    waiting = served.fetch_raw([("t", 0, 1)], 16, max_wait=60_000)
    replica(served).follow_to(2)
    answer = Answered(served, read_answer(FETCH, 16, await asyncio.wait_for(waiting.answered, 10)))
    assert answer.parts[PLACE].high_watermark == 2
    assert answer.sizes[PLACE] > 0


async def test_a_consumer_that_waits_hears_of_the_next_leader(served: Served) -> None:
    waiting = served.fetch_raw([("t", 0, 2)], 16, max_wait=60_000, extra={"current_leader_epoch": 4})
    change(served, leader=1, epoch=5)
    assert served.partition("t").leader_epoch == 5
    answer = Answered(served, read_answer(FETCH, 16, await asyncio.wait_for(waiting.answered, 10)))
    assert answer.codes == {PLACE: ErrorCode.fenced_leader_epoch}


async def test_a_consumer_that_waits_hears_that_the_replica_is_gone(served: Served) -> None:
    waiting = served.fetch_raw([("t", 0, 2)], 16, max_wait=60_000)
    change(served, leader=2, epoch=4, replicas=(2,))
    answer = Answered(served, read_answer(FETCH, 16, await asyncio.wait_for(waiting.answered, 10)))
    assert answer.codes == {PLACE: ErrorCode.not_leader_or_follower}


# --- the preferred replica

RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


def in_racks(folder: Path, **settings: str) -> Served:
    """Broker 1, which is us, leads; 2 and 3 are in rack b, 3 has most; 4 is not in sync."""
    made = Served(folder, **settings)
    made.topic("t")
    image = made.host.topic("t").image
    made.host.change_topic(
        led_by(image, 0, partition_image(0, epoch=1, replicas=(1, 2, 3, 4), in_sync=(1, 2, 3)))
    )
    for value in ("a", "b", "c"):
        made.partition("t").append(memoryview(records(value)), 1)
    for broker, end in ((2, 1), (3, 2), (4, 3)):
        made.partition("t").replica_reached(BrokerId(broker), end, 0)
    brokers = {BrokerId(id): BrokerImage(BrokerId(id), "h", id, rack) for id, rack in RACKS.items()}
    made.services.cluster.image.brokers = brokers
    return made


@pytest.mark.parametrize(
    ("rack", "offset", "preferred"),
    [("a", 0, -1), ("b", 0, 3), ("b", 2, 3), ("b", 3, -1), ("c", 0, -1), ("d", 0, -1), ("", 0, -1)],
)
def test_consumers_are_sent_to_a_follower_in_their_rack(
    tmp_path: Path, rack: str, offset: int, preferred: int
) -> None:
    served = in_racks(tmp_path, replica_selector_class=RACK_AWARE)
    got = fetched(served, offset, 12, rack_id=rack)
    assert (got.error_code, got.preferred_read_replica) == (ErrorCode.none, preferred)
    assert (got.high_watermark, bool(got.records)) == (1, preferred < 0 and offset < 1)


def test_consumers_read_from_the_leader_unless_it_is_configured(tmp_path: Path) -> None:
    assert fetched(in_racks(tmp_path), 0, 12, rack_id="b").preferred_read_replica == -1


async def test_who_is_sent_to_a_follower_does_not_wait(tmp_path: Path) -> None:
    served = in_racks(tmp_path, replica_selector_class=RACK_AWARE)
    options: dict[str, Any] = {"session_epoch": 0, "rack_id": "b", "max_wait": 60_000}
    first = served.fetch([("t", 0, 1)], 16, **options)
    assert first.parts[PLACE].preferred_read_replica == 3
    options |= {"session_id": first.session_id, "session_epoch": 1}
    assert served.fetch([], 16, **options).parts[PLACE].preferred_read_replica == 3


# --- other requests


async def offset(served: Served, at: int, who: int = DEBUGGER, epoch: int = -1) -> tuple[int, int, int]:
    part = SimpleNamespace(partition_index=0, timestamp=at, current_leader_epoch=epoch)
    topics = [SimpleNamespace(name="t", partitions=[part])]
    request = SimpleNamespace(replica_id=who, isolation_level=0, topics=topics)
    answer = await list_offsets(request, context(served, 9))
    (told,) = answer["topics"][0]["partitions"]
    return told["error_code"], told["offset"], told["leader_epoch"]


async def test_offsets_are_the_leaders_to_tell_but_to_who_looks_into_replicas(served: Served) -> None:
    elsewhere = (ErrorCode.not_leader_or_follower, -1, -1)
    assert await offset(served, -1, CONSUMER) == elsewhere
    assert await offset(served, -1, CONSUMER, epoch=3) == (ErrorCode.fenced_leader_epoch, -1, -1)
    assert await offset(served, -1) == (ErrorCode.none, 2, 4)
    assert await offset(served, -2) == (ErrorCode.none, 0, 3)
    assert await offset(served, -1, epoch=5) == (ErrorCode.unknown_leader_epoch, -1, -1)
    change(served, leader=2, epoch=4, replicas=(2,))
    assert await offset(served, -1) == elsewhere


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, "not_leader_or_follower"), (3, "fenced_leader_epoch"), (5, "unknown_leader_epoch")],
)
async def test_the_end_of_an_epoch_is_the_leaders_to_tell(served: Served, epoch: int, code: str) -> None:
    part = SimpleNamespace(partition=0, leader_epoch=3, current_leader_epoch=epoch)
    topics = [SimpleNamespace(topic="t", partitions=[part])]
    answer = await offset_for_leader_epoch(SimpleNamespace(topics=topics), context(served, 4))
    (told,) = answer["topics"][0]["partitions"]
    assert told["error_code"] == ErrorCode[code]


def marker(served: Served) -> int:
    """The code for the marker of a transaction that nobody knows."""
    asked = SimpleNamespace(
        producer_id=9,
        producer_epoch=0,
        transaction_result=False,
        coordinator_epoch=0,
        transaction_version=0,
        topics=[SimpleNamespace(name="t", partition_indexes=[0])],
    )
    served.services.transactions = SimpleNamespace(markers=Markers(served.host, NO_OFFSETS))
    answer = asyncio.run(write_txn_markers(SimpleNamespace(markers=[asked]), context(served, 1)))
    return int(answer["markers"][0]["topics"][0]["partitions"][0]["error_code"])


def test_markers_are_written_by_leaders(served: Served) -> None:
    assert marker(served) == ErrorCode.not_leader_or_follower
    change(served, leader=2, epoch=4, replicas=(2,))
    assert marker(served) == ErrorCode.unknown_topic_or_partition


async def test_records_of_an_internal_topic_are_not_deleted_wherever_it_is_asked(served: Served) -> None:
    async def code(topic: str) -> int:
        part = SimpleNamespace(partition_index=0, offset=0)
        request = SimpleNamespace(topics=[SimpleNamespace(name=topic, partitions=[part])], timeout=1000)
        answer = await delete_records(request, context(served, 2))
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    assert await code("t") == ErrorCode.not_leader_or_follower
    served.topic("__consumer_offsets")
    image = served.host.topic("__consumer_offsets").image
    served.host.change_topic(led_by(image, 0, partition_image(0, leader=2, epoch=1, replicas=(2,))))
    assert await code("__consumer_offsets") == ErrorCode.invalid_topic_exception


def test_a_follower_knows_producers(served: Served) -> None:
    request = SimpleNamespace(topics=[SimpleNamespace(name="t", partition_indexes=[0])])
    (told,) = describe_producers(request, context(served, 0))["topics"][0]["partitions"]
    assert [(one["producer_id"], one["last_sequence"]) for one in told["active_producers"]] == [(7, 1)]
    change(served, leader=2, epoch=4, replicas=(2,))
    (told,) = describe_producers(request, context(served, 0))["topics"][0]["partitions"]
    assert told["error_code"] == ErrorCode.not_leader_or_follower


async def test_log_dirs_have_what_there_are_replicas_of(served: Served) -> None:
    def moved() -> Any:
        topics = [SimpleNamespace(name="t", partitions=[0])]
        here = SimpleNamespace(path=str(served.host.data.absolute()), topics=topics)
        answer = alter_replica_log_dirs(SimpleNamespace(dirs=[here]), context(served, 2))
        return answer["results"][0]["partitions"][0]["error_code"]

    for asked in (None, [SimpleNamespace(topic="t", partitions=[0])]):
        (folder,) = (await describe_log_dirs(SimpleNamespace(topics=asked), context(served, 4)))["results"]
        assert [topic["name"] for topic in folder["topics"]] == ["t"]
    assert moved() == ErrorCode.none
    change(served, leader=2, epoch=4, replicas=(2,))
    for asked in (None, [SimpleNamespace(topic="t", partitions=[0])]):
        (folder,) = (await describe_log_dirs(SimpleNamespace(topics=asked), context(served, 4)))["results"]
        assert folder["topics"] == []
    assert moved() == ErrorCode.replica_not_available
