"""A producer as its topic sees it: who it is, what it may, what it has sent.

The connection's side is a `ProducerChannel`; the server implements it and this package only calls it.
"""

import asyncio
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

from anabranch.base.rates import Meter


class AccessMode(IntEnum):
    """By Pulsar's numbers."""

    SHARED = 0
    EXCLUSIVE = 1  # refused while there is any other
    WAIT_FOR_EXCLUSIVE = 2  # waits until all others are gone
    EXCLUSIVE_WITH_FENCING = 3  # all others are closed, for good


class ProducerChannel(Protocol):
    def producer_waits(self, producer: "Producer") -> None:
        """It stands in line for exclusive access: PRODUCER_SUCCESS with producer_ready=false."""

    def close_producer(self, producer: "Producer") -> None:
        """CLOSE_PRODUCER to the client, which looks its topic up again; its sends are refused from now on."""

    async def is_alive(self) -> bool:
        """Whether the peer answers a ping; asked before a second producer of a name is refused."""


class Joined(NamedTuple):
    """What PRODUCER_SUCCESS says."""

    last_sequence_id: int  # -1 if the topic knows none
    topic_epoch: int | None


class Producer:
    __slots__ = (
        "access_mode",
        "address",
        "bytes_in",
        "channel",
        "chunked_messages",
        "client_version",
        "connected_since_ms",
        "epoch",
        "id",
        "is_closed",
        "is_encrypted",
        "is_named_by_client",
        "messages_in",
        "metadata",
        "meter",
        "name",
        "supports_partial",
        "topic_epoch",
        "waiting",
    )

    def __init__(
        self,
        id: int,
        name: str,
        channel: ProducerChannel,
        *,
        access_mode: AccessMode = AccessMode.SHARED,
        epoch: int = 0,
        topic_epoch: int | None = None,
        is_named_by_client: bool = False,
        is_encrypted: bool = False,
        metadata: Mapping[str, str] | None = None,
        address: str = "",
        client_version: str = "",
        connected_since_ms: int = 0,
        supports_partial: bool = False,
    ) -> None:
        """`topic_epoch` is the one it had exclusive access under before it lost its connection."""
        self.id = id
        self.name = name
        self.channel = channel
        self.access_mode = access_mode
        self.epoch = epoch
        self.topic_epoch = topic_epoch
        self.is_named_by_client = is_named_by_client
        self.is_encrypted = is_encrypted
        self.metadata = metadata or {}
        self.address = address
        self.client_version = client_version
        self.connected_since_ms = connected_since_ms
        self.supports_partial = supports_partial
        self.is_closed = False
        self.waiting: asyncio.Future[None] | None = None  # for its turn to be the only one
        self.messages_in = self.bytes_in = self.chunked_messages = 0
        self.meter = Meter(2, 0.0)

    def look(self, now_s: float) -> None:
        """Work out rates."""
        self.meter.look((self.messages_in, self.bytes_in), now_s)

    def succeeds(self, other: "Producer") -> bool:
        """Whether this is `other` again, after a reconnection that its connection does not know of."""
        return (
            self.name == other.name
            and self.id == other.id
            and self.channel is other.channel
            and self.epoch > other.epoch
        )
