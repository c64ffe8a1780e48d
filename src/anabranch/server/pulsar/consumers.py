"""The consumers of one connection, and the way of a message to its client.

A `ConsumerChannel` is what a subscription knows a consumer's connection by.  It writes MESSAGE frames, whose
heads differ in a few bytes from one message to the next, before the stored bytes of each entry.

When the connection is full, a channel that was asked remembers it, and its subscription is told once the
client has taken everything.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.base.errors import AnabranchError, Unavailable
from anabranch.base.network import Chunk
from anabranch.server.pulsar.errors import ConsumerNotFound
from anabranch.server.pulsar.opening import Opening
from anabranch.server.pulsar.owners import assigned_url
from anabranch.server.pulsar.producers import FIRST_WITH_CLOSE, NO_REQUEST
from anabranch.subscriptions.channel import Delivery
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.subscription import Subscription
from anabranch.topics.live_subscription import LiveSubscription
from anabranch.wire.pulsar import commands_pb2 as pb
from anabranch.wire.pulsar.hot import message, message_head, partly_acked_message

if TYPE_CHECKING:
    from anabranch.server.pulsar.connection import PulsarConnection

log = logging.getLogger(__name__)

_FIRST_WITH_ACTIVE_CHANGE = 12  # protocol versions


class ConsumerChannel:
    """A consumer's way out (`subscriptions/channel.py`)."""

    __slots__ = ("_connection", "_counted", "_head", "_id", "_partition", "is_stalled")

    def __init__(self, connection: "PulsarConnection", id: int, partition: int) -> None:
        """`partition` is what message ids carry: -1 if the topic is not partitioned."""
        self._connection = connection
        self._id = id
        self._partition = partition
        self._head = message_head(id, partition)
        self._counted = (0, 0)
        self.is_stalled = False

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        chunks: list[Chunk] = []
        epoch = consumer.epoch
        for entry, redeliveries, ack_set in deliveries:
            payload = entry.payload
            if ack_set is None and epoch < 0:
                head = message(self._head, entry.ledger, entry.offset, redeliveries, len(payload))
            else:
                head = partly_acked_message(
                    self._id,
                    self._partition,
                    (entry.ledger, entry.offset),
                    redeliveries,
                    ack_set or (),
                    len(payload),
                    epoch,
                )
            chunks.append(head)
            chunks.append(payload)
        self._connection.write(chunks)
        counted, self._counted = self._counted, (consumer.messages_out, consumer.bytes_out)
        traffic = self._connection.services.traffic
        traffic.messages_out += self._counted[0] - counted[0]
        traffic.bytes_out += self._counted[1] - counted[1]

    def is_writable(self) -> bool:
        if self._connection.is_full:
            self.is_stalled = True
            return False
        return True

    def active_changed(self, consumer: Consumer, is_active: bool) -> None:
        if self._connection.protocol_version < _FIRST_WITH_ACTIVE_CHANGE:
            return
        told = pb.ActiveConsumerChange(consumer_id=self._id, is_active=is_active)
        self._connection.send(
            pb.BaseCommand(type=pb.BaseCommand.ACTIVE_CONSUMER_CHANGE, active_consumer_change=told)
        )

    def reached_end(self, consumer: Consumer) -> None:
        told = pb.ReachedEndOfTopic(consumer_id=self._id)
        self._connection.send(
            pb.BaseCommand(type=pb.BaseCommand.REACHED_END_OF_TOPIC, reached_end_of_topic=told)
        )

    def disconnect(self, consumer: Consumer) -> None:
        self._connection.consumers.disconnected(self._id, consumer)


