"""ListTransactions (66): the transactional ids of this coordinator and the states they are in.

Filters: states by name (unknown ones are named in the answer), producer ids, from v1 on how long a
transaction has been open at least, from v2 on a regular expression (RE2) that ids must match as a whole.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, Invalid
from anabranch.groups.consumer_regex_match import TopicPattern
from anabranch.groups.transaction_records import STATES
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode


@api(66, versions=(0, 2))
def list_transactions(request: Any, ctx: RequestContext) -> Answer:
    try:
        found = ctx.services.transactions.all()
    except AnabranchError as error:
        return _refused(code_of(error))
    if request.transactional_id_pattern:
        try:
            chosen = TopicPattern(request.transactional_id_pattern).matching(found)
        except Invalid:
            return _refused(ErrorCode.invalid_regular_expression)
        found = {id: one for id, one in found.items() if id in chosen}
    states = {STATES[name] for name in request.state_filters if name in STATES}
    producers = set(request.producer_id_filters)
    now_ms = ctx.services.clock.now_ms()
    listed = [
        {
            "transactional_id": id,
            "producer_id": one.producer_id,
            "transaction_state": one.state.title,
        }
        for id, one in found.items()
        if (not request.state_filters or one.state in states)
        and (not producers or one.producer_id in producers)
        and (request.duration_filter < 0 or now_ms - one.started_ms > request.duration_filter)
    ]
    unknown = [name for name in request.state_filters if name not in STATES]
    return {"unknown_state_filters": unknown, "transaction_states": listed}


def _refused(code: ErrorCode) -> Answer:
    return {"error_code": code, "unknown_state_filters": [], "transaction_states": []}
