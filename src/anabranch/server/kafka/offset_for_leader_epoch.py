"""OffsetForLeaderEpoch (23): where a leader epoch ended, so that a reader can tell whether its log is ours.

The answer is the largest epoch up to the one asked for that wrote anything, and the offset after its
last record.  An epoch that this leader has not heard of has no end: -1, -1.
"""

import asyncio
from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.partition.host import PartitionHost
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api

_UNKNOWN = (-1, -1)
_LOOKED_UP_A_TURN = 16  # in logs that may have to be opened for it


@api(23, versions=(2, 4))
async def offset_for_leader_epoch(request: Any, ctx: RequestContext) -> Answer:
    host = ctx.services.partitions
    topics: list[Answer] = []
    count = 0
    for topic in request.topics:
        ends: list[Answer] = []
        for part in topic.partitions:
            ends.append(_end(host, topic.topic, part))
            count += 1
            if count % _LOOKED_UP_A_TURN == 0:
                await asyncio.sleep(0)
        topics.append({"topic": topic.topic, "partitions": ends})
    return {"topics": topics}


def _end(host: PartitionHost, topic: str, part: Any) -> Answer:
    answer = {"partition": part.partition, "leader_epoch": -1, "end_offset": -1}
    try:
        partition = host.partition(topic, part.partition, part.current_leader_epoch)
    except (AnabranchError, OSError) as error:
        return answer | {"error_code": code_of(error)}
    known = part.leader_epoch <= partition.leader_epoch
    epoch, end = partition.epoch_end(part.leader_epoch) if known else _UNKNOWN
    return answer | {"leader_epoch": epoch, "end_offset": end}
