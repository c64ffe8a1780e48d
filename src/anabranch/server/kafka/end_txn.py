"""EndTxn (26): a transaction commits or aborts.

From version 5 on (KIP-890's second protocol) each end moves the producer to its next epoch, or to another
producer id once its epochs are used up, and the answer says which; older ones go on as they were.  Clients
older than v2 know a fence as INVALID_PRODUCER_EPOCH.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.groups.effects import Producer
from anabranch.groups.transaction_shard import refused
from anabranch.groups.transactions import EPOCH_BUMP
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_FIRST_WITH_PRODUCER_FENCED = 2
_FIRST_OF_SECOND_PROTOCOL = 5


@api(26, versions=(0, 5))
async def end_txn(request: Any, ctx: RequestContext) -> Answer:
    if not request.transactional_id:
        return refused(ErrorCode.invalid_request)
    try:
        answer = await ctx.services.transactions.end(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            commit=request.committed,
            client_version=EPOCH_BUMP if ctx.version >= _FIRST_OF_SECOND_PROTOCOL else 0,
            begun=ctx.begun,
        )
    except AnabranchError as error:
        return refused(code_of(error))
    if answer["error_code"] == ErrorCode.producer_fenced and ctx.version < _FIRST_WITH_PRODUCER_FENCED:
        return refused(ErrorCode.invalid_producer_epoch)
    return answer
