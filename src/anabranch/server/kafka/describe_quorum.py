"""DescribeQuorum (55): who keeps the cluster's metadata, as tools for Kafka's quorum ask for it.

The metadata are in a store of their own and not in a log of Kafka's, so `__cluster_metadata`-0 is made up:
the controller leads it, in its epoch, as the only voter, and the other brokers watch it.  There are no
offsets to compare; all have what there is.  v2 has where the controllers are found.

A request for anything else, too, is refused as a whole.
"""

from typing import Any

from anabranch.base.ids import BrokerId
from anabranch.meta.image import NO_BROKER, ClusterImage
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_TOPIC = "__cluster_metadata"
_LISTENER = "PLAINTEXT"


@api(55, versions=(0, 2))
def describe_quorum(request: Any, ctx: RequestContext) -> Answer:
    if _asked(request) != [(_TOPIC, 0)]:
        unknown = [
            {"topic_name": topic.topic_name, "partitions": [_unknown(part) for part in topic.partitions]}
            for topic in request.topics
        ]
        return {"error_message": None, "topics": unknown, "nodes": []}
    image = ctx.services.cluster.image
    quorum = _quorum(image, ctx.services.clock.now_ms())
    nodes = [
        {
            "node_id": broker.id,
            "listeners": [{"name": _LISTENER, "host": broker.host, "port": broker.port}],
        }
        for broker in image.brokers.values()
        if broker.id == image.controller_id
    ]
    topic = {"topic_name": _TOPIC, "partitions": [quorum]}
    return {"error_message": None, "topics": [topic], "nodes": nodes}


def _asked(request: Any) -> list[tuple[str, int]]:
    return [(topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions]


def _quorum(image: ClusterImage, now_ms: int) -> Answer:
    controller = image.controller_id
    if controller == NO_BROKER:
        return _failed(0, ErrorCode.leader_not_available, "there is no controller")
    return {
        "partition_index": 0,
        "error_code": ErrorCode.none,
        "error_message": None,
        "leader_id": controller,
        "leader_epoch": max(0, image.controller_epoch),
        "high_watermark": 0,
        "current_voters": [_replica(controller, now_ms)],
        "observers": [_replica(id, now_ms) for id in image.brokers if id != controller],
    }


def _replica(id: BrokerId, now_ms: int) -> Answer:
    return {
        "replica_id": id,
        "replica_directory_id": None,
        "log_end_offset": 0,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }


def _unknown(part: Any) -> Answer:
    message = f"the only quorum is that of {_TOPIC}-0"
    return _failed(part.partition_index, ErrorCode.unknown_topic_or_partition, message)


def _failed(index: int, code: ErrorCode, message: str) -> Answer:
    """With the zeros that Kafka's has."""
    return {
        "partition_index": index,
        "error_code": code,
        "error_message": message,
        "leader_id": 0,
        "leader_epoch": 0,
        "high_watermark": 0,
        "current_voters": [],
        "observers": [],
    }
