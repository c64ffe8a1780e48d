"""OffsetFetch at every version, as Kafka 4.3.1 answers it."""

from typing import Any
from uuid import UUID

import pytest

from anabranch.base.ids import TopicName
from anabranch.groups.committing import Commit, TopicCommit
from anabranch.groups.coordinator import OFFSETS_TOPIC, partition_for
from anabranch.groups.effects import Producer
from anabranch.meta.image import NO_BROKER
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.offsets import in_columns
from tests.unit.server.kafka.whole_broker import WholeBroker

COMMIT, FETCH = 8, 9
VERSIONS = range(1, 11)
UNKNOWN_ID = UUID(int=99)


async def prepare(broker: WholeBroker) -> None:
    await broker.create("orders", 3)
    parts = [
        {"partition_index": index, "committed_offset": index + 10, "committed_metadata": "m"}
        for index in range(2)
    ]
    await broker.ask(COMMIT, 8, group_id="g", topics=[{"name": "orders", "partitions": parts}])


async def fetch(
    broker: WholeBroker, version: int, group_id: str, topics: dict[str, list[int]] | None, **fields: Any
) -> tuple[int, dict[str, list[tuple[int, int, str, int]]]]:
    """The group's code; offset, metadata and code of each partition."""
    image = broker.image
    wanted: list[dict[str, Any]] | None = None
    if topics is not None:
        wanted = []
        for name, indexes in topics.items():
            topic = image.topics_by_kafka_name.get(name)
            which = {"topic_id": topic.id if topic else UNKNOWN_ID} if version >= 10 else {"name": name}
            wanted.append(which | {"partition_indexes": indexes})
    group = {"group_id": group_id, "topics": wanted}
    if version >= 8:
        member = {name: fields.pop(name) for name in ("member_id", "member_epoch") if name in fields}
        answer = (await broker.ask(FETCH, version, groups=[group | member], **fields)).groups[0]
        assert answer.group_id == group_id
    else:
        answer = await broker.ask(FETCH, version, **group, **fields)
    by_id = {topic.id: name for name, topic in image.topics_by_kafka_name.items()}
    return getattr(answer, "error_code", 0), {
        by_id.get(topic.topic_id, "?") if version >= 10 else topic.name: [
            (part.partition_index, part.committed_offset, part.metadata, part.error_code)
            for part in topic.partitions
        ]
        for topic in answer.topics
    }


