"""ElectLeaders (43): the preferred leaders of partitions, or any leader for those that have none.

    0 preferred   the first replica, if it is there and in sync
    1 unclean     the first replica that is there, in sync or not, where there is no leader

The controller does it, whichever broker is asked (`forwarding`).  Null asks for all partitions: the answer
names all topics, and of their partitions those that needed an election.
v1 has the type and an error code for the whole.
"""

from collections.abc import Sequence
from typing import Any

from anabranch.base.errors import AnabranchError, ElectionNotNeeded, InvalidTopicName, UnknownTopic
from anabranch.base.ids import TopicName
from anabranch.meta.image import NO_BROKER, ClusterImage, PartitionImage
from anabranch.server.kafka.deadline import each_within
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.forwarding import forwarded
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_PREFERRED, _UNCLEAN = 0, 1

_Place = tuple[str, int]


@api(43, versions=(0, 2))
async def elect_leaders(request: Any, ctx: RequestContext) -> Answer:
    cluster = ctx.services.cluster
    if cluster.controller.epoch is None:
        return await forwarded(43, request, ctx, request.timeout) or _refused(
            request, ErrorCode.not_controller
        )
    if request.election_type not in (_PREFERRED, _UNCLEAN) and request.topic_partitions != []:
        return _refused(request, ErrorCode.invalid_request, f"Unknown election type {request.election_type}")
    if request.timeout <= 0:
        return _refused(request, ErrorCode.request_timed_out)
    everything = request.topic_partitions is None
    if everything:
        places = _needed(cluster.image, request.election_type)
    else:
        places = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]

    async def elect(place: _Place) -> PartitionImage:
        try:
            name = TopicName.from_kafka(place[0])
        except InvalidTopicName as error:
            raise UnknownTopic(str(error)) from error
        if request.election_type == _PREFERRED:
            return await cluster.controller.elect_preferred(name, place[1])
        return await cluster.controller.elect_any(name, place[1])

    outcomes = await each_within(request.timeout, [elect(place) for place in places])
    told = [
        (place, outcome)
        for place, outcome in zip(places, outcomes, strict=True)
        if not (everything and isinstance(outcome, ElectionNotNeeded))
    ]
    topics = [topic.name.kafka for topic in cluster.image.topics.values()] if everything else []
    return {"error_code": ErrorCode.none, "replica_election_results": _results(told, topics)}


def _needed(image: ClusterImage, kind: int) -> list[_Place]:
    """The partitions that such an election would change, more or less."""
    return [
        (topic.name.kafka, state.index)
        for topic in image.topics.values()
        for state in topic.partitions
        if (state.leader != state.replicas[0] if kind == _PREFERRED else state.leader == NO_BROKER)
    ]


def _results(told: Sequence[tuple[_Place, object]], named: Sequence[str]) -> list[Answer]:
    """By topic, with those that are `named` anyway."""
    topics: dict[str, list[Answer]] = {name: [] for name in named}
    for (topic, index), outcome in told:
        failed = outcome if isinstance(outcome, AnabranchError) else None
        topics.setdefault(topic, []).append(
            {
                "partition_id": index,
                "error_code": ErrorCode.none if failed is None else code_of(failed),
                "error_message": None if failed is None else message_of(failed),
            }
        )
    return [{"topic": topic, "partition_result": results} for topic, results in topics.items()]


def _refused(request: Any, code: ErrorCode, message: str | None = None) -> Answer:
    """v0 has no place for it but the partitions."""
    wanted = request.topic_partitions or ()
    refused = {"error_code": code, "error_message": message}
    return {
        "error_code": code,
        "replica_election_results": [
            {
                "topic": topic.topic,
                "partition_result": [{"partition_id": index} | refused for index in topic.partitions],
            }
            for topic in wanted
        ],
    }
