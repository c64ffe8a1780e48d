from typing import Any

import pytest

from anabranch.base.ids import BrokerId, TopicName
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.acknowledgements import FOLLOWER, Follower
from tests.unit.server.kafka.whole_broker import WholeBroker

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, NEXT_TO_TIER = range(-1, -7, -1)
NOTHING = (ErrorCode.none, -1, -1, -1)
TIMES = (1000, 3000, 2000, 3000, 5000, 4000)


@pytest.fixture
async def filled(broker: WholeBroker) -> WholeBroker:
    """Topic `a`: partition 0 has a record of each of TIMES, partition 1 nothing."""
    await broker.create("a", 2)
    for timestamp in TIMES:
        broker.put("a", "x", timestamp=timestamp)
    return broker


async def ask(
    broker: WholeBroker, *parts: tuple[int, int], topic: str = "a", version: int = 11, **fields: Any
) -> Any:
    epoch = {} if "epoch" not in fields else {"current_leader_epoch": fields.pop("epoch")}
    wanted = [{"partition_index": index, "timestamp": timestamp, **epoch} for index, timestamp in parts]
    request = {"replica_id": -1, "topics": [{"name": topic, "partitions": wanted}], **fields}
    return await broker.ask(2, version, **request)


async def offset(broker: WholeBroker, timestamp: int, index: int = 0, **fields: Any) -> tuple[int, ...]:
    """(code, timestamp, offset, epoch) of one partition."""
    (part,) = (await ask(broker, (index, timestamp), **fields)).topics[0].partitions
    return part.error_code, part.timestamp, part.offset, getattr(part, "leader_epoch", 0)


@pytest.mark.parametrize("version", range(1, 12))
async def test_both_ends_at_every_version(filled: WholeBroker, version: int) -> None:
    assert await offset(filled, LATEST, version=version) == (0, -1, 6, 0)
    assert await offset(filled, EARLIEST, version=version) == (0, -1, 0, 0)
    assert await offset(filled, LATEST, 1, version=version) == (0, -1, 0, 0)
    assert await offset(filled, EARLIEST, 1, version=version) == (0, -1, 0, 0)


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (0, (0, 1000, 0, 0)),
        (1000, (0, 1000, 0, 0)),
        (1001, (0, 3000, 1, 0)),
        (2500, (0, 3000, 1, 0)),
        (3000, (0, 3000, 1, 0)),
        (3001, (0, 5000, 4, 0)),
        (5000, (0, 5000, 4, 0)),
        (5001, NOTHING),
        (MAX_TIMESTAMP, (0, 5000, 4, 0)),
        (EARLIEST_LOCAL, (0, -1, 0, 0)),
        (LATEST_TIERED, NOTHING),
        (NEXT_TO_TIER, NOTHING),
    ],
)
async def test_by_time(filled: WholeBroker, timestamp: int, found: tuple[int, ...]) -> None:
    assert await offset(filled, timestamp) == found


@pytest.mark.parametrize("timestamp", [0, MAX_TIMESTAMP, LATEST_TIERED, NEXT_TO_TIER])
async def test_nothing_to_find(filled: WholeBroker, timestamp: int) -> None:
    assert await offset(filled, timestamp, 1) == NOTHING


@pytest.mark.parametrize(
    ("timestamp", "first_version"),
    [
        (MAX_TIMESTAMP, 7),
        (EARLIEST_LOCAL, 8),
        (LATEST_TIERED, 9),
        (NEXT_TO_TIER, 11),
        (-7, 99),
        (-(1 << 63), 99),
    ],
)
@pytest.mark.parametrize("version", [1, 6, 7, 8, 9, 10, 11])
async def test_special_times_by_version(
    filled: WholeBroker, timestamp: int, first_version: int, version: int
) -> None:
    code = ErrorCode.none if version >= first_version else ErrorCode.unsupported_version
    assert (await offset(filled, timestamp, version=version))[0] == code


async def test_after_records_were_deleted(filled: WholeBroker) -> None:
    filled.partition("a").trim(4)
    assert await offset(filled, EARLIEST) == (0, -1, 4, 0)
    assert await offset(filled, EARLIEST_LOCAL) == (0, -1, 4, 0)
    assert await offset(filled, 0) == (0, 5000, 4, 0)
    filled.partition("a").trim(6)
    assert await offset(filled, EARLIEST) == (0, -1, 6, 0)
    assert await offset(filled, 0) == NOTHING


