"""Produce (0): batches into partitions.

Served from version 3 on, the first that carries record batches; advertised from 0, as Kafka does,
because librdkafka takes a broker without version 0 for one that is older than it is.

A batch is checked and stored in the call itself.  One that would have to be unpacked and is large is
prepared in a thread, and the connection waits for it, so that the order of a client's requests is the
order in the log.  What is stored waits for its acknowledgement, if that is not there at once, while the
requests behind it are worked on (`produce_answers`).  With acks=0 there is no answer, and an error closes the
connection.

Records of a transaction go in if the partition is in it.  While the producer has one open there, the
partition knows; else the coordinator is asked (`joining`), and by version 12 and later told.
"""

import asyncio
import struct
from contextlib import suppress
from typing import Any
from uuid import UUID

from anabranch.base.errors import AnabranchError, InvalidRecord, UnknownTopic, UnsupportedCompression
from anabranch.cluster.topics import is_internal
from anabranch.log.validation import INLINE_BYTES
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Appended
from anabranch.partition.served_topic import ServedTopic
from anabranch.records.batch import HEADER_SIZE, TRANSACTIONAL
from anabranch.server.kafka import joining
from anabranch.server.kafka.current_leaders import leader_of
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.produce_answers import (
    Acknowledging,
    Results,
    Unacknowledged,
    Wanted,
    answer,
    failed,
    refused,
    stored,
)
from anabranch.server.kafka.produce_targets import (
    LATER,
    Ends,
    Target,
    Topics,
    as_told,
    check_still_in,
    ends_before,
    in_doubt,
    is_transactional,
    producer_of,
    verified,
    verified_elsewhere,
    without,
)
from anabranch.server.kafka.registry import Reply, RequestContext, Waiting, api
from anabranch.server.lanes import FLEXIBLE_VERSION, PLACED, Lane
from anabranch.wire.kafka.produce import (
    Produced,
    ProducePartition,
    ProduceRequest,
    read_produce,
    read_varint,
)
from anabranch.wire.kafka.schema import ErrorCode

_ZSTD = 4
_ACKS = (-1, 0, 1)
_ATTRIBUTES_LOW_BYTE = 22
_OPENED_A_TURN = 16  # logs; half a millisecond each, if they are new
_NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request
_INT = struct.Struct(">i")
_FIRST_ADDED = 12
_INTERNAL_CLIENT = "__admin_client"  # Kafka's name for those who may write to internal topics


@api(0, versions=(3, 13), raw=True, advertise_from=0)
def produce(frame: memoryview, at: int, ctx: RequestContext) -> object:
    found = ctx.peer.lanes.find(frame, at, ctx.version)
    if found is not None:
        reply = _by_lane(found[0], found[1], frame, ctx)
        if reply is not None:
            return reply
    request = read_produce(frame, at, ctx.version)
    if _lacks_transactional_id(request):
        code = ErrorCode.transactional_id_authorization_failed
        return answer(
            _wanted(request, ctx),
            [
                (topic.name, [refused(part.partition, code, None) for part in topic.partitions])
                for topic in request.topics
            ],
        )
    if closed := _closed(request, ctx):
        return _produce_opening(memoryview(bytearray(frame)), at, closed, ctx)
    return _produce(request, frame, at, ctx)


def _produce(request: ProduceRequest, frame: memoryview, at: int, ctx: RequestContext) -> object:
    topics = [(topic.name, _targets(topic.name, topic.partitions, request, ctx)) for topic in request.topics]
    if request.transactional_id is not None and (doubtful := in_doubt(topics)):
        if ctx.version >= _FIRST_ADDED:
            return _produce_joining(request, _detached(topics), ctx)
        if not ctx.services.participation.is_known_here(request.transactional_id):
            ends = ends_before(topics, request.transactional_id, ctx.version)
            return _produce_verifying(request, _detached(topics), ends, ctx)
        topics = verified(topics, doubtful, request.transactional_id, ctx)
    for _, targets in topics:
        for target in targets:
            records = target.part.records
            if target.partition is not None and records is not None and target.partition.is_heavy(records):
                ends = ends_before(topics, request.transactional_id, ctx.version)
                return _produce_slowly(request, _detached(topics), ends, ctx)
    results: Results = []
    waiting: list[Unacknowledged] = []
    for name, targets in topics:
        produced: list[Produced] = []
        for target in targets:
            if target.partition is None or target.part.records is None:
                produced.append(_refused(target))
                continue
            try:
                appended = target.partition.append(target.part.records, request.acks)
            except (AnabranchError, OSError) as error:
                produced.append(failed(target.part.partition, error, ctx.services.partitions.traffic))
                continue
            if appended.acknowledged is not None:
                waiting.append(
                    Unacknowledged(produced, len(produced), appended.acknowledged, target.partition)
                )
            produced.append(stored(target.part.partition, target.partition, appended))
        results.append((name, produced))
    if len(topics) == 1 and len(topics[0][1]) == 1 and request.transactional_id is None:
        (target,) = topics[0][1]
        if target.partition is not None and not results[0][1][0].error_code:
            ctx.peer.lanes.learn(frame, at, ctx.version, request, target.partition)
    if waiting:
        return Acknowledging(_wanted(request, ctx), results, waiting)
    return answer(_wanted(request, ctx), results)


