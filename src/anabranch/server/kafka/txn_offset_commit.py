"""TxnOffsetCommit (28): offsets of a group that count when a transaction commits.

They are pending in the group's partition of `__consumer_offsets` until the marker of the transaction is
written there.  `joining` says what is asked of the transaction coordinator first, which may be on another
broker; from version 5 on the partition is added here, without an AddOffsetsToTxn.  If the transaction ends
while it is asked, the offsets do not begin another.  From v3 on the member and its generation are checked.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, InvalidTransactionState, NotCoordinator, NotOwner
from anabranch.groups.committing import Commit, TopicCommit
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.effects import Effects, Producer, Token
from anabranch.groups.shard import GroupShard
from anabranch.groups.transaction_records import TopicPartition
from anabranch.partition.partition import Partition
from anabranch.server.kafka import joining
from anabranch.server.kafka.joining import Joining
from anabranch.server.kafka.offset_commit import code_of_commit, failed, merged, split_commit
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.offset_commit import with_columns
from anabranch.wire.kafka.schema import ErrorCode

_JOINING = {4: Joining.ABORTABLE, 5: Joining.ADDED}
_ADDING = tuple(version for version, way in _JOINING.items() if way is Joining.ADDED)
_FIRST_THAT_KNOWS_LOADING = 2
_LATER = (ErrorCode.concurrent_transactions, ErrorCode.not_coordinator)


@api(28, versions=(0, 5))
async def txn_offset_commit(request: Any, ctx: RequestContext) -> Answer:
    refused, wanted, asked_as = split_commit(with_columns(request).topics, ctx)
    decided = await _commit(request, wanted, ctx) if wanted else []
    for topic, name in zip(decided, asked_as, strict=True):
        topic["name"] = name
        for part in topic["partitions"]:
            part["error_code"] = _as_told(part["error_code"], ctx.version)
    topics = merged(refused, decided)
    return {"topics": [{"name": topic["name"], "partitions": topic["partitions"]} for topic in topics]}


async def _commit(request: Any, topics: list[TopicCommit], ctx: RequestContext) -> list[Answer]:
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
        place = await _place(request, ctx)
        partition = _led(place, ctx)
        ended = partition.last_end(producer.producer_id)
        code = await _join(request, producer, place, ctx)

        def decide(shard: GroupShard, token: Token, now_ms: int) -> Effects:
            # In the second protocol epochs fence what is late.
            if ctx.version not in _ADDING and partition.last_end(producer.producer_id) != ended:
                raise InvalidTransactionState("the transaction ended before its offsets were stored")
            return shard.offsets.commit_in_transaction(commit, producer, token, now_ms)

        if not code:
            answer = await ctx.services.groups.submit(request.group_id, decide, ctx.begun)
            return list(answer["topics"])
    except AnabranchError as error:
        code = code_of_commit(error)
    return [failed(topic, code) for topic in topics]


async def _place(request: Any, ctx: RequestContext) -> TopicPartition:
    groups = ctx.services.groups
    await groups.ensure_topic()
    return OFFSETS_TOPIC, groups.shard_of(request.group_id)


def _led(place: TopicPartition, ctx: RequestContext) -> Partition:
    """Nobody else's transaction coordinator is asked about a group of somebody else's."""
    try:
        return ctx.services.partitions.partition(*place)
    except NotOwner as error:
        raise NotCoordinator(str(error)) from error


async def _join(request: Any, producer: Producer, place: TopicPartition, ctx: RequestContext) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.invalid_request
    services = ctx.services
    participation, id = services.participation, request.transactional_id
    way = _JOINING.get(ctx.version, Joining.VERIFIED)
    if way is Joining.ADDED:
        return await joining.add(participation, id, producer, [place])
    if not services.config.current.transactions.verify_partitions:
        return ErrorCode.none
    code = (await joining.verify(participation, id, {place: producer}, way))[place]
    return ErrorCode.coordinator_not_available if code in _LATER else code


def _as_told(code: int, version: int) -> int:
    """Clients older than v2 do not know that a coordinator can be loading."""
    if code == ErrorCode.coordinator_load_in_progress and version < _FIRST_THAT_KNOWS_LOADING:
        return ErrorCode.coordinator_not_available
    return code
