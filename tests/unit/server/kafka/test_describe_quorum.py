from typing import Any

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker


def asked(*places: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"topic_name": topic, "partitions": [{"partition_index": index}]} for topic, index in places]


@pytest.mark.parametrize("version", range(3))
async def test_the_controller_leads_alone(broker: WholeBroker, version: int) -> None:
    await broker.services.cluster.controller.claim()
    answer = await broker.ask(55, version, topics=asked(("__cluster_metadata", 0)))
    (part,) = answer.topics[0].partitions
    assert (part.error_code, part.leader_id) == (ErrorCode.none, 1)
    assert [one.replica_id for one in part.current_voters] == [1]
    if version >= 2:
        assert [node.node_id for node in answer.nodes] == [1]


async def test_who_asks_for_more_is_refused(broker: WholeBroker) -> None:
    both = asked(("__cluster_metadata", 0), ("other", 0))
    for topics in (asked(("__cluster_metadata", 1)), asked(("other", 0)), both):
        answer = await broker.ask(55, 2, topics=topics)
        assert (answer.error_code, answer.nodes) == (ErrorCode.none, ())
        parts = [part for topic in answer.topics for part in topic.partitions]
        assert {part.error_code for part in parts} == {ErrorCode.unknown_topic_or_partition}
        assert {(part.leader_id, part.leader_epoch, part.high_watermark) for part in parts} == {(0, 0, 0)}
