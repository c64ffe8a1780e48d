"""DescribeShareGroupOffsets (90): how far share groups are with partitions.

    v1   the lag: records from the start offset on that the group is not done with (KIP-1226)

Without topics: all that the group has begun with.  Of a partition that it has not begun to read, or of which
nobody says how much of it is done with, offset and lag are -1.  The same holds, as in Kafka, for what is not
there at all: groups, topics, partitions.  The ends of partitions that are led elsewhere are asked of their
leaders.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, NotOwner
from anabranch.base.ids import BrokerId
from anabranch.client.answers import check
from anabranch.client.requests import LIST_OFFSETS, Request
from anabranch.groups.heartbeats import Refused
from anabranch.groups.share_state import NOT_INITIALISED, UNKNOWN_COUNT, ShareKey
from anabranch.groups.share_states_anywhere import Summary
from anabranch.meta.image import ClusterImage, TopicImage
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.group_topics import by_id, by_name, has_partition
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.server.services import Services

_UNKNOWN = -1
_LATEST, _EARLIEST = -1, -2
_ASK_S = 5.0


@api(90, versions=(0, 1))
async def describe_share_group_offsets(request: Any, ctx: RequestContext) -> Answer:
    return {"groups": [await _describe(ctx.services, asked) for asked in request.groups]}


async def _describe(services: Services, asked: Any) -> Answer:
    image = services.cluster.image
    try:
        if asked.topics is None:
            wanted = await _all_of(services, image, asked.group_id)
        else:
            wanted = [
                (topic.topic_name, by_name(image, topic.topic_name), topic.partitions)
                for topic in asked.topics
            ]
        topics = [await _topic(services, asked.group_id, *topic) for topic in wanted]
    except Refused:
        topics = []
    except AnabranchError as error:
        code, message = code_of(error), message_of(error)
        return {"group_id": asked.group_id, "topics": [], "error_code": code, "error_message": message}
    return {"group_id": asked.group_id, "topics": topics}


async def _all_of(
    services: Services, image: ClusterImage, group_id: str
) -> list[tuple[str, TopicImage | None, list[int]]]:
    group = await services.share_groups.find(group_id)
    return [
        (share.name, by_id(image, topic_id), sorted(share.partitions))
        for topic_id, share in group.topics.initialised.items()
    ]


async def _topic(
    services: Services, group_id: str, name: str, topic: TopicImage | None, partitions: list[int]
) -> Answer:
    answers = []
    for index in partitions:
        answer = {"partition_index": index, "start_offset": _UNKNOWN, "leader_epoch": 0, "lag": _UNKNOWN}
        if topic is not None and has_partition(topic, index):
            kept = await services.share_groups.state_of(ShareKey(group_id, topic.id, index))
            if kept is not None:
                answer["start_offset"], answer["leader_epoch"] = kept.start_offset, kept.leader_epoch
                answer["lag"] = await _lag(services, topic, index, kept)
        answers.append(answer)
    return {"topic_name": name, "topic_id": None if topic is None else topic.id, "partitions": answers}


async def _lag(services: Services, topic: TopicImage, index: int, kept: Summary) -> int:
    if kept.start_offset == NOT_INITIALISED or kept.complete_count == UNKNOWN_COUNT:
        return _UNKNOWN
    name = topic.name.kafka
    try:
        partition = services.partitions.partition(name, index)
        first, end = partition.log_start, partition.high_watermark
    except NotOwner as error:
        leader = BrokerId(error.leader)
        first, end = [await _offset(services, leader, name, index, at) for at in (_EARLIEST, _LATEST)]
    return max(0, end - max(kept.start_offset, first) - kept.complete_count)


async def _offset(services: Services, leader: BrokerId, topic: str, index: int, at: int) -> int:
    part = {"partition_index": index, "current_leader_epoch": -1, "timestamp": at}
    values = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [part]}],
        "timeout": int(_ASK_S * 1000),
    }
    answer = await services.brokers.ask(leader, Request(LIST_OFFSETS, values), _ASK_S)
    found = answer.topics[0].partitions[0]
    check(found.error_code, f"{topic}-{index}")
    return int(found.offset)
