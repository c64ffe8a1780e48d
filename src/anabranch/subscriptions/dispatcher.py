"""Dispatcher: which consumer gets what, the part of a subscription that differs by its kind.

A dispatcher works in turns.  A turn reads once, hands out what it read, and says what to wait for:

    MORE     there may be more to do at once; others have their turn first
    END      everything readable was handed out: wait for the log
    NOBODY   no consumer takes anything: wait for a flow, an ack, a writable socket
    DISK     the log must be read from the disk first
    FULL     too much waits for consumers that cannot take it yet: wait for them, or for what is delayed

The subscription calls it whenever one of these may have changed, so a turn may find nothing to do.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Protocol

from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.settings import SubscriptionSettings


class Outcome(Enum):
    MORE = auto()
    END = auto()
    NOBODY = auto()
    DISK = auto()
    FULL = auto()


class Budget:
    """What a turn may deliver at most, and then what it did not; less than nothing if an entry was larger."""

    __slots__ = ("messages", "size_bytes")

    def __init__(self, messages: int, size_bytes: int) -> None:
        self.messages = messages
        self.size_bytes = size_bytes


class Dispatcher(Protocol):
    consumers: list[Consumer]
    settings: SubscriptionSettings

    def suits(self, consumer: Consumer) -> bool:
        """Whether a consumer of this kind wants to share as those do who are attached."""

    def attach(self, consumer: Consumer) -> None:
        """Raises if there is no place for it."""

    def detach(self, consumer: Consumer) -> None:
        """What it holds goes to others."""

    def took_more(self, consumer: Consumer) -> None:
        """A consumer has new permits, or its connection is writable again."""

    def turn(self, budget: Budget) -> Outcome: ...

    def acked(self, owner: Consumer, messages: int, done: Sequence[tuple[int, int]]) -> bool:
        """So many messages that `owner` held are acknowledged.

        `done` are the entries of which none is left, by offset and hash; it holds them no more.  True if that
        allows something to be delivered that waited.
        """

    def passing(self, end: int) -> None:
        """Everything below `end` is about to be acknowledged, whoever holds it."""

    def redeliver(self, consumer: Consumer, offsets: Sequence[int] | None) -> None:
        """Deliver entries again that `consumer` holds: those at `offsets`, or all."""

    def give_back(self, offsets: Sequence[int]) -> None:
        """Deliver entries again, whoever holds them: a transaction that had acknowledged them, or messages in
        them, is about to be aborted."""

    def restart(self) -> None:
        """The cursor was set elsewhere: forget what was delivered and begin there."""

    def close(self) -> None:
        """Stop for good."""
