from typing import Any

import pytest

from anabranch.server.kafka import describe_topic_partitions as module
from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker

Page = tuple[list[tuple[str, list[int]]], tuple[str, int] | None]


async def ask(
    broker: WholeBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    topics = [{"name": name} for name in names]
    return await broker.ask(75, 0, topics=topics, response_partition_limit=limit, cursor=at)


async def page(broker: WholeBroker, *names: str, **options: Any) -> Page:
    """The partitions of each topic, and where the next page starts."""
    answer = await ask(broker, *names, **options)
    after = answer.next_cursor
    return (
        [(topic.name, [part.partition_index for part in topic.partitions]) for topic in answer.topics],
        None if after is None else (after.topic_name, after.partition_index),
    )


@pytest.fixture
async def filled(broker: WholeBroker) -> WholeBroker:
    await broker.create("a", 3)
    await broker.create("b", 2)
    await broker.create("c", 1)
    return broker


async def test_a_topic(filled: WholeBroker) -> None:
    (topic,) = (await ask(filled, "a")).topics
    assert (topic.name, topic.error_code, topic.is_internal) == ("a", ErrorCode.none, False)
    assert topic.topic_id == filled.image.topics_by_kafka_name["a"].id
    assert topic.topic_authorized_operations == 3576
    part = topic.partitions[2]
    assert (part.error_code, part.partition_index, part.leader_id, part.leader_epoch) == (0, 2, 1, 0)
    assert (part.replica_nodes, part.isr_nodes, part.offline_replicas) == ((1,), (1,), ())
    assert (part.eligible_leader_replicas, part.last_known_elr) == ((), ())


async def test_in_order_of_name_and_each_once(filled: WholeBroker) -> None:
    answer = await ask(filled, "b", "absent", "..", "a", "b")
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("..", ErrorCode.invalid_topic_exception),
        ("a", ErrorCode.none),
        ("absent", ErrorCode.unknown_topic_or_partition),
        ("b", ErrorCode.none),
    ]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, ([("a", [0])], ("a", 1))),
        (0, ([("a", [0])], ("a", 1))),
        (-5, ([("a", [0])], ("a", 1))),
        (2, ([("a", [0, 1])], ("a", 2))),
        (3, ([("a", [0, 1, 2])], ("b", 0))),
        (4, ([("a", [0, 1, 2]), ("b", [0])], ("b", 1))),
        (6, ([("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])], None)),
        (1 << 30, ([("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])], None)),
    ],
)
async def test_a_page(filled: WholeBroker, limit: int, expected: Page) -> None:
    assert await page(filled, limit=limit) == expected
    assert await page(filled, "a", "b", "c", limit=limit) == expected


@pytest.mark.parametrize("limit", range(1, 8))
@pytest.mark.parametrize("names", [(), ("a", "b", "c"), ("a", "absent", "c")])
async def test_all_pages_together_are_everything(
    filled: WholeBroker, limit: int, names: tuple[str, ...]
) -> None:
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        topics, cursor = await page(filled, *names, limit=limit, cursor=cursor)
        assert sum(len(indexes) for _, indexes in topics) <= limit
        seen += [(name, index) for name, indexes in topics for index in indexes]
        if cursor is None:
            break
    every = [(name, index) for name, count in (("a", 3), ("b", 2), ("c", 1)) for index in range(count)]
    assert seen == [(name, index) for name, index in every if not names or name in names]
    assert cursor is None


async def test_cursors(filled: WholeBroker) -> None:
    assert await page(filled, "a", "b", cursor=("a", 2)) == ([("a", [2]), ("b", [0, 1])], None)
    assert await page(filled, "a", "b", cursor=("a", 30)) == ([("a", []), ("b", [0, 1])], None)
    # Without names the cursor's topic may have been deleted since.
    assert await page(filled, cursor=("bb", 7)) == ([("c", [0])], None)
    assert await page(filled, cursor=("z", 0)) == ([], None)


@pytest.mark.parametrize("cursor", [("aa", 0), ("a", -1), ("c", 0)])
async def test_cursors_that_cannot_be(filled: WholeBroker, cursor: tuple[str, int]) -> None:
    answer = await ask(filled, "a", "b", cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", ErrorCode.invalid_request),
        ("b", ErrorCode.invalid_request),
    ]
    assert answer.next_cursor is None


async def test_a_page_has_an_end_whatever_is_asked(
    broker: WholeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PARTITIONS", 5)
    await broker.create("wide", 9)
    assert await page(broker, limit=1 << 30) == ([("wide", [0, 1, 2, 3, 4])], ("wide", 5))
