"""The durable subscriptions of the topics that are open: found, made, kept and deleted.

    cursors = await positions.of_topic("orders", 0)             # {subscription: DurableCursor}
    cursor = await positions.create(CursorName("s", "orders", 0), document, offset)
    cursor.cursor.ack(17, 18); positions.touched(cursor)        # kept within a second
    await positions.save(cursor)                                # kept when it returns: an ack receipt
    await positions.reset(cursor, 4)                            # seek
    await positions.attached(cursor), positions.detached(cursor)
    await positions.close(cursor)                               # kept, and not ours any more

    data = await positions.snapshots.snapshot_of("orders", 0)   # of what producers have sent

A subscription has one `DurableCursor` at a time: whoever asks again gets the same until it is closed.
How and when they are written is `Flushing`'s.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import TypeVar

import msgspec

from anabranch.base.errors import AnabranchError, NotOwner, UnknownTopic
from anabranch.base.turns import Turns
from anabranch.subscriptions.durable import (
    CursorName,
    DurableCursor,
    GroupInUse,
    PositionStore,
    SnapshotStore,
    StoredSubscription,
    SubscriptionDocument,
    SubscriptionGone,
)
from anabranch.subscriptions.flushing import Flushing

_Key = TypeVar("_Key", bound=Hashable)


class Positions:
    def __init__(
        self,
        store: PositionStore,
        snapshots: SnapshotStore,
        bounds: Callable[[str, int], tuple[int, int]],
    ) -> None:
        """`bounds` are where the log of a partition that is served here begins and ends."""
        self.snapshots = snapshots
        self._store = store
        self._bounds = bounds
        self._flushing = Flushing(store)
        self._open: dict[tuple[str, int], dict[str, DurableCursor]] = {}
        self._making = Turns()
        self._attached: Counter[tuple[str, str]] = Counter()  # subscription and topic, over partitions
        self._names: Counter[str] = Counter()  # subscriptions, over all partitions that are open

    # --- finding and making

    async def of_topic(self, topic: str, partition: int) -> dict[str, DurableCursor]:
        """Every durable subscription of a partition, by its name."""
        stored = await self._store.of_topic(topic, partition)
        for subscription, found in stored.items():
            if subscription not in self._open.get((topic, partition), {}):
                self._opened(DurableCursor(CursorName(subscription, topic, partition), found))
        cursors = dict(self._open.get((topic, partition), {}))
        for cursor in cursors.values():
            if cursor.stale:  # before anything is read that could be taken for acknowledged after a crash
                with suppress(GroupInUse):  # they go all the same, and the position is the members' to keep
                    await self._flushing.save(cursor)
            elif cursor.is_dirty:
                self._flushing.touched(cursor)
        return cursors

    def _opened(self, cursor: DurableCursor) -> None:
        cursor.fit(*self._bounds(cursor.name.topic, cursor.name.partition))
        self._open.setdefault(cursor.name[1:], {})[cursor.name.subscription] = cursor
        self._names[cursor.name.subscription] += 1

    async def create(self, name: CursorName, document: SubscriptionDocument, offset: int) -> DurableCursor:
        """A subscription that starts at `offset`, or where a Kafka group of its name has got to.

        One that is there already is given as it is.  GroupInUse if the group has members that read the topic.
        """
        async with self._making.of(name):
            there = self._open.get(name[1:], {}).get(name.subscription)
            return there or await self._create(name, document, offset)

    async def _create(self, name: CursorName, document: SubscriptionDocument, offset: int) -> DurableCursor:
        position = await self._store.position(name)
        start = offset if position is None else position
        await self._store.write_document(name, document, new=True)
        for refusal in (await self._store.write_positions({name: start})).values():
            raise refusal
        made = DurableCursor(name, StoredSubscription(document, start, True, None, {}))
        self._opened(made)
        return made

    async def delete(self, cursor: DurableCursor) -> None:
        """Unsubscribe: nothing of it is left, nor of the group's offset on the topic."""
        await self._flushing.delete(cursor)
        self._forget(cursor)

    async def set_properties(self, cursor: DurableCursor, properties: Mapping[str, str]) -> None:
        await self._write_document(cursor, properties=dict(properties))

    async def set_kind(self, cursor: DurableCursor, kind: str) -> None:
        """The kind of its consumers, so that it is known when nobody is attached."""
        if kind != cursor.document.kind:
            await self._write_document(cursor, kind=kind)

    async def _write_document(self, cursor: DurableCursor, **changes: object) -> None:
        document = msgspec.structs.replace(cursor.document, **changes)
        await self._store.write_document(cursor.name, document, new=False)
        cursor.document = document

    # --- keeping

    def touched(self, cursor: DurableCursor) -> None:
        """Something was acknowledged: it is kept a second later at most."""
        self._flushing.touched(cursor)

    async def save(self, cursor: DurableCursor) -> None:
        """Return when everything acknowledged so far is kept."""
        await self._flushing.save(cursor)

    async def reset(self, cursor: DurableCursor, offset: int) -> None:
        """Begin again at `offset`, forwards or back.  The cursor moves when that is kept."""
        await self._flushing.reset(cursor, offset)

    # --- coming and going

    async def attached(self, cursor: DurableCursor) -> None:
        """The first consumer attaches: see where a Kafka client may have left the group, then keep it away.

        SubscriptionGone, GroupInUse.
        """
        try:
            await self._store.claim(cursor.name)
            await self._flushing.sight(cursor, self._bounds(cursor.name.topic, cursor.name.partition))
        except BaseException as error:
            if isinstance(error, SubscriptionGone):
                self._forget(cursor)
            if not cursor.attachments:
                await self._release(cursor)
            raise
        cursor.attachments += 1
        self._attached[cursor.name[:2]] += 1

    async def detached(self, cursor: DurableCursor) -> None:
        """The last consumer is gone: keep where it has got to, then let Kafka's clients have the group."""
        try:
            await self._flushing.save(cursor)
        finally:
            self._let_go(cursor, min(1, cursor.attachments))
            if not cursor.attachments:
                await self._release(cursor)

    async def _release(self, cursor: DurableCursor) -> None:
        with suppress(AnabranchError):  # it is over with the epoch of the partition's leader
            await self._store.release(cursor.name)

    async def close(self, cursor: DurableCursor) -> None:
        """The topic is unloaded: keep what is not kept yet, and let go.

        A position that Kafka's clients have moved since the last consumer went is theirs to keep.
        """
        was_attached = cursor.attachments
        try:
            if was_attached or cursor.is_own:
                await self._flushing.save(cursor)
        finally:
            self._forget(cursor)
            if was_attached:
                await self._release(cursor)

    async def flush(self) -> None:
        """Keep what was acknowledged so far: others are about to serve these topics."""
        await self._flushing.flush()

    async def stop(self) -> None:
        """Keep everything; for a clean stop."""
        await self._flushing.stop()

    def topic_deleted(self, topic: str) -> None:
        """Its subscriptions are no more; the store forgets them by itself."""
        for place in [place for place in self._open if place[0] == topic]:
            for cursor in self._open[place].values():
                cursor.is_deleted = True
            self.abandon(*place)

    def abandon(self, topic: str, partition: int) -> None:
        """Let go of a partition's subscriptions without keeping anything."""
        for cursor in list(self._open.get((topic, partition), {}).values()):
            self._forget(cursor)

    # --- asking

    def is_attached(self, subscription: str, topic: str) -> bool:
        """Whether consumers of the subscription are attached to some partition of `topic`."""
        return (subscription, topic) in self._attached

    def is_open(self, subscription: str) -> bool:
        """Whether a topic is open that has such a subscription."""
        return subscription in self._names

    def moved(self, name: CursorName, position: int) -> None:
        """The committed offset is now at `position`, where a Kafka client has put it."""
        cursor = self.find(name)
        if cursor is not None and not cursor.attachments and position != cursor.saved:
            with suppress(NotOwner, UnknownTopic):  # whoever attaches next looks again
                cursor.sighted(position, *self._bounds(name.topic, name.partition))

    def find(self, name: CursorName) -> DurableCursor | None:
        """The cursor, if its topic is open."""
        return self._open.get(name[1:], {}).get(name.subscription)

    def _forget(self, cursor: DurableCursor) -> None:
        self._let_go(cursor, cursor.attachments)
        self._flushing.forget(cursor)
        cursors = self._open.get(cursor.name[1:], {})
        if cursors.get(cursor.name.subscription) is cursor:
            del cursors[cursor.name.subscription]
            _less(self._names, cursor.name.subscription, 1)
            if not cursors:
                del self._open[cursor.name[1:]]

    def _let_go(self, cursor: DurableCursor, attachments: int) -> None:
        cursor.attachments -= attachments
        _less(self._attached, cursor.name[:2], attachments)


def _less(counts: "Counter[_Key]", key: _Key, by: int) -> None:
    counts[key] -= by
    if counts[key] <= 0:
        del counts[key]
