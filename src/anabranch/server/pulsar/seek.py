"""SEEK: the subscription goes on from a message, or from the first one published at a time; SUCCESS.

Consumers are told to subscribe again before that (CLOSE_CONSUMER), the one that asks among them: nothing that
was sent before the seek can be taken for something sent after it.
"""

from anabranch.base.errors import Invalid
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.consumers import Attached
from anabranch.server.pulsar.message_ids import start_of
from anabranch.server.pulsar.registry import Later, command
from anabranch.wire.pulsar import commands_pb2 as pb


@command(pb.BaseCommand.SEEK)
def seek(request: pb.Seek, connection: PulsarConnection) -> Later:
    if not request.HasField("message_id") and not request.HasField("message_publish_time"):
        raise Invalid("a seek needs a message id or a time")
    return _seek(request, connection, connection.consumers.get(request.consumer_id))


async def _seek(request: pb.Seek, connection: PulsarConnection, attached: Attached) -> None:
    topic = attached.topic
    if request.HasField("message_id"):
        offset = start_of(request.message_id)
    else:
        time_ms = request.message_publish_time
        offset = await topic.offset_for_time(time_ms, compacted=attached.consumer.reads_compacted)
    await topic.seek(attached.subscription, offset)
    connection.succeed(request.request_id)
