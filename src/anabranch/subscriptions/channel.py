"""Consumer channel: what a subscription asks of the connection that a consumer came by.

    deliver          MESSAGE frames, as many as one turn of the dispatcher brought
    is_writable      False while the client does not take what it was sent: nothing is delivered until the
                     connection calls `Subscription.resume(consumer)`
    active_changed   ACTIVE_CONSUMER_CHANGE
    reached_end      REACHED_END_OF_TOPIC: it has everything of a topic that takes no more
    disconnect       CLOSE_CONSUMER: the client is to look the topic up and subscribe again; the subscription
                     has detached the consumer by then

The server implements it.  None of it may call back into the subscription before it returns.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from anabranch.records.entries import Entry

if TYPE_CHECKING:
    from anabranch.subscriptions.consumer import Consumer


class Delivery(NamedTuple):
    """One entry on its way to one consumer."""

    entry: Entry
    redelivery_count: int
    ack_set: Sequence[int] | None
    """Words of 64 bits, a bit set for each message that is not acknowledged; None if none is."""


class Channel(Protocol):
    def deliver(self, consumer: "Consumer", deliveries: Sequence[Delivery]) -> None: ...

    def is_writable(self) -> bool: ...

    def active_changed(self, consumer: "Consumer", is_active: bool) -> None: ...

    def reached_end(self, consumer: "Consumer") -> None: ...

    def disconnect(self, consumer: "Consumer") -> None: ...
