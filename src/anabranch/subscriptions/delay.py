"""Delayed messages of one partition: which offset becomes due when.

    Delays      the partition's: (deliver at, offset) of every delayed entry that somebody has read.  The
                nearest few thousand are in memory, the rest is on disk (`delay_files`), so that neither their
                number nor the time they wait costs memory; of each there is one bit besides
    DelayView   a subscription's: which of them it waits for, one bit each

A subscription reads on over messages that are to wait, and puts them aside:

    view.add(offset, deliver_at_ms)
    view.due(now_ms, limit) -> offsets whose time has come, each once: to be read again and delivered
    view.next_due_ms()      -> when to ask again; None if it waits for nothing

The log remains the truth.  What is on disk survives a restart, and a view may begin with what waits from its
cursor on (`Delays.view`); then reading asks `holds` before it delivers in passing.  What a crash took is
found by the reading that goes on there.  What cannot be read now is tried again a second later, and the rest
goes on meanwhile.  A pair whose entry was acknowledged or removed meanwhile brings an
offset that is read for nothing, and that is all.
"""

import heapq
import logging
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Protocol

from pyroaring import BitMap64

from anabranch.base.disk import Disk
from anabranch.base.errors import AnabranchError
from anabranch.base.seldom import Seldom
from anabranch.log.paths import partition_name
from anabranch.subscriptions.delay_files import DelayFiles, Extent

log = logging.getLogger(__name__)
_unreadable = Seldom(log, 10.0)

_IN_MEMORY = 16_384  # pairs; then all but the nearest go to the disk
_NEAREST = 4_096
_AT_ONCE = 4_096  # pairs that one call moves; more that are due wait for the next
_AGAIN_MS = 1_000  # until a file that could not be read is tried again


class DelayIndex(Protocol):
    """What a subscription needs of it."""

    def add(self, offset: int, deliver_at_ms: int) -> None:
        """The entry at `offset` was read and is to wait."""

    def due(self, now_ms: int, limit: int) -> list[int]:
        """At most `limit` entries whose time has come, each given once, in the order of the log."""

    def next_due_ms(self) -> int | None:
        """When something may be due; None if nothing is waited for."""

    def clear(self) -> None:
        """Reading goes elsewhere (a seek): nothing is put aside any more."""

    def __len__(self) -> int:
        """How many are put aside (msgDelayed of the stats)."""


class Delays:
    __slots__ = ("_extents", "_files", "_known", "_near", "_partition", "_passed_ms", "_room", "_views")

    def __init__(self, disk: Disk, folder: Path, now_ms: int) -> None:
        self._files = DelayFiles(disk, folder)
        self._partition = partition_name(folder)
        self._near: list[tuple[int, int]] = []  # a heap of (deliver at, offset)
        self._known = BitMap64()  # offsets in memory and on disk
        self._passed_ms = now_ms  # what was due by then has been given to the views
        self._room = _IN_MEMORY
        self._views: list[DelayView] = []
        self._extents: list[tuple[int, int, Extent]] = []  # a heap of (next time, tie, extent)
        for extent in self._files.load(now_ms):
            self._push(extent)
            for offsets in extent.offsets():
                self._known.update(offsets)

    def __len__(self) -> int:
        return len(self._known)

    def view(self, known_from: int | None = None) -> "DelayView":
        """A subscription's view; it waits for all that is known from `known_from` on, if that is given."""
        waiting = BitMap64()
        if known_from is not None:
            waiting = self._known.copy()
            waiting.remove_range(0, known_from)
        view = DelayView(self, waiting)
        self._views.append(view)
        return view

    def drop(self, view: "DelayView") -> None:
        if view in self._views:
            self._views.remove(view)

    def close(self) -> None:
        """Keep what is in memory, for the next start."""
        try:
            if self._near:
                self._files.write(sorted(self._near))
        except (AnabranchError, OSError) as error:
            log.warning(
                "%s: delayed messages could not be stored, the next start reads the log: %s",
                self._partition,
                error,
            )
        self._near.clear()
        self._files.close()

    # --- for views

    def add(self, offset: int, deliver_at_ms: int) -> bool:
        """Remember when an entry is due.  False if that has passed already."""
        if deliver_at_ms <= self._passed_ms:
            return False
        if offset not in self._known:
            self._known.add(offset)
            heapq.heappush(self._near, (deliver_at_ms, offset))
            if len(self._near) > self._room:
                self._spill()
        return True

    def next_ms(self) -> int | None:
        near = self._near[0][0] if self._near else None
        if not self._extents:
            return near
        far = self._extents[0][0]
        return far if near is None else min(near, far)

    def advance(self, now_ms: int) -> None:
        """Tell the views what has become due."""
        due = self._take(now_ms)
        if not due:
            return
        bits = BitMap64(due)
        self._known -= bits
        for view in self._views:
            view.has_come(bits)

    # --- how it is done

    def _take(self, now_ms: int) -> list[int]:
        """Offsets whose time has come, the earliest first, not too many."""
        due: list[int] = []
        near = self._near
        while near and near[0][0] <= now_ms and len(due) < _AT_ONCE:
            due.append(heapq.heappop(near)[1])
        while self._extents and self._extents[0][0] <= now_ms and len(due) < _AT_ONCE:
            extent = heapq.heappop(self._extents)[2]
            try:
                due += extent.take(now_ms, _AT_ONCE - len(due))
            except OSError as error:
                _unreadable.warning(
                    "%s: delayed messages cannot be read, and come later: %s", self._partition, error
                )
                heapq.heappush(self._extents, (now_ms + _AGAIN_MS, id(extent), extent))
                continue
            if len(extent):
                self._push(extent)
            else:
                self._files.used_up(extent)
        if len(due) < _AT_ONCE:
            self._passed_ms = max(self._passed_ms, now_ms)
        return due

    def _push(self, extent: Extent) -> None:
        heapq.heappush(self._extents, (extent.next_ms, id(extent), extent))

    def _spill(self) -> None:
        """Move all but the nearest to the disk."""
        self._near.sort()
        far = self._near[_NEAREST:]
        del self._near[_NEAREST:]
        try:
            self._push(self._files.write(far))
            self._room = _IN_MEMORY
        except (AnabranchError, OSError) as error:  # a full disk is no reason to deliver them early
            self._near += far
            self._room = len(self._near) + _IN_MEMORY
            log.warning(
                "%s: delayed messages stay in memory, storing them failed: %s", self._partition, error
            )


