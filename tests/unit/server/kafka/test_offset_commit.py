"""OffsetCommit at every version, as Kafka 4.3.1 answers it."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker

COMMIT, FETCH = 8, 9
VERSIONS = range(2, 11)
UNKNOWN_ID = UUID(int=99)


def part(index: int, offset: int = 5, metadata: str | None = "m") -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}


async def commit(
    broker: WholeBroker, version: int, *topics: tuple[str, list[dict[str, Any]]], **fields: Any
) -> dict[str, list[tuple[int, int]]]:
    """Codes by topic, in the order of the answer."""
    image = broker.image
    by_id = {topic.id: name for name, topic in image.topics_by_kafka_name.items()}
    wanted: list[dict[str, Any]] = []
    for name, parts in topics:
        topic = image.topics_by_kafka_name.get(name)
        which = {"topic_id": topic.id if topic else UNKNOWN_ID} if version >= 10 else {"name": name}
        wanted.append(which | {"partitions": parts})
    answer = await broker.ask(COMMIT, version, **{"group_id": "g"} | fields, topics=wanted)
    return {
        by_id.get(topic.topic_id, "?") if version >= 10 else topic.name: [
            (part.partition_index, part.error_code) for part in topic.partitions
        ]
        for topic in answer.topics
    }


async def committed(broker: WholeBroker, group_id: str = "g") -> dict[tuple[str, int], tuple[int, str]]:
    answer = await broker.ask(FETCH, 8, groups=[{"group_id": group_id, "topics": None}])
    return {
        (topic.name, part.partition_index): (part.committed_offset, part.metadata)
        for topic in answer.groups[0].topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_commit(broker: WholeBroker, version: int) -> None:
    await broker.create("orders", 2)
    codes = await commit(broker, version, ("orders", [part(0, 5), part(1, 7, None)]))
    assert codes == {"orders": [(0, 0), (1, 0)]}
    assert await committed(broker) == {("orders", 0): (5, "m"), ("orders", 1): (7, "")}


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_is_not_there_is_refused_and_comes_first(broker: WholeBroker, version: int) -> None:
    await broker.create("orders", 2)
    codes = await commit(broker, version, ("orders", [part(9), part(0), part(-1)]), ("nosuch", [part(0)]))
    unknown = ErrorCode.unknown_topic_id if version >= 10 else ErrorCode.unknown_topic_or_partition
    nosuch = "?" if version >= 10 else "nosuch"
    assert codes == {"orders": [(9, 3), (-1, 3), (0, 0)], nosuch: [(0, unknown)]}
    assert await commit(broker, version, ("nosuch", [part(0)])) == {nosuch: [(0, unknown)]}


async def test_what_is_not_there_and_named_twice_is_answered_twice(broker: WholeBroker) -> None:
    await broker.create("orders", 2)
    nosuch = ("nosuch", [part(0)]), ("nosuch", [part(1)])
    codes = await commit(broker, 8, *nosuch, ("orders", [part(9)]), ("orders", [part(8), part(0)]))
    assert codes == {"nosuch": [(0, 3), (1, 3)], "orders": [(9, 3), (8, 3), (0, 0)]}


@pytest.mark.parametrize("version", VERSIONS)
async def test_metadata_that_is_too_long(broker: WholeBroker, version: int) -> None:
    await broker.create("orders", 2)
    codes = await commit(broker, version, ("orders", [part(0, 5, "x" * 4097), part(1, 5, "y" * 4096)]))
    assert codes == {"orders": [(0, ErrorCode.offset_metadata_too_large), (1, 0)]}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_of_no_group(broker: WholeBroker, version: int) -> None:
    await broker.create("orders")
    who = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    codes = await commit(broker, version, ("orders", [part(0), part(5)]), **who)
    refused = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
    assert codes == {"orders": [(5, 3), (0, refused)]}
    assert await commit(broker, version, **who) == {}


async def test_the_group_without_a_name_may_commit(broker: WholeBroker) -> None:
    await broker.create("orders")
    assert await commit(broker, 8, ("orders", [part(0)]), group_id="") == {"orders": [(0, 0)]}
    assert await committed(broker, "") == {("orders", 0): (5, "m")}


async def test_a_retention_that_the_client_asked_for_is_written(broker: WholeBroker) -> None:
    await broker.create("orders")
    await commit(broker, 4, ("orders", [part(0)]), retention_time=60_000)
    shard = await broker.services.groups.look("g")
    ((_, _, offset),) = shard.offsets.committed("g")
    assert offset.expires_ms == broker.clock.ms + 60_000
    await commit(broker, 4, ("orders", [part(0)]), retention_time=-1)
    ((_, _, offset),) = shard.offsets.committed("g")
    assert offset.expires_ms == -1


async def test_the_epoch_of_the_leader_is_kept(broker: WholeBroker) -> None:
    await broker.create("orders")
    await commit(broker, 6, ("orders", [part(0) | {"committed_leader_epoch": 4}]))
    answer = await broker.ask(FETCH, 5, group_id="g", topics=[{"name": "orders", "partition_indexes": [0]}])
    assert answer.topics[0].partitions[0].committed_leader_epoch == 4


async def test_a_topic_has_one_name(broker: WholeBroker) -> None:
    await broker.create("orders")
    alias = "persistent://public/default/orders"
    assert await commit(broker, 8, (alias, [part(0)])) == {alias: [(0, 0)]}
    assert await committed(broker) == {("orders", 0): (5, "m")}
    answer = await broker.ask(FETCH, 5, group_id="g", topics=[{"name": alias, "partition_indexes": [0]}])
    assert answer.topics[0].name == alias
    assert answer.topics[0].partitions[0].committed_offset == 5


async def test_a_commit_that_does_not_fit_one_batch(broker: WholeBroker) -> None:
    await broker.create("orders")
    codes = await commit(broker, 8, ("orders", [part(0, 1, "m" * 4000) for _ in range(300)]))
    assert set(codes["orders"]) == {(0, ErrorCode.unknown_server_error)}


async def test_a_group_whose_name_no_record_can_hold(broker: WholeBroker) -> None:
    await broker.create("orders")
    codes = await commit(broker, 8, ("orders", [part(0)]), group_id="g" * 40_000)
    assert codes == {"orders": [(0, ErrorCode.unknown_server_error)]}


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker:
        await broker.create("orders", 20)
        for group in ("g", "h", "i"):
            await commit(broker, 8, ("orders", [part(i, i * 3) for i in range(20)]), group_id=group)
    async with open_broker(tmp_path) as broker:
        for group in ("g", "h", "i"):
            assert await committed(broker, group) == {("orders", i): (i * 3, "m") for i in range(20)}


async def test_many_offsets_of_topics_are_there_after_a_restart(tmp_path: Path) -> None:
    topics = {"orders": 130, "bills": 3, "parcels": 70}
    asked = [(name, [part(i, i * 3, "") for i in range(size)]) for name, size in topics.items()]
    meant = {(name, i): (i * 3, "") for name, size in topics.items() for i in range(size)}
    async with open_broker(tmp_path) as broker:
        for name, size in topics.items():
            await broker.create(name, size)
        codes = await commit(broker, 9, *asked)
        assert codes == {name: [(i, 0) for i in range(size)] for name, size in topics.items()}
        assert await committed(broker) == meant
        assert await commit(broker, 9, ("bills", [part(i, 1, "") for i in range(-1, 5)])) == {
            "bills": [(-1, 3), (3, 3), (4, 3), (0, 0), (1, 0), (2, 0)]
        }
    async with open_broker(tmp_path) as broker:
        assert await committed(broker) == meant | {("bills", i): (1, "") for i in range(3)}


async def test_a_deleted_topic_takes_its_offsets_along(broker: WholeBroker) -> None:
    await broker.create("orders")
    await broker.create("bills")
    await commit(broker, 8, ("orders", [part(0)]), ("bills", [part(0)]))
    await broker.ask(20, 6, topics=[{"name": "orders", "topic_id": None}])
    await broker.create("orders")
    assert await committed(broker) == {("bills", 0): (5, "m")}
