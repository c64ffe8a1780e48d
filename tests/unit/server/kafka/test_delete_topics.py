from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from anabranch.base.errors import UnknownTopic
from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker


def target(name: str | None = None, topic_id: UUID | None = None) -> dict[str, Any]:
    return {"name": name, "topic_id": topic_id}


async def delete(broker: WholeBroker, *targets: dict[str, Any], **fields: Any) -> list[Any]:
    return list((await broker.ask(20, 6, topics=targets, **fields)).responses)


@pytest.mark.parametrize("version", range(1, 6))
async def test_by_name_at_every_version(broker: WholeBroker, version: int) -> None:
    await broker.create("a")
    broker.put("a", "x")
    answer = await broker.ask(20, version, topic_names=["a", "absent", "..", ""])
    assert [(result.name, result.error_code) for result in answer.responses] == [
        ("a", ErrorCode.none),
        ("absent", ErrorCode.unknown_topic_or_partition),
        ("..", ErrorCode.unknown_topic_or_partition),
        ("", ErrorCode.unknown_topic_or_partition),
    ]
    if version >= 5:
        assert [bool(result.error_message) for result in answer.responses] == [False, True, True, True]
    assert not broker.image.topics
    with pytest.raises(UnknownTopic):
        broker.partition("a")


async def test_by_id_and_by_name(broker: WholeBroker) -> None:
    a, b, unknown = await broker.create("a"), await broker.create("b"), uuid4()
    results = await delete(broker, target("a"), target(topic_id=b.id), target(topic_id=unknown))
    assert [(result.name, result.topic_id, result.error_code) for result in results] == [
        ("a", a.id, ErrorCode.none),
        ("b", b.id, ErrorCode.none),
        (None, unknown, ErrorCode.unknown_topic_id),
    ]


async def test_named_in_no_way_or_in_two(broker: WholeBroker) -> None:
    a, b = await broker.create("a"), await broker.create("b")
    assert [r.error_code for r in await delete(broker, target("a", a.id))] == [ErrorCode.invalid_request]
    assert [r.error_code for r in await delete(broker, target())] == [ErrorCode.invalid_request]
    assert [r.error_code for r in await delete(broker, target("a"), target("a"))] == [
        ErrorCode.invalid_request
    ]
    twice = await delete(broker, target("a"), target(topic_id=a.id), target("b"))
    assert [r.error_code for r in twice] == [ErrorCode.invalid_request] * 2 + [ErrorCode.none]
    full = "persistent://public/default/a"
    assert {r.error_code for r in await delete(broker, target("a"), target(full))} == {
        ErrorCode.invalid_request
    }
    assert set(broker.image.topics_by_id) == {a.id}
    assert b.id not in broker.image.topics_by_id


async def test_deleted_and_made_again_it_is_empty(broker: WholeBroker) -> None:
    first = await broker.create("a")
    broker.put("a", "old")
    await delete(broker, target("a"))
    second = await broker.create("a")
    assert first.id != second.id
    assert broker.partition("a").log_end == 0


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, ErrorCode.invalid_request),
        (2, ErrorCode.invalid_request),
        (3, ErrorCode.topic_deletion_disabled),
        (5, ErrorCode.topic_deletion_disabled),
    ],
)
async def test_deletion_switched_off(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async with open_broker(tmp_path / "data", delete_topic_enable="false") as broker:
        await broker.create("a")
        answer = await broker.ask(20, version, topic_names=["a", "absent"])
        assert [result.error_code for result in answer.responses] == [code, code]
        assert "a" in broker.image.topics_by_kafka_name


async def test_no_time_at_all(broker: WholeBroker) -> None:
    await broker.create("a")
    assert [r.error_code for r in await delete(broker, target("a"), timeout=0)] == [
        ErrorCode.request_timed_out
    ]
    assert "a" in broker.image.topics_by_kafka_name


async def test_nothing_asked_for(broker: WholeBroker) -> None:
    assert await delete(broker) == []