class DelayView:
    """What one subscription waits for."""

    __slots__ = ("_delays", "_given", "_ready", "_waiting")

    def __init__(self, delays: Delays, waiting: BitMap64) -> None:
        self._delays = delays
        self._waiting = waiting
        self._ready = BitMap64()  # due, and not asked for yet
        self._given = BitMap64()  # asked for, and maybe ahead of where the subscription reads

    def __len__(self) -> int:
        """How many are put aside (msgDelayed of the stats)."""
        return len(self._waiting) + len(self._ready)

    def holds(self, offset: int) -> bool:
        """Whether the entry is put aside, or has been given out: it is not to be delivered in passing."""
        return offset in self._waiting or offset in self._ready or offset in self._given

    def has_given(self, offset: int) -> bool:
        return offset in self._given

    def add(self, offset: int, deliver_at_ms: int) -> None:
        """The entry at `offset` was read and is to wait."""
        if self._delays.add(offset, deliver_at_ms):
            self._waiting.add(offset)
        else:
            self._ready.add(offset)

    def due(self, now_ms: int, limit: int) -> list[int]:
        """At most `limit` entries whose time has come, each given once, in the order of the log."""
        self._delays.advance(now_ms)
        if not self._ready:
            return []
        given = list(islice(self._ready, limit))
        bits = BitMap64(given)
        self._ready -= bits
        self._given |= bits
        return given

    def next_due_ms(self) -> int | None:
        """When something may be due; None if nothing is waited for."""
        if self._ready:
            return 0
        return self._delays.next_ms() if self._waiting else None

    def passed(self, offset: int) -> None:
        """Reading has come to `offset`: what was given out below it is not met again."""
        if self._given and self._given.min() < offset:
            self._given.remove_range(0, offset)

    def rewound(self) -> None:
        """Reading goes back to the mark, and meets again what was given out and is not acknowledged."""
        self._given.clear()

    def clear(self) -> None:
        """Reading goes elsewhere (a seek): nothing is put aside any more."""
        self._waiting.clear()
        self._ready.clear()
        self._given.clear()

    def close(self) -> None:
        self._delays.drop(self)

    def has_come(self, due: BitMap64) -> None:
        """These have become due for all; some of them may be waited for here."""
        if self._waiting:
            mine = self._waiting & due
            if mine:
                self._waiting -= mine
                self._ready |= mine

    def __iter__(self) -> Iterator[int]:
        """What is put aside, in the order of the log."""
        yield from self._waiting | self._ready
