"""AlterPartition (56): the leader of partitions has other replicas in sync; for the controller only.

v2 names topics by id, v3 has the epochs of the brokers that are to be in sync.  What it answers for a
partition is the state that was written, which the leader takes without waiting for its image to have it.
A broker that has registered again since it asked is STALE_BROKER_EPOCH, as a whole.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, Conflict, Invalid, NotController, StaleBrokerEpoch
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicName
from anabranch.cluster.isr_requests import change_isrs
from anabranch.partition.isr_changes import Answer, IsrChange
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer as Given
from anabranch.server.kafka.registry import RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_UNNAMED = TopicName.from_kafka("unknown")


@api(56, versions=(2, 3))
async def alter_partition(request: Any, ctx: RequestContext) -> Given:
    cluster = ctx.services.cluster
    try:
        _check_registered(request, ctx)
        changes = [
            _change(request, topic, part, ctx) for topic in request.topics for part in topic.partitions
        ]
        asked = [one for one in changes if isinstance(one, IsrChange)]
        answers = iter(await change_isrs(cluster, asked))
    except (NotController, StaleBrokerEpoch, Invalid) as error:
        return {"error_code": code_of(error), "topics": []}
    told = iter([next(answers) if isinstance(one, IsrChange) else one for one in changes])
    return {
        "topics": [
            {
                "topic_id": topic.topic_id,
                "partitions": [_told(part.partition_index, next(told)) for part in topic.partitions],
            }
            for topic in request.topics
        ]
    }


def _check_registered(request: Any, ctx: RequestContext) -> None:
    registered = ctx.services.cluster.image.brokers.get(BrokerId(request.broker_id))
    if registered is None or registered.epoch != request.broker_epoch:
        raise StaleBrokerEpoch(
            f"broker {request.broker_id} is not registered in epoch {request.broker_epoch}"
        )


def _change(request: Any, topic: Any, part: Any, ctx: RequestContext) -> IsrChange | AnabranchError:
    found = ctx.services.cluster.image.topics_by_id.get(topic.topic_id)
    if found is not None and 0 <= part.partition_index < found.partition_count:
        state = found.partitions[part.partition_index]
        if state.leader_epoch == part.leader_epoch and state.leader != request.broker_id:
            return Invalid(f"broker {request.broker_id} does not lead {found.name.kafka}-{state.index}")
    if ctx.version >= 3:
        isr = {BrokerId(one.broker_id): one.broker_epoch for one in part.new_isr_with_epochs}
    else:
        isr = {BrokerId(one): -1 for one in part.new_isr}
    return IsrChange(
        topic.topic_id,
        _UNNAMED if found is None else found.name,
        part.partition_index,
        LeaderEpoch(part.leader_epoch),
        part.partition_epoch,
        isr,
    )


def _told(index: int, answer: Answer) -> Given:
    if isinstance(answer, AnabranchError):
        nothing = {"leader_id": -1, "leader_epoch": -1, "isr": [], "partition_epoch": -1}
        overtaken = isinstance(answer, Conflict)
        code = ErrorCode.invalid_update_version if overtaken else code_of(answer)
        return {"partition_index": index, "error_code": code} | nothing
    return {
        "partition_index": index,
        "error_code": 0,
        "leader_id": answer.leader,
        "leader_epoch": answer.leader_epoch,
        "isr": list(answer.isr),
        "leader_recovery_state": 0,
        "partition_epoch": answer.partition_epoch,
    }
