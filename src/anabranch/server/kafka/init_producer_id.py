"""InitProducerId (22): the id under which an idempotent producer numbers its records.

Without a transactional id every call gives a fresh id at epoch 0, whatever the producer had before
(v3 sends that, and it must be both or none).  If no id can be had just now the client is told to try
again.

A transactional id belongs to a coordinator, and there is none yet: COORDINATOR_NOT_AVAILABLE, which
clients retry until their own time is over.
"""

from typing import Any

from anabranch.base.errors import Unavailable
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_NONE = -1


@api(22, versions=(0, 5))
async def init_producer_id(request: Any, ctx: RequestContext) -> Answer:
    if request.transactional_id == "" or (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return _refused(ErrorCode.invalid_request)
    if request.transactional_id is not None:
        return _refused(ErrorCode.coordinator_not_available)
    try:
        producer_id = await ctx.services.producer_ids.next()
    except Unavailable:
        return _refused(ErrorCode.coordinator_load_in_progress)
    return {"producer_id": producer_id, "producer_epoch": 0}


def _refused(code: ErrorCode) -> Answer:
    return {"error_code": code, "producer_id": _NONE, "producer_epoch": _NONE}
