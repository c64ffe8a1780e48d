"""WriteTxnMarkers (27): a coordinator elsewhere, or an operator, ends a transaction on partitions.

A coordinator sends it for partitions that it does not lead itself (`groups/marker_queues`), and completes the
transaction when all are acknowledged.  `kafka-transactions abort` sends it for a transaction that hangs: one
that is open on a partition and that no coordinator knows of any more.  From version 2 on a marker says by
which protocol the transaction ended; in the second its epoch is later than what it ends.

As in Kafka a broker without a replica says UNKNOWN_TOPIC_OR_PARTITION, a follower NOT_LEADER_OR_FOLLOWER.
"""

import asyncio
from typing import Any, NamedTuple

from anabranch.base.errors import AnabranchError, CoordinatorLoading, NotCoordinator, NotOwner
from anabranch.groups.effects import Producer
from anabranch.groups.marker_queues import End
from anabranch.groups.transaction_markers import outcomes
from anabranch.groups.transactions import EPOCH_BUMP
from anabranch.records.control import Marker
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_MOST_S = 5.0  # who asks for several is not to wait for one of them all of its time


class _Unacknowledged(NamedTuple):
    """A partition's answer, which holds once the marker is acknowledged."""

    answer: Answer
    topic: str
    acknowledged: "asyncio.Future[None]"


@api(27, versions=(1, 2))
async def write_txn_markers(request: Any, ctx: RequestContext) -> Answer:
    producers: dict[int, dict[str, list[Answer]]] = {}
    waiting: list[_Unacknowledged] = []
    for marker in request.markers:
        topics = producers.setdefault(marker.producer_id, {})
        end = End(
            Producer(marker.producer_id, marker.producer_epoch),
            Marker(marker.transaction_result, marker.coordinator_epoch),
            marker.transaction_version >= EPOCH_BUMP,
        )
        for topic in marker.topics:
            partitions = topics.setdefault(topic.name, [])
            for index in topic.partition_indexes:
                answer: Answer = {"partition_index": index, "error_code": ErrorCode.none}
                partitions.append(answer)
                try:
                    acknowledged = await ctx.services.transactions.markers.append(topic.name, index, end)
                except (AnabranchError, OSError) as error:
                    answer["error_code"] = _code_of(error, topic.name, index, ctx)
                else:
                    if acknowledged is not None:
                        waiting.append(_Unacknowledged(answer, topic.name, acknowledged))
    if waiting:
        ctx.begun()
    found = await outcomes([one.acknowledged for one in waiting], _MOST_S)
    for one, outcome in zip(waiting, found, strict=True):
        if outcome is not None:
            one.answer["error_code"] = _code_of(outcome, one.topic, one.answer["partition_index"], ctx)
    return {"markers": [_result(producer_id, topics) for producer_id, topics in producers.items()]}


def _code_of(error: BaseException, topic: str, index: int, ctx: RequestContext) -> ErrorCode:
    host = ctx.services.partitions
    served = host.find(topic)
    if isinstance(error, NotOwner) and served is not None and not host.has_replica(served, index):
        return ErrorCode.unknown_topic_or_partition
    if isinstance(error, CoordinatorLoading | NotCoordinator):
        return ErrorCode.not_leader_or_follower  # what a coordinator that sends markers tries again after
    return code_of(error)


def _result(producer_id: int, topics: dict[str, list[Answer]]) -> Answer:
    results = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"producer_id": producer_id, "topics": results}
