"""ListOffsets (2): from a time to an offset.

    timestamp   from    offset
    >= 0                of the first record at or after it; -1 if there is none
    -1 latest           the end that the reader may see: high watermark, or last stable offset
    -2 earliest         the log's start
    -3 max              v7: of the first record with the largest timestamp
    -4 earliest local   v8: the log's start, since nothing is elsewhere
    -5 latest tiered    v9: -1, nothing is elsewhere
    -6 next to tier     v11: -1, nothing is waiting to be

The answer has a timestamp where a record was found, and from v4 on the leader epoch of the offset.
A leader that does not know yet how far the records of those before it are safe has neither a latest offset
nor one by time beyond what it knows: OFFSET_NOT_AVAILABLE, before v5 LEADER_NOT_AVAILABLE (KIP-207).

A follower answers those who look into replicas (-2 in place of a consumer's -1), with its own log's end.

v2 has the isolation level, v4 the leader epoch that the client knows.  v10 has a time limit for
looking at what is elsewhere.  A partition that comes twice is refused once.
"""

import asyncio
from collections import Counter
from typing import Any

from anabranch.base.errors import AnabranchError, NotOwner, OffsetNotAvailable
from anabranch.partition.followed import Followed
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation, TimestampAndOffset
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _NEXT_TO_TIER = range(-1, -7, -1)
_FIRST_VERSION_OF = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _NEXT_TO_TIER: 11,
}
_NEVER = 1 << 15
_NOTHING = TimestampAndOffset(-1, -1, -1)
_CONSUMER, _DEBUGGER = -1, -2
_ISOLATION = (Isolation.UNCOMMITTED, Isolation.COMMITTED)
_SAYS_NOT_AVAILABLE = 5
_LOOK_UPS_A_TURN = 32


@api(2, versions=(1, 11))
async def list_offsets(request: Any, ctx: RequestContext) -> Answer:
    times = Counter(
        (topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    )
    topics: dict[str, dict[int, Answer]] = {}
    count = 0
    for topic in request.topics:
        answered = topics.setdefault(topic.name, {})
        for part in topic.partitions:
            index = part.partition_index
            if times[topic.name, index] > 1:
                answered[index] = _answer(index, ErrorCode.invalid_request)
            else:
                answered[index] = await _look_up(topic.name, part, request, ctx)
            count += 1
            if count % _LOOK_UPS_A_TURN == 0:
                await asyncio.sleep(0)  # a look-up by time reads the disk: let others have their turn
    return {"topics": [{"name": name, "partitions": list(parts.values())} for name, parts in topics.items()]}


async def _look_up(topic: str, part: Any, request: Any, ctx: RequestContext) -> Answer:
    index, timestamp = part.partition_index, part.timestamp
    if timestamp < 0 and ctx.version < _FIRST_VERSION_OF.get(timestamp, _NEVER):
        return _answer(index, ErrorCode.unsupported_version)
    if request.isolation_level not in _ISOLATION:
        return _answer(index, ErrorCode.unknown_server_error)  # as Kafka has it
    isolation = Isolation(request.isolation_level)
    try:
        partition = _partition(topic, part, request, ctx)
        isolation = isolation if request.replica_id == _CONSUMER else Isolation.LOG_END
        return _answer(index, ErrorCode.none, await _offset_for(partition, timestamp, isolation))
    except OffsetNotAvailable as error:
        code = code_of(error) if ctx.version >= _SAYS_NOT_AVAILABLE else ErrorCode.leader_not_available
        return _answer(index, code)
    except (AnabranchError, OSError) as error:
        return _answer(index, code_of(error))


def _partition(topic: str, part: Any, request: Any, ctx: RequestContext) -> Partition | Followed:
    host, index, epoch = ctx.services.partitions, part.partition_index, part.current_leader_epoch
    try:
        return host.partition(topic, index, epoch)
    except NotOwner:
        if request.replica_id != _DEBUGGER:
            raise
        return host.followed(host.topic(topic), index, epoch)


async def _offset_for(
    partition: Partition | Followed, timestamp: int, isolation: Isolation
) -> TimestampAndOffset:
    if timestamp == _LATEST:
        if isolation is not Isolation.LOG_END:
            _check_knows_end(partition)
        return TimestampAndOffset(-1, partition.limit(isolation), partition.leader_epoch)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        start = partition.log_start
        epoch = partition.epoch_of(start)
        return TimestampAndOffset(-1, start, partition.leader_epoch if epoch < 0 else epoch)
    if timestamp in (_LATEST_TIERED, _NEXT_TO_TIER):
        return _NOTHING
    if timestamp == _MAX_TIMESTAMP:
        found = await partition.max_timestamp()
    else:
        found = await partition.offset_for_time(timestamp)
    if found is None or found.offset < partition.limit(isolation):
        return found or _NOTHING
    _check_knows_end(partition)
    return _NOTHING


def _check_knows_end(partition: Partition | Followed) -> None:
    if not partition.knows_its_end:
        raise OffsetNotAvailable(f"{partition}: the leader is new and does not know the high watermark yet")


def _answer(index: int, code: ErrorCode, found: TimestampAndOffset = _NOTHING) -> Answer:
    return {"partition_index": index, "error_code": code} | found._asdict()
