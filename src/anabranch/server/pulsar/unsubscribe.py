"""UNSUBSCRIBE: delete the subscription, if this is its only consumer or the client insists; SUCCESS."""

from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.consumers import Attached
from anabranch.server.pulsar.registry import Later, command
from anabranch.wire.pulsar import commands_pb2 as pb


@command(pb.BaseCommand.UNSUBSCRIBE)
def unsubscribe(request: pb.Unsubscribe, connection: PulsarConnection) -> Later:
    return _unsubscribe(request, connection, connection.consumers.get(request.consumer_id))


async def _unsubscribe(request: pb.Unsubscribe, connection: PulsarConnection, attached: Attached) -> None:
    await attached.topic.unsubscribe(
        attached.subscription.name, force=request.force, consumer=attached.consumer
    )
    connection.consumers.take(request.consumer_id)
    connection.succeed(request.request_id)
