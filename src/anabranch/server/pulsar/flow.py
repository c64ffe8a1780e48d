"""FLOW: the client has room for so many more messages.  Not answered; absurd numbers close the connection."""

from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import command
from anabranch.wire.pulsar import commands_pb2 as pb


@command(pb.BaseCommand.FLOW, refusal=None)
def flow(request: pb.Flow, connection: PulsarConnection) -> None:
    attached = connection.consumers.find(request.consumer_id)
    if attached is not None:  # it may have been closed by the broker, and its client not know yet
        attached.subscription.flow(attached.consumer, request.message_permits)
