"""AddPartitionsToTxn (24): partitions that a transaction is going to write to.

Up to version 3 clients send it, a transaction at a time; from 4 on brokers do, for several at once, and may
ask only whether the partitions are in it (`verify_only`): `groups/participation`.  If one partition does not
exist none is added: the others are OPERATION_NOT_ATTEMPTED.  Clients older than v2 know a fence as
INVALID_PRODUCER_EPOCH.
"""

import asyncio
from typing import Any, NamedTuple

from anabranch.base.errors import AnabranchError, UnknownTopic
from anabranch.base.ids import TopicName
from anabranch.cluster.topics import is_internal
from anabranch.groups.effects import Producer
from anabranch.groups.runtime import Begun
from anabranch.groups.transaction_records import TopicPartition
from anabranch.groups.transactions import EPOCH_BUMP
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_FIRST_BATCHED = 4
_FIRST_WITH_PRODUCER_FENCED = 2

_Codes = dict[TopicPartition, ErrorCode]


class _Asked(NamedTuple):
    transactional_id: str
    producer: Producer
    partitions: list[TopicPartition]
    verify_only: bool


@api(24, versions=(0, 5))
async def add_partitions_to_txn(request: Any, ctx: RequestContext) -> Answer:
    if ctx.version < _FIRST_BATCHED:
        producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        asked = _asked(
            request.v3_and_below_transactional_id, producer, request.v3_and_below_topics, verify_only=False
        )
        codes = await _add(asked, ctx, ctx.begun)
        return {"results_by_topic_v3_and_below": _by_topic(codes)}
    # What is behind these may begin when all of them have: with several that is when all are answered.
    begun = ctx.begun if len(request.transactions) == 1 else None
    batch = [
        _asked(
            one.transactional_id,
            Producer(one.producer_id, one.producer_epoch),
            one.topics,
            verify_only=one.verify_only,
        )
        for one in request.transactions
    ]
    found = await asyncio.gather(*[_add(asked, ctx, begun) for asked in batch])
    return {
        "results_by_transaction": [
            {"transactional_id": asked.transactional_id, "topic_results": _by_topic(codes)}
            for asked, codes in zip(batch, found, strict=True)
        ]
    }


def _asked(transactional_id: str, producer: Producer, topics: Any, *, verify_only: bool) -> _Asked:
    partitions = [(topic.name, index) for topic in topics for index in topic.partitions]
    return _Asked(transactional_id, producer, partitions, verify_only)


async def _add(asked: _Asked, ctx: RequestContext, begun: Begun | None) -> _Codes:
    wrong = {one: code for one in asked.partitions if (code := _wrong(one, ctx))}
    if wrong:
        return {one: wrong.get(one, ErrorCode.operation_not_attempted) for one in asked.partitions}
    if not asked.transactional_id:
        return dict.fromkeys(asked.partitions, ErrorCode.invalid_request)
    transactions = ctx.services.transactions
    try:
        if asked.verify_only:
            return transactions.verify(asked.transactional_id, asked.producer, asked.partitions)
        client_version = EPOCH_BUMP if ctx.version >= _FIRST_BATCHED else 0
        code = await transactions.add(
            asked.transactional_id, asked.producer, asked.partitions, client_version, begun
        )
    except AnabranchError as error:
        code = code_of(error)
    if code == ErrorCode.producer_fenced and ctx.version < _FIRST_WITH_PRODUCER_FENCED:
        code = ErrorCode.invalid_producer_epoch
    return dict.fromkeys(asked.partitions, code)


def _wrong(one: TopicPartition, ctx: RequestContext) -> ErrorCode:
    """What speaks against a partition; clients have no business in internal topics."""
    name, index = one
    try:
        topic = ctx.services.partitions.topic(name)
    except UnknownTopic:
        return ErrorCode.unknown_topic_or_partition
    if ctx.version < _FIRST_BATCHED and is_internal(TopicName.from_kafka(name)):
        return ErrorCode.topic_authorization_failed
    return ErrorCode.none if 0 <= index < len(topic.partitions) else ErrorCode.unknown_topic_or_partition


def _by_topic(codes: _Codes) -> list[Answer]:
    topics: dict[str, list[Answer]] = {}
    for (name, index), code in codes.items():
        topics.setdefault(name, []).append({"partition_index": index, "partition_error_code": code})
    return [{"name": name, "results_by_partition": parts} for name, parts in topics.items()]
