"""TxnOffsetCommit (28): offsets of a group that count when a transaction commits.

They are pending in the group's partition of `__consumer_offsets` until the marker of the transaction is
written there.  `joining` says what is asked of the transaction coordinator first; from version 5 on the
partition is added here, without an AddOffsetsToTxn.  From v3 on the member and its generation are checked.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, UnknownTopic
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.effects import Producer
from anabranch.groups.offsets import Commit, TopicCommit
from anabranch.server.kafka import joining
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.joining import Joining
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_JOINING = {4: Joining.ABORTABLE, 5: Joining.ADDED}
_FIRST_THAT_KNOWS_LOADING = 2
_LATER = (ErrorCode.concurrent_transactions, ErrorCode.not_coordinator)


@api(28, versions=(0, 5))
async def txn_offset_commit(request: Any, ctx: RequestContext) -> Answer:
    topics: dict[str, dict[int, Answer]] = {}
    sound: list[TopicCommit] = []
    for topic in request.topics:
        answered = topics.setdefault(topic.name, {})
        there = []
        for part in topic.partitions:
            index = part.partition_index
            answered[index] = {"partition_index": index, "error_code": ErrorCode.none}
            if _is_there(topic.name, index, ctx):
                there.append(part)
            else:
                answered[index]["error_code"] = ErrorCode.unknown_topic_or_partition
        if there:
            sound.append(TopicCommit(topic.name, None, there))
    if sound:
        for name, parts in (await _commit(request, sound, ctx)).items():
            for index, code in parts.items():
                topics[name][index]["error_code"] = _as_told(code, ctx.version)
    return {"topics": [{"name": name, "partitions": list(parts.values())} for name, parts in topics.items()]}


async def _commit(request: Any, topics: list[TopicCommit], ctx: RequestContext) -> dict[str, dict[int, int]]:
    """The code of each partition."""
    commit = Commit(
        request.group_id,
        request.member_id,
        request.generation_id,
        request.group_instance_id,
        topics,
        ctx.version,
    )
    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        code = await _join(request, producer, ctx)
        if not code:
            answer = await ctx.services.groups.submit(
                request.group_id,
                lambda shard, token, now_ms: shard.offsets.commit_in_transaction(
                    commit, producer, token, now_ms
                ),
            )
            return {
                topic["name"]: {part["partition_index"]: part["error_code"] for part in topic["partitions"]}
                for topic in answer["topics"]
            }
    except AnabranchError as error:
        code = code_of(error)
    return {topic.name: {part.partition_index: code for part in topic.partitions} for topic in topics}


async def _join(request: Any, producer: Producer, ctx: RequestContext) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.invalid_request
    services = ctx.services
    transactions = services.transactions
    await services.groups.ensure_topic()
    partition = (OFFSETS_TOPIC, services.groups.shard_of(request.group_id))
    way = _JOINING.get(ctx.version, Joining.VERIFIED)
    if way is Joining.ADDED:
        return await joining.add(transactions, request.transactional_id, producer, [partition])
    if not services.config.current.transactions.verify_partitions:
        return ErrorCode.none
    code = joining.verify(transactions, request.transactional_id, producer, partition, way)
    return ErrorCode.coordinator_not_available if code in _LATER else code


def _is_there(topic: str, index: int, ctx: RequestContext) -> bool:
    try:
        return 0 <= index < len(ctx.services.partitions.topic(topic).partitions)
    except UnknownTopic:
        return False


def _as_told(code: int, version: int) -> int:
    """Clients older than v2 do not know that a coordinator can be loading."""
    if code == ErrorCode.coordinator_load_in_progress and version < _FIRST_THAT_KNOWS_LOADING:
        return ErrorCode.coordinator_not_available
    return code
