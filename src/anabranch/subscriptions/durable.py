"""A durable subscription: its cursor, what is known about it, and how much of that is kept.

    mark_delete     the committed offset of the group of that name          __consumer_offsets
    acked ahead     chunks of the cursor                                    __subscription_state
    document        kind, properties, when it was made                      __subscription_state

`PositionStore` is where those are kept; the cluster gives one.  What it may find after a crash:

    chunks are written before the position and dropped after it, so that nothing acknowledged is delivered
    again; but in a reset they are dropped before it is written, so that nothing is skipped.

The group is Kafka's too.  A Kafka client may have moved its committed offset while nobody was attached.
Forward, and what was acknowledged ahead still is; back, and all of it is to be read again.  To tell one from
the other after a restart the store keeps beside the chunks a `floor`, which no position of our own is above,
and knows our own positions from others.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from anabranch.base.errors import AnabranchError, Conflict, NotFound
from anabranch.subscriptions.cursor import Cursor


class CursorName(NamedTuple):
    """Which cursor: topics go by their Kafka names."""

    subscription: str
    topic: str
    partition: int


class SubscriptionDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a subscription besides how far it has got."""

    created_ms: int
    kind: str = ""
    """The kind its consumers last were of; empty before the first."""
    properties: dict[str, str] = {}
    is_replicated: bool = False


class StoredSubscription(NamedTuple):
    """A subscription as the store has it."""

    document: SubscriptionDocument
    position: int
    """The group's committed offset."""
    is_own: bool
    """Whether it was committed by `PositionStore.write_positions`, and not by a Kafka client."""
    floor: int | None
    chunks: Mapping[int, bytes]


class ChunkChanges(NamedTuple):
    """What is to be written of one cursor's chunks, in one go."""

    name: CursorName
    put: Mapping[int, bytes]
    drop: Sequence[int] = ()
    floor: int | None = None


class GroupInUse(Conflict):
    """The members of a Kafka group of that name read the topic; a subscription cannot, at the same time."""


class SubscriptionGone(NotFound):
    """It was deleted."""


class PositionStore(Protocol):
    """Where durable subscriptions are kept.  A method returns when what it was told will be found again."""

    async def of_topic(self, topic: str, partition: int) -> dict[str, StoredSubscription]:
        """The durable subscriptions of a partition; waits until all of them are known."""

    async def position(self, name: CursorName) -> int | None:
        """The committed offset of the group.  GroupInUse if members of it read the topic."""

    async def claim(self, name: CursorName) -> None:
        """Consumers attach: from now on the members of the group commit nothing for the topic."""

    async def release(self, name: CursorName) -> None:
        """They have left."""

    async def write_document(self, name: CursorName, document: SubscriptionDocument, *, new: bool) -> None:
        """`new`: whatever is left of an earlier one of the name goes."""

    async def write_chunks(self, changes: Sequence[ChunkChanges]) -> None: ...

    async def write_positions(self, positions: Mapping[CursorName, int]) -> dict[CursorName, AnabranchError]:
        """Those that were refused, and why: GroupInUse, UnknownTopic."""

    async def delete(self, name: CursorName) -> None: ...

    def shard_of(self, subscription: str) -> int:
        """Where it is kept: what has the same is written together."""


class SnapshotStore(Protocol):
    """Where snapshots of what a partition's producers have sent are kept."""

    async def snapshot_of(self, topic: str, partition: int) -> bytes | None:
        """The last one, if it is of this topic and not of one that had its name before."""

    async def write_snapshot(self, topic: str, partition: int, snapshot: bytes | None) -> None:
        """None: there is none any more.  TooLarge if it does not fit a record."""


class DurableCursor:
    """A cursor that is kept.  `Positions` makes them and `Flushing` writes them."""

    __slots__ = (
        "attachments",
        "cursor",
        "document",
        "floor",
        "is_deleted",
        "is_own",
        "kept",
        "name",
        "saved",
        "stale",
    )

    def __init__(self, name: CursorName, stored: StoredSubscription) -> None:
        """Corrupt if its chunks are."""
        self.name = name
        self.document = stored.document
        self.saved = stored.position
        """The position that is kept."""
        self.is_own = stored.is_own
        """Whether that is of our own; one of a Kafka client is written again before anything else is."""
        self.kept = set(stored.chunks)
        """The chunks that are kept."""
        self.floor = stored.floor
        self.attachments = 0
        """Of consumers, one or several; while there are any the group's offset is ours alone."""
        self.is_deleted = False
        was_moved_back = not stored.is_own and stored.floor is not None and stored.position < stored.floor
        self.stale: set[int] = set()
        """Chunks that are kept and do not count, since the group was moved back: to go before others come."""
        self.cursor = Cursor.restore(stored.position, () if was_moved_back else stored.chunks.items())
        if was_moved_back:
            self._moved_back()

    def sighted(self, position: int, log_start: int, log_end: int) -> None:
        """The committed offset is at `position`, where a Kafka client may have put it, whatever it meant."""
        if position < self.saved:
            self.cursor.reset(position)
            self._moved_back()
        elif position > self.saved:
            self.cursor.ack_up_to(position)
        if position != self.saved:
            self.saved = position
            self.is_own = False
        self.fit(log_start, log_end)

    def fit(self, log_start: int, log_end: int) -> None:
        """The log begins and ends so: what is gone is not to be read, what comes is not acknowledged."""
        if self.cursor.cut(log_end):  # a log that lost its end: what is kept must not outlive it
            self._moved_back()
            self.cursor.not_kept(self.stale)
        self.cursor.ack_up_to(log_start)

    def _moved_back(self) -> None:
        self.stale |= self.kept
        self.kept.clear()

    @property
    def is_dirty(self) -> bool:
        """Whether what is kept is not what is."""
        mark = self.cursor.mark_delete
        return (
            mark != self.saved
            or self.cursor.has_changed()
            or bool(self.stale)
            or bool(self.kept and self.floor != mark)
        )
