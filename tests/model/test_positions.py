"""Keeping cursors, cut off at any write: nothing kept is delivered again, nothing unread is skipped.

A store of dictionaries takes the writes one after the other and stops at a given one, as if the process had
been killed there; what it has by then is what a restart finds.
"""

import random
from collections.abc import Mapping, Sequence

import pytest

from anabranch.base.errors import AnabranchError
from anabranch.subscriptions.cursor import CHUNK
from anabranch.subscriptions.durable import (
    ChunkChanges,
    CursorName,
    DurableCursor,
    StoredSubscription,
    SubscriptionDocument,
)
from anabranch.subscriptions.positions import Positions

NAME = CursorName("s", "orders", 0)
BASE = CHUNK - 30
END = CHUNK + 30
DOCUMENT = SubscriptionDocument(0)


class Killed(BaseException):
    """Nobody handles the end of the process."""


class Store:
    """Keeps what it was told, and is killed at its n-th write."""

    def __init__(self) -> None:
        self.left = 1 << 60
        self.writes = 0
        self.document = False
        self.committed: int | None = None
        self.is_own = True
        self.floor: int | None = None
        self.chunks: dict[int, bytes] = {}

    def found(self) -> "Store":
        """What a restart finds."""
        found = Store()
        found.document, found.committed, found.floor = self.document, self.committed, self.floor
        found.chunks = dict(self.chunks)
        found.is_own = self.is_own
        return found

    def _write(self) -> None:
        if self.writes >= self.left:
            raise Killed
        self.writes += 1

    async def of_topic(self, topic: str, partition: int) -> dict[str, StoredSubscription]:
        if not self.document or self.committed is None:
            return {}
        stored = StoredSubscription(DOCUMENT, self.committed, self.is_own, self.floor, dict(self.chunks))
        return {"s": stored}

    async def position(self, name: CursorName) -> int | None:
        return self.committed

    async def write_document(self, name: CursorName, document: SubscriptionDocument, *, new: bool) -> None:
        self._write()
        self.document = True
        if new:
            self.floor = None
            self.chunks.clear()

    async def claim(self, name: CursorName) -> None: ...

    async def release(self, name: CursorName) -> None: ...

    async def write_chunks(self, changes: Sequence[ChunkChanges]) -> None:
        for change in changes:
            self._write()
            for chunk in change.drop:
                self.chunks.pop(chunk, None)
            self.chunks.update(change.put)
            self.floor = self.floor if change.floor is None else change.floor

    async def write_positions(self, positions: Mapping[CursorName, int]) -> dict[CursorName, AnabranchError]:
        self._write()
        self.committed = positions[NAME]
        self.is_own = True
        return {}

    async def delete(self, name: CursorName) -> None:
        self._write()
        self.committed = None
        self._write()
        self.document = False
        self.floor = None
        self.chunks.clear()

    def shard_of(self, subscription: str) -> int:
        return 0

    async def snapshot_of(self, topic: str, partition: int) -> bytes | None:
        return None

    async def write_snapshot(self, topic: str, partition: int, snapshot: bytes | None) -> None: ...


class Life:
    """A subscription, and what may and must be acknowledged when it is found again."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.start(Store())
        self.acked: set[int] = set()  # as it is
        self.promised: set[int] = set()  # somebody was told
        self.allowed: set[int] = set()  # may be found, if a reset was cut off

    def start(self, store: Store) -> None:
        self.store = store
        self.positions = Positions(store, store, lambda topic, partition: (0, END))

    async def open(self) -> DurableCursor:
        found = (await self.positions.of_topic("orders", 0)).get("s")
        cursor = found or await self.positions.create(NAME, DOCUMENT, BASE)
        self.check(cursor)
        self.acked = self.promised = acked_of(cursor)
        self.allowed = set()
        return cursor

    def check(self, cursor: DurableCursor) -> None:
        now = acked_of(cursor)
        assert now >= self.promised, f"delivered again: {sorted(self.promised - now)}"
        assert now <= self.acked | self.allowed, f"skipped: {sorted(now - self.acked - self.allowed)}"

    async def act(self, cursor: DurableCursor) -> None:
        kind = self.chance.choice(("ack",) * 5 + ("up_to", "save", "save", "reset", "kafka"))
        offset = self.chance.randrange(BASE, END)
        if kind == "ack":
            end = min(END, offset + self.chance.choice((1, 1, 1, 4)))
            cursor.cursor.ack(offset, end)
            self.touched(cursor)
        elif kind == "up_to":
            cursor.cursor.ack_up_to(offset)
            self.touched(cursor)
        elif kind == "save":
            await self.positions.save(cursor)
            self.promised = self.acked
        elif kind == "reset":
            self.allowed = self.acked
            self.acked = set(range(BASE, offset))
            self.promised = self.promised & set(
                range(BASE, min(offset, cursor.saved))
            )  # cut off, what was ahead comes again
            await self.positions.reset(cursor, offset)
            self.promised, self.allowed = self.acked, set()
        else:
            await self.moved_by_kafka(cursor, offset)

    def touched(self, cursor: DurableCursor) -> None:
        self.acked = acked_of(cursor)
        self.positions.touched(cursor)

    async def moved_by_kafka(self, cursor: DurableCursor, offset: int) -> None:
        await self.positions.save(cursor)
        was, was_own = self.store.committed, self.store.is_own
        self.store.committed, self.store.is_own = offset, False
        assert was is not None
        below = set(range(BASE, offset))
        if was_own:
            self.acked = self.promised = self.acked | below if offset >= was else below
        else:  # back from where Kafka's clients had got to, or forward from where we had: nobody knows
            self.acked, self.promised = self.acked | below, below
        if self.chance.random() < 0.5:
            await self.positions.attached(cursor)
            await self.positions.detached(cursor)
            self.check(cursor)
            self.acked = self.promised = acked_of(cursor)
        else:
            raise Killed  # as good as any other time to be killed


def acked_of(cursor: DurableCursor) -> set[int]:
    return {offset for offset in range(BASE, END) if cursor.cursor.is_acked(offset)}


@pytest.mark.parametrize("seed", range(40))
async def test_cut_off_anywhere(seed: int) -> None:
    chance = random.Random(seed)
    life = Life(chance)
    for _ in range(25):
        life.store.left = life.store.writes + chance.randrange(12)
        try:
            await lives(life, chance.randrange(1, 20))
        except Killed:
            life.store.left = 0  # what is left of the dead process does nothing more
            life.start(life.store.found())
        else:
            life.store.left = 1 << 60
            await life.positions.stop()
            life.promised = life.acked


async def lives(life: Life, steps: int) -> None:
    cursor = await life.open()
    for _ in range(steps):
        await life.act(cursor)