def _by_lane(lane: Lane, at: int, frame: memoryview, ctx: RequestContext) -> Reply | Waiting:
    """The answer to a request that has a lane; None if it should take the ordinary way after all."""
    version = ctx.version
    if len(frame) - at < HEADER_SIZE:
        return None
    if version >= FLEXIBLE_VERSION:
        size = frame[at]
        at += 1
        if size > 127:
            if (more := frame[at]) < 128:
                size += (more << 7) - 128
                at += 1
            else:
                size, at = read_varint(frame, at - 1)
        end = at + size - 1
        if frame[end:] != _NO_TAGS:
            return None
    else:
        at += 4
        end = len(frame)
        if at + _INT.unpack_from(frame, at - 4)[0] != end:
            return None
    batch = frame[at:end]
    size = end - at
    partition, name, acks, timeout_ms, head, tail = lane
    if size < HEADER_SIZE:
        return None
    attributes = batch[_ATTRIBUTES_LOW_BYTE]
    if attributes & TRANSACTIONAL or ((attributes or size > INLINE_BYTES) and partition.is_heavy(batch)):
        return None
    try:
        base_offset, append_time_ms, acknowledged = partition.append(batch, acks)
    except (AnabranchError, OSError) as error:
        # Not by the ordinary way: the batch may have its place written in it already.
        wanted = _wanted_by(acks, timeout_ms, ctx)
        return answer(wanted, [(name, [failed(partition.index, error, wanted.traffic)])])
    if acknowledged is not None:
        produced = [Produced(partition.index, 0, base_offset, append_time_ms, partition.log_start)]
        unacknowledged = Unacknowledged(produced, 0, acknowledged, partition)
        return Acknowledging(_wanted_by(acks, timeout_ms, ctx), [(name, produced)], [unacknowledged])
    return (head + PLACED.pack(0, base_offset, append_time_ms, partition.log_start) + tail,)


def _closed(request: ProduceRequest, ctx: RequestContext) -> list[tuple[ServedTopic, int]]:
    """The logs that the request would open, if they are more than the loop should wait for."""
    if sum(len(topic.partitions) for topic in request.topics) <= _OPENED_A_TURN:
        return []
    host = ctx.services.partitions
    closed = []
    for topic in request.topics:
        found = host.find(
            UUID(bytes=topic.name) if ctx.version >= 13 else str(topic.name, "utf-8", "replace")
        )
        if found is not None:
            closed += [(found, p.partition) for p in topic.partitions if not host.is_open(found, p.partition)]
    return closed if len(closed) > _OPENED_A_TURN else []


async def _produce_opening(
    frame: memoryview, at: int, closed: list[tuple[ServedTopic, int]], ctx: RequestContext
) -> Reply | Waiting:
    """Open the logs a few at a time, then go on as usual."""
    for number, (topic, index) in enumerate(closed):
        with suppress(AnabranchError, OSError):  # it is told when they are written
            ctx.services.partitions.partition_of(topic, index)
        if number % _OPENED_A_TURN == 0:
            await asyncio.sleep(0)
    reply: Any = _produce(read_produce(frame, at, ctx.version), frame, at, ctx)
    done: Reply | Waiting = await reply if asyncio.iscoroutine(reply) else reply
    return done


def _wanted(request: ProduceRequest, ctx: RequestContext) -> Wanted:
    return _wanted_by(request.acks, request.timeout_ms, ctx)


def _wanted_by(acks: int, timeout_ms: int, ctx: RequestContext) -> Wanted:
    services = ctx.services
    return Wanted(acks, timeout_ms, ctx.version, services.cluster, services.partitions.traffic)


def _refused(target: Target) -> Produced:
    return refused(target.part.partition, target.error, target.message, target.leader)


