"""REDELIVER_UNACKNOWLEDGED_MESSAGES: send again what was not acknowledged.  Not answered.

Of shared subscriptions the entries that are named (negative acks, ack timeouts); of the others, and where
none is named, all that the consumer holds.
"""

from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.message_ids import LATEST
from anabranch.server.pulsar.registry import command
from anabranch.wire.pulsar import commands_pb2 as pb


@command(pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, refusal=None)
def redeliver(request: pb.Redeliver, connection: PulsarConnection) -> None:
    attached = connection.consumers.find(request.consumer_id)
    if attached is None:
        return
    kind = attached.subscription.kind
    offsets = None
    if request.message_ids and kind is not None and kind.is_individual:
        offsets = [id.entry_id for id in request.message_ids if id.entry_id < LATEST]
    epoch = request.consumer_epoch if request.HasField("consumer_epoch") else -1
    attached.subscription.redeliver(attached.consumer, offsets, epoch)
