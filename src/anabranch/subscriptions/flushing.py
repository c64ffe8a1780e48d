"""Cursor flushing: when cursors are written and in which order, so that a crash at any point costs nothing.

    touched     written a second later at most, together with all others that were touched meanwhile
    save        written at once, together with all others that somebody waits for

A write of a cursor has three steps, each done when the one before it is:

    1  the chunks that changed, and the floor   what was acknowledged ahead is not delivered again
    2  the position                             all below is acknowledged
    3  chunks that the position has passed go

and a reset has two, the other way round: all chunks go, then the position is written.  See `durable`.

Cursors of one shard are written together, one batch per step.  Writes take turns: a save that comes while
another is under way goes with the next one, as do all others that came meanwhile.  What could not be written
is tried again with the next; whoever waited for it is told.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple

from anabranch.base.errors import AnabranchError
from anabranch.base.seldom import Seldom
from anabranch.subscriptions.durable import (
    ChunkChanges,
    CursorName,
    DurableCursor,
    PositionStore,
    SubscriptionGone,
)

log = logging.getLogger(__name__)
_failed = Seldom(log, 10.0)

FLUSH_AFTER_S = 1.0
"""How long an acknowledgement may be lost by a crash, where no receipt was asked for."""


class _Snapshot(NamedTuple):
    """A cursor as it is when it is written; it goes on while that is done."""

    cursor: DurableCursor
    mark: int
    chunks: dict[int, bytes]
    passed: list[int]


class Flushing:
    def __init__(self, store: PositionStore) -> None:
        self._store = store
        self._dirty: dict[DurableCursor, None] = {}
        self._asked: dict[DurableCursor, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- who wants what

    def touched(self, cursor: DurableCursor) -> None:
        self._dirty[cursor] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self._due)

    async def save(self, cursor: DurableCursor) -> None:
        """Return when the cursor is kept as it is now, or raise why it is not."""
        if not cursor.is_dirty and not self._writing.locked():
            return
        waiting = self._asked.get(cursor)
        if waiting is None:
            waiting = self._asked[cursor] = asyncio.get_running_loop().create_future()
            if len(self._asked) == 1:
                self._run(self._write_asked())
        await asyncio.shield(waiting)

    async def reset(self, cursor: DurableCursor, offset: int) -> None:
        """Begin again at `offset`.  SubscriptionGone."""
        async with self._writing:
            if cursor.is_deleted:
                raise SubscriptionGone(f"the subscription {cursor.name.subscription!r} was deleted")
            await self._make_own(cursor)
            drop = sorted(cursor.kept | cursor.stale)
            if drop:
                await self._store.write_chunks([ChunkChanges(cursor.name, {}, drop, offset)])
                cursor.cursor.not_kept(cursor.kept)
                cursor.kept.clear()
                cursor.stale.clear()
                cursor.floor = offset
            for refusal in (await self._store.write_positions({cursor.name: offset})).values():
                raise refusal
            cursor.cursor.reset(offset)
            cursor.saved = offset

    async def sight(self, cursor: DurableCursor, bounds: tuple[int, int]) -> None:
        """See where a Kafka client may have moved the group.  SubscriptionGone, GroupInUse."""
        async with self._writing:
            position = await self._store.position(cursor.name)
            if position is None or cursor.is_deleted:
                raise SubscriptionGone(f"the subscription {cursor.name.subscription!r} was deleted")
            cursor.sighted(position, *bounds)
            await self._make_own(cursor)
            if cursor.is_dirty:
                self.touched(cursor)

    async def delete(self, cursor: DurableCursor) -> None:
        """Nothing of it is kept any more."""
        async with self._writing:
            await self._store.delete(cursor.name)
            cursor.is_deleted = True

    def forget(self, cursor: DurableCursor) -> None:
        """It is deleted, or closed and kept: not to be written any more."""
        self._dirty.pop(cursor, None)

    async def flush(self) -> None:
        """Write what is touched now instead of a second later."""
        await self._write_dirty()

    async def stop(self) -> None:
        """Write everything that is not kept."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._write_dirty()
        if self._timer is not None:
            self._timer.cancel()

    # --- turns

    def _due(self) -> None:
        self._timer = None
        self._run(self._write_dirty())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_dirty(self) -> None:
        async with self._writing:
            cursors, self._dirty = self._dirty, {}
            await self._write(cursors)

    async def _write_asked(self) -> None:
        async with self._writing:
            asked, self._asked = self._asked, {}
            for cursor in asked:
                self._dirty.pop(cursor, None)
            failures: dict[DurableCursor, BaseException] = {}
            try:
                failures.update(await self._write(asked))
            except BaseException as error:  # a mistake of ours, or the end: nobody may wait forever
                failures = dict.fromkeys(asked, error)
                raise
            finally:
                for cursor, waiting in asked.items():
                    _tell(waiting, failures.get(cursor))

    async def _write(self, cursors: Iterable[DurableCursor]) -> dict[DurableCursor, AnabranchError]:
        """Write `cursors`, all shards at once: one may be slow; those that could not be, and why."""
        shards: dict[int, list[DurableCursor]] = {}
        failures: dict[DurableCursor, AnabranchError] = {}
        for cursor in cursors:
            if not cursor.is_deleted:
                shards.setdefault(self._store.shard_of(cursor.name.subscription), []).append(cursor)
        outcomes = await asyncio.gather(*map(self._write_shard, shards.values()), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            failures.update(outcome)
        for cursor, error in failures.items():
            if not cursor.is_deleted:
                _failed.warning("the position of %s is not kept yet: %s", cursor.name, error)
                self.touched(cursor)
        return failures

    # --- one shard

    async def _make_own(self, cursor: DurableCursor) -> None:
        """The position is a Kafka client's: write it again as ours, without the chunks that do not count."""
        if cursor.is_own:
            return
        if cursor.stale or (cursor.kept and cursor.floor != cursor.saved):
            drop = sorted(cursor.stale)
            await self._store.write_chunks([ChunkChanges(cursor.name, {}, drop, cursor.saved)])
            cursor.stale.clear()
            cursor.floor = cursor.saved
        for refusal in (await self._store.write_positions({cursor.name: cursor.saved})).values():
            raise refusal
        cursor.is_own = True

    async def _write_shard(self, cursors: list[DurableCursor]) -> dict[DurableCursor, AnabranchError]:
        failures: dict[DurableCursor, AnabranchError] = {}
        for cursor in cursors:
            try:
                await self._make_own(cursor)
            except (AnabranchError, OSError) as error:
                failures[cursor] = _named(error)  # members of its group read, which is nothing to others
        taken = [_take(cursor) for cursor in cursors if cursor not in failures]
        try:
            await self._store.write_chunks([_added(snapshot) for snapshot in taken if _adds(snapshot)])
        except (AnabranchError, OSError) as error:
            for snapshot in taken:
                snapshot.cursor.cursor.not_kept(snapshot.chunks)
            return {**dict.fromkeys(cursors, _named(error)), **failures}
        for snapshot in taken:
            _is_added(snapshot)
        moved = {
            snapshot.cursor.name: snapshot.mark
            for snapshot in taken
            if snapshot.mark != snapshot.cursor.saved
        }
        refused: dict[CursorName, AnabranchError] = {}
        try:
            if moved:
                refused.update(await self._store.write_positions(moved))
        except (AnabranchError, OSError) as error:
            refused = dict.fromkeys(moved, _named(error))
        for snapshot in taken:
            if snapshot.cursor.name in refused:
                failures[snapshot.cursor] = refused[snapshot.cursor.name]
            else:
                snapshot.cursor.saved = snapshot.mark
        await self._clear([snapshot for snapshot in taken if snapshot.cursor not in failures])
        return failures

    async def _clear(self, taken: list[_Snapshot]) -> None:
        """The third step.  If it fails the next one does it."""
        changes = [ChunkChanges(cursor.name, {}, passed) for cursor, _, _, passed in taken if passed]
        try:
            if changes:
                await self._store.write_chunks(changes)
        except (AnabranchError, OSError) as error:
            _failed.warning("chunks that were passed are still kept: %s", error)
            return
        for snapshot in taken:
            snapshot.cursor.kept.difference_update(snapshot.passed)


def _take(cursor: DurableCursor) -> _Snapshot:
    chunks = cursor.cursor.take_changed()
    passed = [chunk for chunk in cursor.kept if not cursor.cursor.has_chunk(chunk)]
    return _Snapshot(cursor, cursor.cursor.mark_delete, chunks, passed)


def _adds(snapshot: _Snapshot) -> bool:
    """Whether there is something to write before the position."""
    cursor = snapshot.cursor
    return bool(snapshot.chunks or cursor.stale or (cursor.kept and cursor.floor != snapshot.mark))


def _added(snapshot: _Snapshot) -> ChunkChanges:
    drop = sorted(snapshot.cursor.stale - snapshot.chunks.keys())
    return ChunkChanges(snapshot.cursor.name, snapshot.chunks, drop, snapshot.mark)


def _is_added(snapshot: _Snapshot) -> None:
    cursor = snapshot.cursor
    if _adds(snapshot):
        cursor.kept.update(snapshot.chunks)
        cursor.stale.clear()
        cursor.floor = snapshot.mark


def _named(error: Exception) -> AnabranchError:
    return error if isinstance(error, AnabranchError) else AnabranchError(str(error))


def _tell(waiting: "asyncio.Future[None]", error: BaseException | None) -> None:
    if waiting.done():
        return
    if error is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(error)
        waiting.exception()  # whoever waited may have gone
