"""AlterPartition on one broker, which is the controller and leads everything: what it refuses, and how."""

from typing import Any
from uuid import UUID

import pytest

from anabranch.base.ids import BrokerId, TopicName
from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker

A = TopicName.from_kafka("a")


async def alter(broker: WholeBroker, version: int = 3, **changed: Any) -> Any:
    topic_id = changed.pop("topic_id", None)
    if topic_id is None:
        topic_id = broker.image.topics[A].id
    by, isr = changed.pop("broker_id", 1), changed.pop("isr", [1])
    by_epoch = changed.pop("broker_epoch", broker.image.brokers[BrokerId(1)].epoch)
    part = {
        "partition_index": 0,
        "leader_epoch": 0,
        "leader_recovery_state": 0,
        "partition_epoch": 0,
        "new_isr_with_epochs": [{"broker_id": one, "broker_epoch": -1} for one in isr],
        "new_isr": isr,
    } | changed
    del part["new_isr_with_epochs" if version < 3 else "new_isr"]
    topics = [{"topic_id": topic_id, "partitions": [part]}]
    return await broker.ask(56, version, broker_id=by, broker_epoch=by_epoch, topics=topics)


@pytest.fixture
async def made(broker: WholeBroker) -> WholeBroker:
    await broker.create("a")
    return broker


@pytest.mark.parametrize("version", [2, 3])
async def test_what_was_written_is_the_answer(made: WholeBroker, version: int) -> None:
    answer = await alter(made, version)
    (part,) = answer.topics[0].partitions
    assert (answer.error_code, part.error_code) == (0, 0)
    assert (part.leader_id, part.leader_epoch, list(part.isr), part.partition_epoch) == (1, 0, [1], 1)
    assert made.image.topics[A].partitions[0].partition_epoch == 1


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"leader_epoch": -1}, ErrorCode.fenced_leader_epoch),
        ({"partition_epoch": 7}, ErrorCode.invalid_update_version),
        ({"isr": [1, 2]}, ErrorCode.invalid_request),
        ({"isr": [2]}, ErrorCode.invalid_request),
        ({"isr": []}, ErrorCode.invalid_request),
        ({"topic_id": UUID(int=9)}, ErrorCode.unknown_topic_id),
        ({"partition_index": 1}, ErrorCode.unknown_topic_or_partition),
    ],
)
async def test_what_cannot_be(made: WholeBroker, changed: dict[str, Any], code: ErrorCode) -> None:
    answer = await alter(made, **changed)
    (part,) = answer.topics[0].partitions
    assert (answer.error_code, part.error_code) == (0, code)
    assert made.image.topics[A].partitions[0].partition_epoch == 0


@pytest.mark.parametrize("asked_by", [{"broker_id": 5}, {"broker_epoch": -1}, {"broker_epoch": 1 << 40}])
async def test_a_broker_that_is_not_registered_so_is_told(
    made: WholeBroker, asked_by: dict[str, int]
) -> None:
    answer = await alter(made, **asked_by)
    assert (answer.error_code, list(answer.topics)) == (ErrorCode.stale_broker_epoch, [])


async def test_who_is_not_the_controller_says_so(made: WholeBroker) -> None:
    made.services.cluster.controller.epoch = None
    answer = await alter(made)
    assert (answer.error_code, list(answer.topics)) == (ErrorCode.not_controller, [])
