"""SyncGroup (14): a member asks for its assignment; the leader's request brings everybody's.

v3      static members
v5      the member says which protocol it believes to be in use: INCONSISTENT_GROUP_PROTOCOL if another is
"""

from typing import Any

from anabranch.base.errors import AnabranchError, TooLarge
from anabranch.groups import classic_answers
from anabranch.groups.classic_sync import Syncing
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_NAMES_PROTOCOL_FROM = 5


@api(14, versions=(0, 5))
async def sync_group(request: Any, ctx: RequestContext) -> Answer:
    if ctx.version >= _NAMES_PROTOCOL_FROM and None in (request.protocol_type, request.protocol_name):
        return classic_answers.not_synced(ErrorCode.inconsistent_group_protocol)
    who = Syncing(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={given.member_id: bytes(given.assignment) for given in request.assignments},
    )
    try:
        return await ctx.services.groups.submit(
            request.group_id,
            lambda shard, token, now_ms: shard.classic.sync(request.group_id, who, token, now_ms),
            ctx.begun,
        )
    except AnabranchError as error:
        return classic_answers.not_synced(_code_of(error))


def _code_of(error: AnabranchError) -> ErrorCode:
    """Assignments that do not fit into one batch of the coordinator's log are Kafka's unknown error."""
    return ErrorCode.unknown_server_error if isinstance(error, TooLarge) else code_of(error)
