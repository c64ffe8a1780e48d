from typing import Any

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker


@pytest.fixture
async def controlled(broker: WholeBroker) -> WholeBroker:
    await broker.services.cluster.controller.claim()
    await broker.create("a")
    return broker


async def reassign(broker: WholeBroker, replicas: list[int] | None, **options: Any) -> tuple[int, int]:
    """The code of the answer, and that of the partition."""
    topics = [{"name": "a", "partitions": [{"partition_index": 0, "replicas": replicas}]}]
    answer = await broker.ask(45, 1, **{"timeout": 1000, "topics": topics} | options)
    return answer.error_code, answer.responses[0].partitions[0].error_code


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ([1], "none"),
        ([], "invalid_replica_assignment"),
        ([1, 1], "invalid_replica_assignment"),
        ([9], "invalid_replica_assignment"),
        (None, "no_reassignment_in_progress"),
    ],
)
async def test_what_may_become_of_it(controlled: WholeBroker, replicas: list[int] | None, code: str) -> None:
    assert await reassign(controlled, replicas) == (ErrorCode.none, ErrorCode[code])


async def test_another_number_of_replicas_may_be_refused(controlled: WholeBroker) -> None:
    outcome = await reassign(controlled, [1, 9], allow_replication_factor_change=False)
    assert outcome == (ErrorCode.none, ErrorCode.invalid_replica_assignment)


async def test_without_time_nothing_is_done(controlled: WholeBroker) -> None:
    late = ErrorCode.request_timed_out
    assert await reassign(controlled, [1], timeout=0) == (late, late)
