"""AddOffsetsToTxn (25): a transaction is going to commit offsets of a group.

What is added is the partition of `__consumer_offsets` that the group belongs to.  Clients of the second
protocol do without: their TxnOffsetCommit adds it.  Clients older than v2 know a fence as
INVALID_PRODUCER_EPOCH.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.effects import Producer
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_FIRST_WITH_PRODUCER_FENCED = 2


@api(25, versions=(0, 4))
async def add_offsets_to_txn(request: Any, ctx: RequestContext) -> Answer:
    if not request.transactional_id:
        return {"error_code": ErrorCode.invalid_request}
    services = ctx.services
    try:
        await services.groups.ensure_topic()
        partition = (OFFSETS_TOPIC, services.groups.shard_of(request.group_id))
        producer = Producer(request.producer_id, request.producer_epoch)
        code = await services.transactions.add(
            request.transactional_id, producer, [partition], begun=ctx.begun
        )
    except AnabranchError as error:
        code = code_of(error)
    if code == ErrorCode.producer_fenced and ctx.version < _FIRST_WITH_PRODUCER_FENCED:
        code = ErrorCode.invalid_producer_epoch
    return {"error_code": code}
