"""Transaction checks: messages and acknowledgements within transactions, before they are let in.

A message or acknowledgement that names a transaction must name one that is open, and that was told of the
topic or subscription.  A message that is refused for that is answered with NotAllowedError, which clients
give to the application; any other code would make them reconnect and send it again.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.base.errors import Invalid, NotFound
from anabranch.groups.effects import Producer
from anabranch.groups.transaction_ids import TxnId
from anabranch.server.pulsar.errors import NoTransactions
from anabranch.server.pulsar.message_ids import acks_of
from anabranch.server.pulsar.services import PulsarServices
from anabranch.topics.errors import NotAllowed
from anabranch.topics.registry import AnyTopic
from anabranch.topics.topic import Topic
from anabranch.wire.pulsar import commands_pb2 as pb

if TYPE_CHECKING:
    from anabranch.server.pulsar.consumers import Attached


def check_enabled(services: PulsarServices) -> None:
    if not services.config.current.pulsar.transactions:
        raise NoTransactions


def transaction_of(command: pb.Send, topic: AnyTopic, services: PulsarServices) -> Producer | None:
    """Under which producer id and epoch a message is stored; None if it is in no transaction."""
    if not command.HasField("txnid_least_bits"):
        return None
    check_enabled(services)
    if not isinstance(topic, Topic):
        raise NotAllowed("messages of non-persistent topics cannot be in a transaction")
    txn = TxnId(command.txnid_most_bits, command.txnid_least_bits)
    try:
        services.transactions.check(txn, (topic.name.kafka, topic.index))
    except (Invalid, NotFound) as error:
        raise NotAllowed(str(error)) from error
    return txn.producer


async def ack_within(
    request: pb.Ack, ids: Sequence[pb.MessageId], attached: "Attached", services: PulsarServices
) -> None:
    """Returns when what a transaction acknowledges is kept.  TransactionConflict, TransactionNotFound."""
    check_enabled(services)
    topic, subscription = attached.topic, attached.subscription
    if not isinstance(topic, Topic):
        raise NotAllowed("messages of non-persistent topics cannot be in a transaction")
    txn = TxnId(request.txnid_most_bits, request.txnid_least_bits)
    services.transactions.check_subscription(txn, subscription.name)
    acks = acks_of(ids)
    if acks:
        is_cumulative = request.type == pb.Ack.Cumulative
        await topic.ack_within(txn, subscription.name, attached.consumer, acks, cumulative=is_cumulative)
