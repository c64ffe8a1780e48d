from typing import Any

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker

PREFERRED, UNCLEAN, WRONG = 0, 1, 7


@pytest.fixture
async def controlled(broker: WholeBroker) -> WholeBroker:
    await broker.services.cluster.controller.claim()
    await broker.create("a", 2)
    return broker


async def elect(broker: WholeBroker, kind: int, topics: Any, version: int = 2) -> Any:
    return await broker.ask(43, version, election_type=kind, topic_partitions=topics, timeout=1000)


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
async def test_each_partition_has_its_answer(controlled: WholeBroker, kind: int) -> None:
    asked = [{"topic": "a", "partitions": [0, 9]}, {"topic": "absent", "partitions": [0]}]
    answer = await elect(controlled, kind, asked)
    assert answer.error_code == ErrorCode.none
    unknown = ErrorCode.unknown_topic_or_partition
    assert [
        (result.topic, [part.error_code for part in result.partition_result])
        for result in answer.replica_election_results
    ] == [("a", [ErrorCode.election_not_needed, unknown]), ("absent", [unknown])]


async def test_all_topics_are_named_and_what_needs_no_election_is_not(controlled: WholeBroker) -> None:
    answer = await elect(controlled, PREFERRED, None)
    assert [(one.topic, one.partition_result) for one in answer.replica_election_results] == [("a", ())]


@pytest.mark.parametrize("version", range(3))
async def test_there_is_no_time_for_it(controlled: WholeBroker, version: int) -> None:
    kind = {"election_type": PREFERRED} if version else {}
    asked = [{"topic": "a", "partitions": [0]}]
    answer = await controlled.ask(43, version, topic_partitions=asked, timeout=0, **kind)
    (result,) = answer.replica_election_results
    assert [part.error_code for part in result.partition_result] == [ErrorCode.request_timed_out]
    if version:
        assert answer.error_code == ErrorCode.request_timed_out


async def test_a_type_that_there_is_not(controlled: WholeBroker) -> None:
    answer = await elect(controlled, WRONG, [{"topic": "a", "partitions": [0]}])
    assert answer.error_code == ErrorCode.invalid_request
    (result,) = answer.replica_election_results
    assert [part.error_code for part in result.partition_result] == [ErrorCode.invalid_request]
    nothing = await elect(controlled, WRONG, [])
    assert (nothing.error_code, nothing.replica_election_results) == (ErrorCode.none, ())
