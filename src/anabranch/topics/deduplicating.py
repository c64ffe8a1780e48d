"""Deduplication of a topic, switched on and off as its rules say, and kept.

    off ──on──> the snapshot is read, the log's tail replayed ──> on
    on  ──off─> the snapshot goes, nothing is remembered      ──> off

Switched on for the first time it begins with what comes from then on, as Pulsar's does, and writes that down
before it begins, so that a crash right after does not lose what came since.  A snapshot is taken every so
many entries and when the topic closes; what came after it is read back from the log.

What is in the log counts at once: a message that comes again is not stored twice, safe or not.  What is told
and what is kept waits until it is safe (below the high watermark): another leader may not have it.
"""

import asyncio
import logging

from anabranch.base.errors import AnabranchError, Corrupt
from anabranch.base.ids import TopicName
from anabranch.partition.entries import EntryReader
from anabranch.partition.partition import Partition
from anabranch.records.entries import Entry, read_metadata
from anabranch.topics.deduplication import (
    NO_SEQUENCE,
    Deduplication,
    Snapshot,
    decode,
    encode,
    last_sequence,
)
from anabranch.topics.publishing import Publishing
from anabranch.topics.surroundings import Surroundings

log = logging.getLogger(__name__)

_READ_BYTES = 256 << 10
_MS_IN_MINUTE = 60_000


