"""DeleteRecords (21): a partition forgets what is below an offset; -1 stands for its high watermark.

The answer is the low watermark, which never moves back.  A topic that is only compacted is refused,
and so is an internal one.  If a partition comes twice the last counts.  Followers are not waited
for: they move their starts with their next fetch.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, InvalidTopicName, PolicyViolation
from anabranch.cluster.topics import is_internal
from anabranch.partition.host import PartitionHost
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api

_HIGH_WATERMARK = -1


@api(21, versions=(0, 2))
def delete_records(request: Any, ctx: RequestContext) -> Answer:
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = {part.partition_index: part.offset for part in topic.partitions}
        wanted.setdefault(topic.name, {}).update(offsets)
    host = ctx.services.partitions
    return {
        "topics": [
            {
                "name": topic,
                "partitions": [_delete(host, topic, index, offset) for index, offset in offsets.items()],
            }
            for topic, offsets in wanted.items()
        ]
    }


def _delete(host: PartitionHost, topic: str, index: int, offset: int) -> Answer:
    answer = {"partition_index": index, "low_watermark": -1}
    try:
        name = host.topic(topic).name
        partition = host.partition(name, index)
        if is_internal(name):
            raise InvalidTopicName(f"records of the internal topic {topic} cannot be deleted")
        if partition.config.cleanup_policy == {"compact"}:
            raise PolicyViolation(f"cleanup.policy of topic {topic} does not allow records to be deleted")
        end = partition.high_watermark if offset == _HIGH_WATERMARK else offset
        return answer | {"low_watermark": partition.trim(end)}
    except (AnabranchError, OSError) as error:
        return answer | {"error_code": code_of(error)}
