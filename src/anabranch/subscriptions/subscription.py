"""A subscription of one topic (one partition of it): a cursor, the consumers attached, who gets what.

    SUBSCRIBE     attach(consumer, kind)         CLOSE_CONSUMER, lost connection   detach(consumer)
    FLOW          flow(consumer, permits)        the socket takes more again       resume(consumer)
    ACK           ack(consumer, acks, cumulative=...)
    REDELIVER_..  redeliver(consumer, offsets)   None: everything it holds
    SEEK          seek(offset)

Signatures first; the engine follows.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.kinds import SubscriptionKind


class Ack(NamedTuple):
    """One message id of an ACK."""

    offset: int
    """The entry id."""
    ack_set: Sequence[int] | None = None
    """Words of 64 bits, signed or not, a bit set for each message of the entry *not* acknowledged."""


class SubscriptionApi(Protocol):
    name: str
    kind: SubscriptionKind | None
    """None before the first consumer; another when the last one is gone and the next wants another."""
    consumers: list[Consumer]

    def attach(self, consumer: Consumer, kind: SubscriptionKind) -> None:
        """ConsumerBusy, SubscriptionTypeMismatch, ConsumerAssignError.  Sends ACTIVE_CONSUMER_CHANGE where due."""

    def detach(self, consumer: Consumer) -> None:
        """What it holds goes to others.  Nothing if it is not attached."""

    def flow(self, consumer: Consumer, permits: int) -> None:
        """InvalidPermits if the number is none that a client can mean."""

    def ack(self, consumer: Consumer, acks: Sequence[Ack], *, cumulative: bool) -> None:
        """NotAllowed for cumulative ones of shared kinds, InvalidAck beyond the log's end.

        When it returns the cursor has them in memory; an ack with a receipt is answered when the store has.
        """

    def redeliver(self, consumer: Consumer, offsets: Sequence[int] | None) -> None:
        """Deliver again the entries at `offsets`, or all that it holds."""

    def seek(self, offset: int) -> None:
        """Go on from the message at `offset`.

        Consumers that cannot stay are detached and disconnected before this returns: answer SUCCESS then.
        """

    def resume(self, consumer: Consumer) -> None:
        """Its connection is writable again."""

    def close(self) -> None:
        """Detach and disconnect everybody (unload, deletion of the subscription)."""
