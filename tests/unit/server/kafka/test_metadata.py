from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from anabranch.base.ids import BrokerId, TopicName
from anabranch.meta.image import BrokerImage
from anabranch.server.kafka.written_topics import WrittenTopics
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.tenancy import make_namespace
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker

NOT_ASKED = -(1 << 31)
NO_CREATION = {"allow_auto_topic_creation": False}


def named(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def codes(answer: Any) -> dict[str | UUID, ErrorCode]:
    return {topic.topic_id if topic.name is None else topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_at_every_version(broker: WholeBroker, version: int) -> None:
    made = await broker.create("orders", 3)
    answer = await broker.ask(3, version, topics=named("orders"))
    (node,) = answer.brokers
    assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", 9092)
    (topic,) = answer.topics
    assert (topic.name, topic.error_code) == ("orders", ErrorCode.none)
    assert [part.partition_index for part in topic.partitions] == [0, 1, 2]
    for part in topic.partitions:
        assert (part.error_code, part.leader_id, part.replica_nodes, part.isr_nodes) == (0, 1, (1,), (1,))
    if version >= 1:
        assert (node.rack, answer.controller_id, topic.is_internal) == ("rack-a", 1, False)
    if version >= 2:
        assert answer.cluster_id == broker.image.cluster_id
    if version >= 7:
        assert {part.leader_epoch for part in topic.partitions} == {0}
    if version >= 8:
        assert topic.topic_authorized_operations == NOT_ASKED
    if version >= 10:
        assert topic.topic_id == made.id
    if version >= 13:
        assert answer.error_code == ErrorCode.none


@pytest.mark.parametrize(
    ("version", "topics", "all_of_them"),
    [(0, [], True), (1, [], False), (1, None, True), (13, None, True), (13, [], False)],
)
async def test_all_topics(
    broker: WholeBroker, version: int, topics: list[object] | None, all_of_them: bool
) -> None:
    await broker.create("a")
    await make_namespace(broker.services.cluster, "tenant/namespace")
    await broker.create("persistent://tenant/namespace/b")
    answer = await broker.ask(3, version, topics=topics)
    assert set(codes(answer)) == ({"a", "persistent://tenant/namespace/b"} if all_of_them else set())


async def test_what_cannot_be_is_said_topic_by_topic(broker: WholeBroker) -> None:
    await broker.create("there")
    answer = await broker.ask(
        3, 9, topics=named("there", "absent", "..", "a/b", "", "x" * 250), **NO_CREATION
    )
    assert codes(answer) == {
        "there": ErrorCode.none,
        "absent": ErrorCode.unknown_topic_or_partition,
        "..": ErrorCode.invalid_topic_exception,
        "a/b": ErrorCode.invalid_topic_exception,
        "": ErrorCode.invalid_topic_exception,
        "x" * 250: ErrorCode.invalid_topic_exception,
    }
    assert set(broker.image.topics_by_kafka_name) == {"there"}


async def test_a_topic_is_answered_once_and_as_it_was_called(broker: WholeBroker) -> None:
    made = await broker.create("a")
    full = "persistent://public/default/a"
    assert list(codes(await broker.ask(3, 9, topics=named("a", "a")))) == ["a"]
    assert list(codes(await broker.ask(3, 9, topics=named(full)))) == [full]
    by_both = [{"topic_id": made.id, "name": None}, {"topic_id": None, "name": "a"}]
    assert list(codes(await broker.ask(3, 12, topics=by_both))) == ["a"]


async def test_by_id(broker: WholeBroker) -> None:
    made, unknown = await broker.create("a"), uuid4()
    asked = [{"topic_id": made.id, "name": None}, {"topic_id": unknown, "name": None}]
    answer = await broker.ask(3, 12, topics=asked)
    assert codes(answer) == {"a": ErrorCode.none, unknown: ErrorCode.unknown_topic_id}


@pytest.mark.parametrize(
    ("version", "by_id", "by_name"),
    [(10, True, False), (11, True, True), (10, False, False), (12, False, False), (13, False, False)],
)
async def test_asked_for_in_a_way_that_the_version_does_not_have(
    broker: WholeBroker, version: int, by_id: bool, by_name: bool
) -> None:
    made = await broker.create("a")
    asked = {"topic_id": made.id if by_id else None, "name": "a" if by_name else None}
    answer = await broker.ask(3, version, topics=[asked])
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.invalid_request]
    assert (answer.brokers, answer.cluster_id, answer.controller_id) == ((), None, -1)
    assert getattr(answer, "error_code", ErrorCode.invalid_request) == ErrorCode.invalid_request


@pytest.mark.parametrize("version", [0, 3, 4, 13])
async def test_asking_creates(tmp_path: Path, version: int) -> None:
    async with open_broker(tmp_path / "data", num_partitions="4") as broker:
        answer = await broker.ask(3, version, topics=named("new", "also-new", ".."))
        assert codes(answer) == {
            "new": ErrorCode.none,
            "also-new": ErrorCode.none,
            "..": ErrorCode.invalid_topic_exception,
        }
        assert [len(topic.partitions) for topic in answer.topics] == [4, 4, 0]
        broker.put("new", "written at once")


async def test_asking_creates_nothing_where_it_may_not(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "data") as broker:
        assert codes(await broker.ask(3, 4, topics=named("a"), **NO_CREATION)) == {
            "a": ErrorCode.unknown_topic_or_partition
        }
        # Whoever needs an internal topic makes it, with as many partitions as it takes.
        assert codes(await broker.ask(3, 9, topics=named("__consumer_offsets"))) == {
            "__consumer_offsets": ErrorCode.unknown_topic_or_partition
        }
        assert not broker.image.topics
    async with open_broker(tmp_path / "other", auto_create_topics_enable="false") as broker:
        assert codes(await broker.ask(3, 9, topics=named("a"))) == {"a": ErrorCode.unknown_topic_or_partition}
        assert not broker.image.topics


async def test_creation_that_fails_says_why(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "data", default_replication_factor="3") as broker:
        answer = await broker.ask(3, 9, topics=named("a"))
        assert codes(answer) == {"a": ErrorCode.invalid_replication_factor}
    async with open_broker(tmp_path / "other") as broker:
        await broker.create("a.b")
        answer = await broker.ask(3, 9, topics=named("a_b"))
        assert codes(answer) == {"a_b": ErrorCode.invalid_topic_exception}


async def test_what_may_be_done(broker: WholeBroker) -> None:
    await broker.create("a")
    flags = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    answer = await broker.ask(3, 9, topics=named("a", "absent"), **flags, **NO_CREATION)
    assert answer.cluster_authorized_operations == 8096
    assert [topic.topic_authorized_operations for topic in answer.topics] == [3576, 3576]
    assert (await broker.ask(3, 9, topics=named("a"))).cluster_authorized_operations == NOT_ASKED


async def test_internal_topics_are_said_to_be(broker: WholeBroker) -> None:
    await broker.create("__consumer_offsets")
    answer = await broker.ask(3, 1, topics=None)
    assert [(topic.name, topic.is_internal) for topic in answer.topics] == [("__consumer_offsets", True)]


async def test_bytes_are_kept_until_the_topic_changes(broker: WholeBroker) -> None:
    await broker.create("a")
    first = await broker.ask(3, 9, topics=None)
    assert await broker.ask(3, 9, topics=None) == first
    await broker.services.cluster.add_partitions(TopicName.from_kafka("a"), 2)
    assert len((await broker.ask(3, 9, topics=None)).topics[0].partitions) == 2
    # With other flags and at another version they are others.
    flagged = await broker.ask(3, 9, topics=None, include_topic_authorized_operations=True)
    assert flagged.topics[0].topic_authorized_operations == 3576
    assert (await broker.ask(3, 8, topics=None)).topics[0].topic_authorized_operations == NOT_ASKED
    deleted = broker.image.topics_by_kafka_name["a"].id
    await broker.services.cluster.delete_topic(deleted)
    made = await broker.create("a")
    assert (await broker.ask(3, 10, topics=None)).topics[0].topic_id == made.id != deleted


async def test_a_leader_that_is_gone(broker: WholeBroker) -> None:
    topic = await broker.create("a")
    written = WrittenTopics()
    alive = broker.image
    others = {BrokerId(2): BrokerImage(BrokerId(2), "127.0.0.1", 9093)}
    gone = replace(alive, brokers=others)
    with_leader = written.topic(alive, topic, "a", 5, NOT_ASKED)
    without = written.topic(gone, topic, "a", 5, NOT_ASKED)
    assert with_leader != without
    assert without.endswith(b"\0\5" + b"\0\0\0\0" + b"\xff\xff\xff\xff" + (b"\0\0\0\1\0\0\0\1" * 3))
    assert written.topic(alive, topic, "a", 5, NOT_ASKED) == with_leader


async def test_kept_bytes_are_bounded(broker: WholeBroker) -> None:
    topic = await broker.create("a")
    written = WrittenTopics()
    for number in range(1000):
        written.topic(broker.image, topic, f"a{number}", 5, NOT_ASKED)
    assert len(written) < 20
