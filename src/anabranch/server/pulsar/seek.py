"""SEEK: the subscription goes on from a message, or from the first one published at a time; SUCCESS.

Consumers are told to subscribe again before that (CLOSE_CONSUMER), save the one that asks if its client can
do without and it names a message.  That client is pinged after SUCCESS: what it sent before it heard of the
seek, acknowledgements of what it had been given before among it, comes before its PONG.  After a seek to a
time nobody stays: the C++ client drops messages up to the last id that it sought or began at, and forgets
that id only when it subscribes again.
"""

from functools import partial

from anabranch.base.errors import Invalid
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.consumers import Attached
from anabranch.server.pulsar.message_ids import start_of
from anabranch.server.pulsar.registry import Later, command
from anabranch.subscriptions.subscription import Subscription
from anabranch.wire.pulsar import commands_pb2 as pb


@command(pb.BaseCommand.SEEK)
def seek(request: pb.Seek, connection: PulsarConnection) -> Later:
    if not request.HasField("message_id") and not request.HasField("message_publish_time"):
        raise Invalid("a seek needs a message id or a time")
    return _seek(request, connection, connection.consumers.get(request.consumer_id))


async def _seek(request: pb.Seek, connection: PulsarConnection, attached: Attached) -> None:
    topic, subscription, consumer = attached.topic, attached.subscription, attached.consumer
    if request.HasField("message_id"):
        await topic.seek(subscription, start_of(request.message_id), consumer)
    else:
        await topic.seek(subscription, await topic.offset_for_time(request.message_publish_time))
    connection.succeed(request.request_id)
    if consumer.is_seeking and isinstance(subscription, Subscription):
        connection.signs.after_pong(partial(subscription.settled, consumer))
