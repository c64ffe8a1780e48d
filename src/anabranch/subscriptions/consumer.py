"""A consumer as its subscription sees it: who it is, how much it may be sent, what it was sent.

permits   messages the client has room for.  A delivery takes one per message, and may overshoot by a
          batch, since entries are never cut; a FLOW brings new ones
pending   entries delivered and not acknowledged: offset -> (messages, hash of the key or NO_HASH)
unacked   messages in them that are not acknowledged
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from anabranch.subscriptions.channel import Channel

NO_HASH = -1


class HashRange(NamedTuple):
    """Hashes `start` to `last`, both included, as the protocol has them."""

    start: int
    last: int


class KeySharing(NamedTuple):
    """How a consumer of a key_shared subscription wants to share keys (keySharedMeta)."""

    ranges: Sequence[HashRange] | None = None
    """Sticky: the hashes that are this consumer's.  None: split among all automatically."""
    allows_out_of_order: bool = False


class Consumer:
    __slots__ = (
        "address",
        "bytes_out",
        "channel",
        "client_version",
        "connected_since_ms",
        "epoch",
        "id",
        "is_attached",
        "is_blocked",
        "key_sharing",
        "last_acked_ms",
        "last_flow_ms",
        "last_sent_ms",
        "messages_acked",
        "messages_out",
        "messages_redelivered",
        "name",
        "pending",
        "permits",
        "priority",
        "properties",
        "reads_compacted",
        "unacked",
    )

    def __init__(
        self,
        id: int,
        name: str,
        channel: Channel,
        *,
        priority: int = 0,
        key_sharing: KeySharing | None = None,
        properties: Mapping[str, str] | None = None,
        address: str = "",
        client_version: str = "",
        connected_since_ms: int = 0,
        reads_compacted: bool = False,
    ) -> None:
        self.id = id
        self.name = name
        self.channel = channel
        self.priority = priority
        self.key_sharing = key_sharing or KeySharing()
        self.properties = properties or {}
        self.address = address
        self.client_version = client_version
        self.connected_since_ms = connected_since_ms
        self.reads_compacted = reads_compacted  # it wants the last message of every key only
        self.permits = 0
        self.unacked = 0
        self.is_attached = False
        self.is_blocked = False
        self.epoch = -1  # the client's own count of its redeliver requests, sent back with what follows one
        self.pending: dict[int, tuple[int, int]] = {}
        self.messages_out = self.bytes_out = self.messages_redelivered = self.messages_acked = 0
        self.last_flow_ms = self.last_sent_ms = self.last_acked_ms = 0

    def __repr__(self) -> str:
        return f"Consumer({self.id}, {self.name!r}, permits={self.permits}, unacked={self.unacked})"

    def can_take(self) -> bool:
        """Whether it may be sent anything now."""
        return self.permits > 0 and not self.is_blocked and self.channel.is_writable()
