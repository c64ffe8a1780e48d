"""ACK: messages are done with, one by one or all up to one.

Without a request id it is not answered, and what makes no sense in it is passed over, as Pulsar does: its
sender would not know what to do about it.  With one it is answered, by ACK_RESPONSE, once the position is
where a crash cannot take it back.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.consumers import Attached
from anabranch.server.pulsar.message_ids import acks_of
from anabranch.server.pulsar.registry import Later, command
from anabranch.server.pulsar.transactional import ack_within
from anabranch.wire.pulsar import commands_pb2 as pb

_LARGE_BYTES = 16 << 10
_AT_ONCE = 1000  # ids or words of bits; clients collect no more ids than that


def ack_refused(request: Any, code: pb.ServerError, message: str) -> pb.BaseCommand:
    told = pb.AckResponse(
        consumer_id=request.consumer_id, request_id=request.request_id, error=code, message=message
    )
    return pb.BaseCommand(type=pb.BaseCommand.ACK_RESPONSE, ack_response=told)


@command(pb.BaseCommand.ACK, refusal=ack_refused)
def ack(request: pb.Ack, connection: PulsarConnection) -> Later:
    attached = connection.consumers.find(request.consumer_id)
    if attached is None:
        return None  # closed meanwhile; its messages are somebody else's
    if request.HasField("txnid_least_bits"):
        return _within_transaction(request, connection, attached)
    if request.ByteSize() > _LARGE_BYTES:
        return _many(request, connection, attached)
    _acknowledge(request, attached, request.message_id)
    return _receipt(request, connection, attached) if request.HasField("request_id") else None


def _acknowledge(request: pb.Ack, attached: Attached, ids: Sequence[pb.MessageId]) -> None:
    """Raises what is wrong if the client waits for an answer."""
    try:
        acks = acks_of(ids)
        if acks:
            cumulative = request.type == pb.Ack.Cumulative
            attached.subscription.ack(attached.consumer, acks, cumulative=cumulative)
    except AnabranchError:
        if request.HasField("request_id"):
            raise


async def _many(request: pb.Ack, connection: PulsarConnection, attached: Attached) -> None:
    """A great many: others have their turn in between."""
    if request.type == pb.Ack.Cumulative:
        _acknowledge(request, attached, request.message_id[-1:])
    else:
        for ids in _slices(request.message_id):
            _acknowledge(request, attached, ids)
            await asyncio.sleep(0)
    if request.HasField("request_id"):
        await _receipt(request, connection, attached)


def _slices(ids: Sequence[pb.MessageId]) -> Iterator[list[pb.MessageId]]:
    part: list[pb.MessageId] = []
    work = 0
    for id in ids:
        part.append(id)
        work += 1 + len(id.ack_set)
        if work >= _AT_ONCE:
            yield part
            part, work = [], 0
    if part:
        yield part


async def _within_transaction(request: pb.Ack, connection: PulsarConnection, attached: Attached) -> None:
    """The receipt says that a restart would know of it; it counts when the transaction commits.

    A great many are kept in several steps: one that is refused spoils the transaction, but not those before.
    """
    is_cumulative = request.type == pb.Ack.Cumulative
    try:
        for ids in [request.message_id[-1:]] if is_cumulative else _slices(request.message_id):
            await ack_within(request, ids, attached, connection.services)
    except AnabranchError:
        if request.HasField("request_id"):
            raise
    else:
        if request.HasField("request_id"):
            _answer(request, connection)


async def _receipt(request: pb.Ack, connection: PulsarConnection, attached: Attached) -> None:
    await attached.topic.save(attached.subscription)
    _answer(request, connection)


def _answer(request: pb.Ack, connection: PulsarConnection) -> None:
    told = pb.AckResponse(consumer_id=request.consumer_id, request_id=request.request_id)
    connection.send(pb.BaseCommand(type=pb.BaseCommand.ACK_RESPONSE, ack_response=told))