def _targets(
    name: bytes, parts: list[ProducePartition], request: ProduceRequest, ctx: RequestContext
) -> list[Target]:
    """Every batch of a topic with its partition, or with what speaks against it."""
    if request.acks not in _ACKS:
        return [Target(part, None, ErrorCode.invalid_required_acks, None) for part in parts]
    host = ctx.services.partitions
    if ctx.version >= 13:
        topic = host.topic_by_id(UUID(bytes=name))
        unknown = ErrorCode.unknown_topic_id
    else:
        unknown = ErrorCode.unknown_topic_or_partition
        try:
            topic = host.topic(str(name, "utf-8", "replace"))
        except UnknownTopic:
            topic = None
    if topic is None:
        return [Target(part, None, unknown, None) for part in parts]
    if is_internal(topic.name) and ctx.client_id != _INTERNAL_CLIENT:
        return [Target(part, None, ErrorCode.invalid_topic_exception, None) for part in parts]
    kafka_name = topic.name.kafka
    targets = []
    for part in parts:
        try:
            _check_request(part.records, ctx.version)
            partition = host.partition_of(topic, part.partition)
            targets.append(Target(part, partition, 0, None, kafka_name))
        except (AnabranchError, OSError) as error:
            host.traffic.produce_failed(error)
            targets.append(Target(part, None, code_of(error), message_of(error), leader=leader_of(error)))
    return targets


def _check_request(records: memoryview | None, version: int) -> None:
    """What depends on the request rather than on the batch or its topic."""
    if records is None or len(records) < HEADER_SIZE:
        raise InvalidRecord("a produce request must hold exactly one record batch a partition")
    if records[_ATTRIBUTES_LOW_BYTE] & 7 == _ZSTD and version < 7:
        raise UnsupportedCompression("zstd needs version 7 of the produce request")


def _lacks_transactional_id(request: ProduceRequest) -> bool:
    """Transactional records and nobody to answer for them: Kafka refuses the whole request."""
    return request.transactional_id is None and any(
        is_transactional(part.records) for topic in request.topics for part in topic.partitions
    )


def _detached(topics: Topics) -> Topics:
    """The same batches in memory of their own: the frame's buffer is used again once we wait."""
    return [
        (
            name,
            [
                target
                if target.part.records is None
                else target._replace(
                    part=ProducePartition(target.part.partition, memoryview(bytearray(target.part.records)))
                )
                for target in targets
            ],
        )
        for name, targets in topics
    ]


async def _produce_slowly(
    request: ProduceRequest, topics: Topics, ends: Ends, ctx: RequestContext
) -> Reply | Waiting:
    results: Results = []
    waiting: list[Unacknowledged] = []
    for name, targets in topics:
        produced: list[Produced] = []
        for target in targets:
            if target.partition is None or target.part.records is None:
                produced.append(_refused(target))
                continue
            try:
                appended = await _append_slowly(target.partition, target, request, ends)
            except (AnabranchError, OSError) as error:
                produced.append(failed(target.part.partition, error, ctx.services.partitions.traffic))
                continue
            if appended.acknowledged is not None:
                waiting.append(
                    Unacknowledged(produced, len(produced), appended.acknowledged, target.partition)
                )
            produced.append(stored(target.part.partition, target.partition, appended))
        results.append((name, produced))
    if waiting:
        return Acknowledging(_wanted(request, ctx), results, waiting)
    return answer(_wanted(request, ctx), results)


async def _append_slowly(
    partition: Partition, target: Target, request: ProduceRequest, ends: Ends
) -> Appended:
    records = target.part.records
    assert records is not None
    admit = None
    if ends and is_transactional(records):
        producer = producer_of(records)

        def admit() -> None:
            check_still_in(target, producer, ends)

    partition.check_leads()  # still, after those before it were prepared
    if partition.is_heavy(records):
        return await partition.append_heavy(records, request.acks, admit)
    if admit is not None:
        admit()
    return partition.append(records, request.acks)


async def _produce_joining(request: ProduceRequest, topics: Topics, ctx: RequestContext) -> Reply | Waiting:
    """Have the partitions added to the transaction first, which the log of the coordinator has to take."""
    doubtful = in_doubt(topics)
    producers = set(doubtful.values())
    assert request.transactional_id is not None
    if len(producers) > 1:
        code = ErrorCode.invalid_producer_id_mapping
    else:
        code = await joining.add(
            ctx.services.participation, request.transactional_id, producers.pop(), doubtful
        )
    if code:
        told = as_told(code) if code in LATER else code
        topics = without(topics, dict.fromkeys(doubtful, told))
    return await _produce_slowly(request, topics, {}, ctx)


async def _produce_verifying(
    request: ProduceRequest, topics: Topics, ends: Ends, ctx: RequestContext
) -> Reply | Waiting:
    """Ask the coordinator, which is on another broker, whether the partitions are in the transaction."""
    assert request.transactional_id is not None
    topics = await verified_elsewhere(topics, in_doubt(topics), request.transactional_id, ctx)
    return await _produce_slowly(request, topics, ends, ctx)