@pytest.mark.parametrize("version", VERSIONS)
async def test_offsets_that_were_committed_and_those_that_were_not(broker: WholeBroker, version: int) -> None:
    await prepare(broker)
    answer = await fetch(broker, version, "g", {"orders": [1, 0, 2, 9, -1]})
    assert answer == (
        0,
        {"orders": [(1, 11, "m", 0), (0, 10, "m", 0), (2, -1, "", 0), (9, -1, "", 0), (-1, -1, "", 0)]},
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_topics_that_are_not_there(broker: WholeBroker, version: int) -> None:
    await prepare(broker)
    code, topics = await fetch(broker, version, "g", {"nosuch": [0], "orders": [0]})
    assert code == 0
    assert topics["orders"] == [(0, 10, "m", 0)]
    if version >= 10:
        assert list(topics) == ["orders", "?"], "what is unknown comes last"
        assert topics["?"] == [(0, -1, "", ErrorCode.unknown_topic_id)]
    else:
        assert topics["nosuch"] == [(0, -1, "", 0)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_offset_of_another_topic_of_the_name(broker: WholeBroker, version: int) -> None:
    """Its group was between two coordinators while the topic was deleted: nobody forgot the offset."""
    await prepare(broker)
    topics = [TopicCommit("orders", UNKNOWN_ID, in_columns((0, 5)))]
    commit = Commit("g", "", -1, None, topics, 8)
    await broker.services.groups.submit(
        "g", lambda shard, token, now_ms: shard.offsets.commit(commit, token, now_ms)
    )
    answer = await fetch(broker, version, "g", {"orders": [0, 1]})
    assert answer == (0, {"orders": [(0, -1, "", 0), (1, 11, "m", 0)]})


@pytest.mark.parametrize("version", VERSIONS)
async def test_groups_that_are_not_there(broker: WholeBroker, version: int) -> None:
    await prepare(broker)
    assert await fetch(broker, version, "nobody", {"orders": [0]}) == (0, {"orders": [(0, -1, "", 0)]})
    if version >= 2:
        assert await fetch(broker, version, "nobody", None) == (0, {})


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_all_that_a_group_has(broker: WholeBroker, version: int) -> None:
    await prepare(broker)
    assert await fetch(broker, version, "g", None) == (0, {"orders": [(0, 10, "m", 0), (1, 11, "m", 0)]})
    assert await fetch(broker, version, "g", {}) == (0, {})


@pytest.mark.parametrize("version", VERSIONS)
async def test_before_there_is_a_coordinator(broker: WholeBroker, version: int) -> None:
    await broker.create("orders")
    code, topics = await fetch(broker, version, "g", {"orders": [0]})
    told = ErrorCode.unstable_offset_commit if version >= 2 else ErrorCode.coordinator_not_available
    assert code == (ErrorCode.coordinator_not_available if version >= 2 else 0)
    assert topics == {"orders": [(0, -1, "", told)]}


@pytest.mark.parametrize("version", VERSIONS[6:])
async def test_an_offset_that_a_transaction_is_about_to_replace(broker: WholeBroker, version: int) -> None:
    await prepare(broker)
    topics = [TopicCommit("orders", None, in_columns((0, 77), metadata="t"))]
    request = Commit("g", "", -1, None, topics, 5)
    await broker.services.groups.submit(
        "g", lambda shard, token, ms: shard.offsets.commit_in_transaction(request, Producer(1, 0), token, ms)
    )
    _, loose = await fetch(broker, version, "g", {"orders": [0]}, require_stable=False)
    assert loose == {"orders": [(0, 10, "m", 0)]}
    _, stable = await fetch(broker, version, "g", {"orders": [0, 1]}, require_stable=True)
    assert stable == {"orders": [(0, -1, "", ErrorCode.unstable_offset_commit), (1, 11, "m", 0)]}


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_several_groups_each_in_its_place(broker: WholeBroker, version: int) -> None:
    await prepare(broker)
    groups = [{"group_id": name, "topics": None} for name in ("g", "nobody", "g")]
    answer = await broker.ask(FETCH, version, groups=groups)
    assert [(group.group_id, len(group.topics)) for group in answer.groups] == [
        ("g", 1),
        ("nobody", 0),
        ("g", 1),
    ]
    assert (await broker.ask(FETCH, version, groups=[])).groups == ()


@pytest.mark.parametrize("version", [9, 10])
async def test_a_classic_group_does_not_ask_who_asks(broker: WholeBroker, version: int) -> None:
    await prepare(broker)
    answer = await fetch(broker, version, "g", {"orders": [0]}, member_id="m", member_epoch=3)
    assert answer == (0, {"orders": [(0, 10, "m", 0)]})


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_that_is_elsewhere_has_offsets_to_ask_for_again(
    broker: WholeBroker, version: int
) -> None:
    """librdkafka would wait for ever for partitions that are not in the answer (its issue 5586)."""
    await prepare(broker)
    controller = broker.services.cluster.controller
    await controller.claim()
    shard = partition_for("g", broker.image.topics_by_kafka_name[OFFSETS_TOPIC].partition_count)
    await controller.elect_leader(TopicName.from_kafka(OFFSETS_TOPIC), shard, NO_BROKER, "a test says so")
    code, offsets = await fetch(broker, version, "g", {"orders": [1, 0]})
    told = ErrorCode.unstable_offset_commit if version >= 2 else ErrorCode.not_coordinator
    assert code == (ErrorCode.not_coordinator if version >= 2 else 0)
    assert offsets == {"orders": [(1, -1, "", told), (0, -1, "", told)]}
