"""DescribeTransactions (65): all that the coordinator knows of transactional ids."""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.groups.transaction_records import Transaction, by_topic
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode


@api(65, versions=(0, 0))
async def describe_transactions(request: Any, ctx: RequestContext) -> Answer:
    described = [await _describe(id, ctx) for id in dict.fromkeys(request.transactional_ids)]
    return {"transaction_states": described}


async def _describe(transactional_id: str, ctx: RequestContext) -> Answer:
    if not transactional_id:
        return _unknown(transactional_id, ErrorCode.invalid_request)
    try:
        found = ctx.services.transactions.find(transactional_id)
        await ctx.services.transactions.settled(transactional_id)
    except AnabranchError as error:
        return _unknown(transactional_id, code_of(error))
    if found is None:
        return _unknown(transactional_id, ErrorCode.transactional_id_not_found)
    return _known(transactional_id, found)


def _known(transactional_id: str, found: Transaction) -> Answer:
    return {
        "transactional_id": transactional_id,
        "transaction_state": found.state.title,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "topics": [
            {"topic": topic, "partitions": partitions}
            for topic, partitions in by_topic(found.partitions).items()
        ],
    }


def _unknown(transactional_id: str, code: ErrorCode) -> Answer:
    """Kafka's answer has zeros here, not the -1 of what is not there."""
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": [],
    }
