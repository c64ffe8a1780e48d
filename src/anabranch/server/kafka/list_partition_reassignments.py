"""ListPartitionReassignments (46): the partitions that are on their way to other brokers.

Null asks for all of them.  What is not on its way is left out, as is what is not there.  The controller says
so, whichever broker is asked: others may not know of the newest yet.
"""

from typing import Any

from anabranch.cluster.reassignment import is_under_way
from anabranch.meta.image import PartitionImage
from anabranch.server.kafka.forwarding import forwarded
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode


@api(46, versions=(0, 0))
async def list_partition_reassignments(request: Any, ctx: RequestContext) -> Answer:
    cluster = ctx.services.cluster
    if cluster.controller.epoch is None:
        told = await forwarded(46, request, ctx, request.timeout)
        message = "this broker is not the controller"
        return told or {"error_code": ErrorCode.not_controller, "error_message": message, "topics": []}
    asked = None
    if request.topics is not None:
        asked = {topic.name: frozenset(topic.partition_indexes) for topic in request.topics}
    topics = []
    for topic in cluster.image.topics.values():
        name = topic.name.kafka
        if asked is not None and name not in asked:
            continue
        moving = [
            _partition(state)
            for state in topic.partitions
            if is_under_way(state) and (asked is None or state.index in asked[name])
        ]
        if moving:
            topics.append({"name": name, "partitions": moving})
    return {"error_message": None, "topics": topics}


def _partition(state: PartitionImage) -> Answer:
    return {
        "partition_index": state.index,
        "replicas": state.replicas,
        "adding_replicas": state.adding,
        "removing_replicas": state.removing,
    }