class Deduplicating:
    def __init__(
        self,
        name: TopicName,
        index: int,
        partition: Partition,
        publishing: Publishing,
        around: Surroundings,
    ) -> None:
        self._topic = name.kafka
        self._index = index
        self._partition = partition
        self._publishing = publishing
        self._around = around
        self._turn = asyncio.Lock()  # switching and saving, one after the other
        self._task: asyncio.Task[None] | None = None
        publishing.on_stored = self._stored

    def last_sequence_id(self, producer: str) -> int:
        state = self._publishing.deduplication
        return NO_SEQUENCE if state is None else state.last_sequence_id(producer)

    def joined(self, producer: str) -> None:
        if self._publishing.deduplication is not None:
            self._publishing.deduplication.joined(producer)

    def left(self, producer: str) -> None:
        if self._publishing.deduplication is not None:
            self._publishing.deduplication.left(producer, self._around.clock.now_ms())

    # --- on and off

    async def follow(self, wanted: bool) -> None:
        """Switch it on or off, as the rules say."""
        async with self._turn:
            is_on = self._publishing.deduplication is not None
            if wanted and not is_on:
                await self._switch_on()
            elif is_on and not wanted:
                # First: switched on again with a snapshot that stayed, what is new would be a duplicate.
                await self._around.snapshots.write_snapshot(self._topic, self._index, None)
                self._publishing.deduplication = None

    def follow_soon(self, wanted: bool, producers: list[str]) -> None:
        """The rules changed while the topic is in use; `producers` are attached."""
        self._task = asyncio.ensure_future(self._follow_later(wanted, producers, self._task))

    async def _follow_later(
        self, wanted: bool, producers: list[str], before: "asyncio.Task[None] | None"
    ) -> None:
        if before is not None:
            await asyncio.wait((before,))
        try:
            await self.follow_now(wanted, producers)
        except (AnabranchError, OSError) as error:
            log.warning(
                "%s-%d: deduplication could not be switched, tried again: %s", self._topic, self._index, error
            )

    async def follow_now(self, wanted: bool, producers: list[str]) -> None:
        """As `follow_soon`; it is called again in case that the disk did not let us then."""
        before = self._publishing.deduplication
        try:
            await self.follow(wanted)
        finally:
            if self._publishing.deduplication is not before:
                for name in producers:
                    self.joined(name)

    async def settled(self) -> None:
        """Return when no switching is under way: a producer is told its last sequence id then."""
        if self._task is not None and not self._task.done():
            await asyncio.wait((self._task,))
        async with self._turn:  # which `follow_now` may have
            return

    async def safe(self) -> None:
        """Return when all that is known by now is safe.  NotOwner if another leader will have to say."""
        if self._publishing.deduplication is not None:
            unsafe = self._partition.acknowledgement(self._partition.log_end)
            if unsafe is not None:
                await unsafe

    async def _switch_on(self) -> None:
        now_ms = self._around.clock.now_ms()
        kept = await self._around.snapshots.snapshot_of(self._topic, self._index)
        snapshot = None
        if kept is not None:
            try:
                snapshot = decode(kept)
            except Corrupt as error:
                log.warning(
                    "%s: its deduplication snapshot is unreadable, deduplication begins anew: %s",
                    self._partition,
                    error,
                )
        if snapshot is not None and snapshot.offset > self._partition.log_end:
            log.warning(
                "%s: sequence ids are kept up to offset %d, the log ends at %d; all of it is read again",
                self._partition,
                snapshot.offset,
                self._partition.log_end,
            )
            snapshot = Snapshot(self._partition.log_start, {})
        if snapshot is None:
            snapshot = Snapshot(self._partition.log_end, {})
            await self._around.snapshots.write_snapshot(self._topic, self._index, encode(snapshot))
        state = Deduplication(snapshot.offset, snapshot.highest, now_ms)
        await self._replay(state)
        self._publishing.deduplication = state
        if state.changes:
            await self._save(state)

    async def _replay(self, state: Deduplication) -> None:
        """Read back what is in the log and not in the snapshot; not what Kafka's producers wrote there.

        Messages may come in meanwhile; the last look is followed by no wait, so that none is missed.
        """
        reader = EntryReader(self._partition, is_own_only=True)
        offset = max(state.covered, self._partition.log_start)
        while offset < reader.end:
            found = reader.read(offset, _READ_BYTES)
            if found.pending is not None:
                await found.pending
                continue
            now_ms = self._around.clock.now_ms()
            for entry in found.entries:
                _replay_entry(state, entry, now_ms)
            offset = found.next_offset
            if offset < reader.end:
                await asyncio.sleep(0)
        state.covered = max(state.covered, offset)

    # --- keeping

    def _stored(self) -> None:
        """Called after every write: is it time for a snapshot?"""
        state = self._publishing.deduplication
        if state is not None and state.changes >= self._around.upkeep().deduplication_entries_interval:
            state.changes = 0
            self._task = asyncio.ensure_future(self._save_later(state, self._task))

    async def _save_later(self, state: Deduplication, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait((before,))
        try:
            async with self._turn:
                if self._publishing.deduplication is state:
                    await self._save(state)
        except (AnabranchError, OSError) as error:  # the log is read from further back then
            log.warning(
                "%s-%d: sequence ids could not be stored, tried again: %s", self._topic, self._index, error
            )

    async def _save(self, state: Deduplication) -> None:
        upkeep = self._around.upkeep()
        before_ms = self._around.clock.now_ms() - upkeep.deduplication_inactivity_minutes * _MS_IN_MINUTE
        state.forget(before_ms, upkeep.deduplication_max_producers)
        snapshot = encode(state.take_snapshot())
        try:
            await self.safe()
            await self._around.snapshots.write_snapshot(self._topic, self._index, snapshot)
        except BaseException:
            state.changes += 1  # so that the next look tries again, though nothing comes in any more
            raise

    async def tend(self) -> None:
        """Now and then: keep what has changed, forget who was away for long."""
        async with self._turn:
            state = self._publishing.deduplication
            if state is None:
                return
            upkeep = self._around.upkeep()
            before_ms = self._around.clock.now_ms() - upkeep.deduplication_inactivity_minutes * _MS_IN_MINUTE
            state.forget(before_ms, upkeep.deduplication_max_producers)
            if state.changes:
                await self._save(state)

    async def close(self) -> None:
        """Keep what is to be kept; nothing is published any more."""
        await self.tend()

    def abandon(self) -> None:
        """The topic goes: nobody waits for what is under way."""
        self._publishing.on_stored = lambda: None


def _replay_entry(state: Deduplication, entry: Entry, now_ms: int) -> None:
    try:
        metadata = read_metadata(entry.payload)
    except Corrupt:
        return
    if metadata.num_chunks_from_msg and metadata.chunk_id < metadata.num_chunks_from_msg - 1:
        return
    name: str | bytes = metadata.producer_name
    if isinstance(name, bytes):
        return  # it is not UTF-8, and no producer can have that name
    last = last_sequence(metadata.sequence_id, entry.count, metadata.highest_sequence_id)
    state.replayed(name, last, entry.end, now_ms)
