"""ACK: messages are done with, one by one or all up to one.

Without a request id it is not answered, and what makes no sense in it is passed over, as Pulsar does: its
sender would not know what to do about it.  With one it is answered, by ACK_RESPONSE, once the position is
where a crash cannot take it back.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.consumers import Attached
from anabranch.server.pulsar.errors import NoTransactions
from anabranch.server.pulsar.message_ids import acks_of
from anabranch.server.pulsar.registry import Later, command
from anabranch.wire.pulsar import commands_pb2 as pb


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
    wants_receipt = request.HasField("request_id")
    try:
        if request.HasField("txnid_least_bits"):
            raise NoTransactions
        acks = acks_of(request.message_id)
        if acks:
            cumulative = request.type == pb.Ack.Cumulative
            attached.subscription.ack(attached.consumer, acks, cumulative=cumulative)
    except AnabranchError:
        if wants_receipt:
            raise
        return None
    return _receipt(request, connection, attached) if wants_receipt else None


async def _receipt(request: pb.Ack, connection: PulsarConnection, attached: Attached) -> None:
    await attached.topic.save(attached.subscription)
    told = pb.AckResponse(consumer_id=request.consumer_id, request_id=request.request_id)
    connection.send(pb.BaseCommand(type=pb.BaseCommand.ACK_RESPONSE, ack_response=told))
