"""AlterPartitionReassignments (45): move partitions to other brokers, or call that off.

A partition's replicas are the ones that it is to have, null calls its reassignment off.  Each partition
stands alone; those of one request go to the store together.  The answer comes when the moves have begun:
ListPartitionReassignments says how far they are.  The controller does it, whichever broker is asked.

v1 may refuse another number of replicas.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, InvalidTopicName, UnknownTopic
from anabranch.base.ids import BrokerId, TopicName
from anabranch.meta.image import PartitionImage
from anabranch.server.kafka.deadline import each_within
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.forwarding import forwarded
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode


@api(45, versions=(0, 1))
async def alter_partition_reassignments(request: Any, ctx: RequestContext) -> Answer:
    controller = ctx.services.cluster.controller
    allowed = request.allow_replication_factor_change
    if controller.epoch is None:
        told = await forwarded(45, request, ctx, request.timeout)
        message = "this broker is not the controller"
        return told or {
            "allow_replication_factor_change": allowed,
            "error_code": ErrorCode.not_controller,
            "error_message": message,
            "responses": [],
        }

    async def reassign(topic: str, part: Any) -> PartitionImage:
        try:
            name = TopicName.from_kafka(topic)
        except InvalidTopicName as error:
            raise UnknownTopic(str(error)) from error
        target = None if part.replicas is None else [BrokerId(id) for id in part.replicas]
        return await controller.reassign(name, part.partition_index, target, same_factor=not allowed)

    asked = [(topic, part) for topic in request.topics for part in topic.partitions]
    outcomes = iter(await each_within(request.timeout, [reassign(topic.name, part) for topic, part in asked]))
    return {
        "allow_replication_factor_change": allowed,
        "error_code": ErrorCode.none if request.timeout > 0 else ErrorCode.request_timed_out,
        "error_message": None,
        "responses": [
            {
                "name": topic.name,
                "partitions": [_result(part.partition_index, next(outcomes)) for part in topic.partitions],
            }
            for topic in request.topics
        ],
    }


def _result(index: int, outcome: PartitionImage | AnabranchError) -> Answer:
    if isinstance(outcome, AnabranchError):
        return {
            "partition_index": index,
            "error_code": code_of(outcome),
            "error_message": message_of(outcome),
        }
    return {"partition_index": index, "error_code": ErrorCode.none, "error_message": None}
