"""GET_LAST_MESSAGE_ID: where the topic ends, and how far this consumer's subscription has got.

Who wants the last message of every key only is told the last of those.

Clients compare the two to say whether there is more to read.  The position is that of the last entry which is
acknowledged as a whole, with everything before it.
"""

from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import command
from anabranch.wire.pulsar import commands_pb2 as pb

_UNSIGNED = (1 << 64) - 1


@command(pb.BaseCommand.GET_LAST_MESSAGE_ID)
def get_last_message_id(request: pb.GetLastMessageId, connection: PulsarConnection) -> None:
    attached = connection.consumers.get(request.consumer_id)
    topic = attached.topic
    ledger, entry, batch_index = topic.last_message(compacted=attached.consumer.reads_compacted)
    done_ledger, done_entry = topic.mark_delete_position(attached.subscription)
    told = pb.GetLastMessageIdResponse(
        request_id=request.request_id,
        last_message_id=pb.MessageId(
            ledger_id=ledger & _UNSIGNED,
            entry_id=entry & _UNSIGNED,
            partition=topic.partition_index,
            batch_index=batch_index,
        ),
        consumer_mark_delete_position=pb.MessageId(
            ledger_id=done_ledger & _UNSIGNED, entry_id=done_entry & _UNSIGNED
        ),
    )
    connection.send(
        pb.BaseCommand(type=pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, get_last_message_id_response=told)
    )
