"""WriteTxnMarkers (27): a coordinator elsewhere, or an operator, ends a transaction on partitions.

Our own coordinator writes its markers without it.  `kafka-transactions abort` sends it for a transaction
that hangs: one that is open on a partition and that no coordinator knows of any more.  From version 2 on a
marker says by which protocol the transaction ended; in the second its epoch is later than what it ends.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, CoordinatorLoading, NotCoordinator
from anabranch.groups.effects import Producer
from anabranch.groups.transaction_markers import End
from anabranch.groups.transactions import EPOCH_BUMP
from anabranch.records.control import Marker
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode


@api(27, versions=(1, 2))
async def write_txn_markers(request: Any, ctx: RequestContext) -> Answer:
    producers: dict[int, dict[str, list[Answer]]] = {}
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
                code = await _write(topic.name, index, end, ctx)
                partitions.append({"partition_index": index, "error_code": code})
    return {"markers": [_result(producer_id, topics) for producer_id, topics in producers.items()]}


async def _write(topic: str, index: int, end: End, ctx: RequestContext) -> ErrorCode:
    try:
        await ctx.services.transactions.markers.write(topic, index, end)
    except (CoordinatorLoading, NotCoordinator):
        return ErrorCode.not_leader_or_follower  # what a coordinator that sends markers tries again after
    except (AnabranchError, OSError) as error:
        return code_of(error)
    return ErrorCode.none


def _result(producer_id: int, topics: dict[str, list[Answer]]) -> Answer:
    results = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"producer_id": producer_id, "topics": results}
