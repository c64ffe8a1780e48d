"""InitProducerId (22): the id under which an idempotent producer numbers its records.

Without a transactional id every call gives a fresh id at epoch 0, whatever the producer had before
(v3 sends that, and it must be both or none).  If no id can be had just now the client is told to try
again.

With one, the transaction coordinator gives the id that belongs to it and the next epoch, which fences
the instance that had it before; a transaction that one left open is aborted first, and the client asks
again meanwhile.  Clients older than v4 know a fence as INVALID_PRODUCER_EPOCH.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, Unavailable
from anabranch.groups.effects import Producer
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_NONE = -1
_FIRST_WITH_PRODUCER_FENCED = 4


@api(22, versions=(0, 5))
async def init_producer_id(request: Any, ctx: RequestContext) -> Answer:
    if request.transactional_id == "" or (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return _refused(ErrorCode.invalid_request)
    if request.transactional_id is not None:
        return await _of_transactional_id(request, ctx)
    try:
        producer_id = await ctx.services.producer_ids.next()
    except Unavailable:
        return _refused(ErrorCode.coordinator_load_in_progress)
    return {"producer_id": producer_id, "producer_epoch": 0}


async def _of_transactional_id(request: Any, ctx: RequestContext) -> Answer:
    known = None
    if request.producer_id != _NONE:
        known = Producer(request.producer_id, request.producer_epoch)
    try:
        answer = await ctx.services.transactions.initialize(
            request.transactional_id, request.transaction_timeout, known
        )
    except AnabranchError as error:
        return _refused(code_of(error))
    if answer["error_code"] == ErrorCode.producer_fenced and ctx.version < _FIRST_WITH_PRODUCER_FENCED:
        return _refused(ErrorCode.invalid_producer_epoch)
    return answer


def _refused(code: ErrorCode) -> Answer:
    return {"error_code": code, "producer_id": _NONE, "producer_epoch": _NONE}