class Attached:
    """A consumer that is open here.

    `topic` is a `Topic` if `subscription` is a `Subscription`, and a `NonPersistentTopic` if it is live.
    """

    __slots__ = ("channel", "consumer", "subscription", "topic")

    def __init__(
        self,
        consumer: Consumer,
        channel: ConsumerChannel,
        subscription: Subscription | LiveSubscription,
        topic: Any,
    ) -> None:
        self.consumer = consumer
        self.channel = channel
        self.subscription = subscription
        self.topic = topic

    @property
    def backlog(self) -> int:
        """Messages that the subscription has not acknowledged."""
        if isinstance(self.subscription, LiveSubscription):
            return 0
        return self.subscription.cursor.backlog(self.topic.end)

    async def detach(self) -> None:
        await self.topic.detach(self.subscription, self.consumer)

    async def leave(self) -> None:
        """Detach it; nobody waits to hear whether all could be kept."""
        try:
            await self.detach()
        except AnabranchError as error:
            log.warning(
                "%s, subscription %s: a consumer left, what it had acknowledged could not be stored: %s",
                self.topic.full_name,
                self.subscription.name,
                error,
            )


class Consumers:
    __slots__ = ("_by_id", "_connection")

    def __init__(self, connection: "PulsarConnection") -> None:
        self._connection = connection
        self._by_id: dict[int, Attached | Opening] = {}

    def __iter__(self) -> Iterator[Attached]:
        return (known for known in list(self._by_id.values()) if isinstance(known, Attached))

    def find(self, id: int) -> Attached | None:
        """The consumer that is open under `id`."""
        known = self._by_id.get(id)
        return known if isinstance(known, Attached) else None

    def get(self, id: int) -> Attached:
        known = self.find(id)
        if known is None:
            raise ConsumerNotFound("Consumer not found")
        return known

    # --- opening and closing

    def begin(self, id: int, request_id: int) -> Opening | Attached:
        """Take `id` for a consumer that is to be opened; the one that is open under it, if there is."""
        known = self._by_id.get(id)
        if isinstance(known, Opening):
            raise Unavailable(f"consumer {id} is already being opened on this connection; wait for that")
        if known is not None:
            return known
        opening = self._by_id[id] = Opening(request_id)
        return opening

    def opened(self, id: int, attached: Attached) -> None:
        self._by_id[id] = attached

    def failed(self, id: int, opening: Opening) -> None:
        if self._by_id.get(id) is opening:
            del self._by_id[id]

    def take(self, id: int) -> Attached | None:
        """The client closes a consumer: the one that was open, to be detached."""
        known = self._by_id.pop(id, None)
        if isinstance(known, Opening):
            known.abandon()
            return None
        return known

    def disconnected(self, id: int, consumer: Consumer) -> None:
        """The broker has detached a consumer: its client is told to subscribe again."""
        known = self._by_id.get(id)
        if not isinstance(known, Attached) or known.consumer is not consumer:
            return
        del self._by_id[id]
        self.send_away(id, known.topic.full_name)

    def send_away(self, id: int, topic: str) -> None:
        """Have a client look up the topic of a consumer that is not open."""
        if self._connection.protocol_version < FIRST_WITH_CLOSE:
            self._connection.hang_up()
            return
        url = assigned_url(self._connection.services, topic)
        told = pb.CloseConsumer(consumer_id=id, request_id=NO_REQUEST, assigned_broker_service_url=url)
        self._connection.send(pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER, close_consumer=told))

    # --- all of them

    def resume(self) -> None:
        """The client has taken everything it was sent."""
        for attached in self:
            if attached.channel.is_stalled:
                attached.channel.is_stalled = False
                attached.subscription.resume(attached.consumer)

    def close_all(self) -> None:
        """The broker closes them, and says so."""
        for known in list(self._by_id.values()):
            if isinstance(known, Opening):
                known.abandon()
        for attached in self:
            self._connection.spawn(attached.leave())
            attached.channel.disconnect(attached.consumer)

    def gone(self) -> None:
        """The connection is closed."""
        for known in list(self._by_id.values()):
            if isinstance(known, Opening):
                known.abandon()
            else:
                self._connection.spawn(known.leave())
        self._by_id.clear()
