"""Requests that name many partitions, whose logs are not open yet: others have their turn meanwhile."""

import asyncio
from typing import Any

import pytest

from anabranch.partition.replica import Replica
from tests.unit.server.kafka.whole_broker import WholeBroker

MANY = 100
DELETED = [{"partition_index": index, "offset": 0} for index in range(MANY)]
ENDS = [{"partition": index, "leader_epoch": 0, "current_leader_epoch": -1} for index in range(MANY)]


@pytest.mark.parametrize(
    ("key", "version", "topic"),
    [(21, 2, {"name": "many", "partitions": DELETED}), (23, 4, {"topic": "many", "partitions": ENDS})],
)
async def test_logs_are_opened_a_few_at_a_time(
    broker: WholeBroker, key: int, version: int, topic: dict[str, Any]
) -> None:
    await broker.create("many", MANY)
    host, opened = broker.services.partitions, [0]
    on_open = host.on_open

    def counted(replica: Replica) -> None:
        opened[-1] += 1
        on_open(replica)

    def turn() -> None:
        opened.append(0)
        asyncio.get_running_loop().call_soon(turn)

    host.on_open = counted
    turn()
    answer = await broker.ask(key, version, topics=[topic])
    assert len(answer.topics[0].partitions) == MANY
    assert {part.error_code for part in answer.topics[0].partitions} == {0}
    assert sum(opened) == MANY
    assert max(opened) <= 16