async def test_a_committed_reader_sees_up_to_the_first_open_transaction(filled: WholeBroker) -> None:
    filled.put(
        "a", "open", timestamp=9000, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
    )
    assert filled.partition("a").last_stable == 6
    assert await offset(filled, LATEST) == (0, -1, 7, 0)
    assert await offset(filled, LATEST, isolation_level=1) == (0, -1, 6, 0)
    assert await offset(filled, 6000) == (0, 9000, 6, 0)
    assert await offset(filled, 6000, isolation_level=1) == NOTHING
    assert await offset(filled, MAX_TIMESTAMP, isolation_level=1) == NOTHING
    # Another replica, which is what replica ids are for, sees all there is.
    assert await offset(filled, LATEST, isolation_level=1, replica_id=2) == (0, -1, 7, 0)


async def test_an_isolation_level_that_is_none(filled: WholeBroker) -> None:
    assert (await offset(filled, LATEST, isolation_level=7))[0] == ErrorCode.unknown_server_error


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, ErrorCode.none), (0, ErrorCode.none), (1, ErrorCode.unknown_leader_epoch)],
)
async def test_the_leader_that_a_client_knows(filled: WholeBroker, epoch: int, code: ErrorCode) -> None:
    assert (await offset(filled, LATEST, epoch=epoch))[0] == code
    filled.partition("a").leader_epoch = 2
    expected = ErrorCode.none if epoch == -1 else ErrorCode.fenced_leader_epoch
    assert (await offset(filled, LATEST, epoch=epoch))[0] == expected


async def test_what_is_not_there(filled: WholeBroker) -> None:
    answer = await ask(filled, (7, LATEST), (-1, LATEST), (0, LATEST))
    assert [part.error_code for part in answer.topics[0].partitions] == [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.none,
    ]
    for topic in ("absent", "..", ""):
        assert (await offset(filled, LATEST, topic=topic))[0] == ErrorCode.unknown_topic_or_partition


async def test_a_partition_that_comes_twice_is_refused_once(filled: WholeBroker) -> None:
    answer = await ask(filled, (0, LATEST), (0, EARLIEST), (1, LATEST))
    (topic,) = answer.topics
    assert [(part.partition_index, part.error_code) for part in topic.partitions] == [
        (0, ErrorCode.invalid_request),
        (1, ErrorCode.none),
    ]


async def test_many_partitions(broker: WholeBroker) -> None:
    await broker.create("wide", 100)
    answer = await ask(broker, *((index, LATEST) for index in range(100)), topic="wide")
    assert [part.offset for part in answer.topics[0].partitions] == [0] * 100


async def test_a_new_leader_has_no_latest_offset_until_all_before_it_is_safe(broker: WholeBroker) -> None:
    """KIP-207: OFFSET_NOT_AVAILABLE, which clients before v5 do not know."""
    follower = Follower(broker.services.partitions)
    await broker.create("led")
    broker.put("led", "a", timestamp=1000)
    broker.put("led", "b", timestamp=1000 + 10)
    follower.release(1)
    assert await _at(broker, -1) == (ErrorCode.none, 1), "its own records are no question"
    controller = broker.services.cluster.controller
    await controller.elect_leader(TopicName.from_kafka("led"), 0, BrokerId(1), "a test")
    broker.put("led", "c", timestamp=1000 + 20)
    for version, code in ((5, ErrorCode.offset_not_available), (4, ErrorCode.leader_not_available)):
        assert await _at(broker, -1, version) == (code, -1)
        assert await _at(broker, 1000 + 10, version) == (code, -1)
    assert await _at(broker, -2) == (ErrorCode.none, 0)
    assert await _at(broker, 1000) == (ErrorCode.none, 0)
    broker.partition("led").replica_reached(FOLLOWER, 2)
    assert await _at(broker, -1) == (ErrorCode.none, 2)
    assert await _at(broker, 1000 + 10) == (ErrorCode.none, 1)
    assert await _at(broker, 1000 + 20) == (ErrorCode.none, -1), "it is not safe, and nobody need wait"


async def _at(broker: WholeBroker, timestamp: int, version: int = 7) -> tuple[ErrorCode, int]:
    code, _, found, _ = await offset(broker, timestamp, topic="led", version=version)
    return code, found
