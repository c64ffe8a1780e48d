"""OffsetForLeaderEpoch (23): where a leader epoch ended, so that a reader can tell whether its log is ours.

The answer is the largest epoch up to the one asked for that wrote anything, and the offset after its
last record.  An epoch that this leader has not heard of has no end: -1, -1.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.partition.host import PartitionHost
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api

_UNKNOWN = (-1, -1)


@api(23, versions=(2, 4))
def offset_for_leader_epoch(request: Any, ctx: RequestContext) -> Answer:
    host = ctx.services.partitions
    return {
        "topics": [
            {"topic": topic.topic, "partitions": [_end(host, topic.topic, part) for part in topic.partitions]}
            for topic in request.topics
        ]
    }


def _end(host: PartitionHost, topic: str, part: Any) -> Answer:
    answer = {"partition": part.partition, "leader_epoch": -1, "end_offset": -1}
    try:
        partition = host.partition(topic, part.partition, part.current_leader_epoch)
    except (AnabranchError, OSError) as error:
        return answer | {"error_code": code_of(error)}
    known = part.leader_epoch <= partition.leader_epoch
    epoch, end = partition.epoch_end(part.leader_epoch) if known else _UNKNOWN
    return answer | {"leader_epoch": epoch, "end_offset": end}
