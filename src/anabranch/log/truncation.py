"""Truncation: a log's end is taken away, because the leader of a later epoch does not have it.

    before    00000 ▏▏▏▏▏▏▏▏▏   10000 ▏▏▏▏▏▏▏▏▏▏▏▏   20000 ▏▏▏▏▏
    cut                                     ^ 15000
    after     00000 ▏▏▏▏▏▏▏▏▏   10000 ▏▏▏▏▏          15000  (empty, what comes next goes here)

A batch that holds the offset goes whole, so the log may end below it.  Indexes, leader epochs, producers and
their snapshots, aborted transactions and a compacted view are cut with the log.

No byte of a file is ever written over.  The segment that is cut gets shorter and is sealed, the log goes
on in a new one.  So a `FileRange` that waits for a slow reader gives what was there when it was read or,
beyond the cut, an error that ends the connection.  A copy of what stays would do as well, but take as long
as the segment is large, and a new file of the same name would break connections that read below the cut.

Kills and power cuts.  Segments go from the newest on; then there is the new one; both are durable before the
old one is cut.  So a log that is opened in between ends at a batch beyond the cut, or at the cut: recovery
ends a segment where an empty one behind it begins.  This blocks for a sync or two, and a replica is cut once
in an election, if at all.

The recovery point goes down with the end.  Whoever keeps it in a checkpoint writes that down before anything
is appended: else a power cut could leave a log that is believed up to where the old end was.

If it raises, the disk refused, and some of it may be done: files and log no longer agree.  `cut_due` says so,
and nothing is appended until the log is cut again (`finish_cut`).
"""

import logging
from collections.abc import Sequence

from anabranch.base.disk import Disk
from anabranch.base.errors import DiskFull
from anabranch.log import compacted, compaction_swap, producer_snapshot
from anabranch.log.local_log import LocalLog
from anabranch.log.paths import SNAPSHOT, segment_file
from anabranch.log.producer_replay import restore_producers
from anabranch.log.producers import Producer, Producers
from anabranch.log.segment import Segment

log = logging.getLogger(__name__)


def truncate_to(disk: Disk, opened: LocalLog, offset: int) -> list[Segment]:
    """Take away every batch that holds `offset` or a later one.

    The segments that are in the log no more, their files `.deleted`; the caller removes them later.
    """
    if offset >= opened.log_end:
        return []
    kept = [segment for segment in opened.segments if segment.base_offset < offset]
    first_gone = kept[-1].find(offset) if kept else None
    if first_gone is None:
        return _cut(disk, opened, kept, None, offset)
    end = min(offset, first_gone.header.base_offset)
    if not first_gone.position:  # all of the segment goes
        return _cut(disk, opened, kept[:-1], None, end)
    return _cut(disk, opened, kept, first_gone.position, end)


def truncate_fully_and_start_at(disk: Disk, opened: LocalLog, offset: int) -> list[Segment]:
    """Take away everything and go on at `offset`: where a leader's log begins that has left this one behind.

    The segments that are in the log no more, as `truncate_to`.
    """
    return _cut(disk, opened, [], None, offset)


def finish_cut(disk: Disk, opened: LocalLog) -> list[Segment]:
    """Cut the log again, if the disk refused that midway.  As `truncate_to`."""
    if opened.cut_due is None:
        return []
    end, goes_whole = opened.cut_due
    return truncate_fully_and_start_at(disk, opened, end) if goes_whole else truncate_to(disk, opened, end)


def _cut(
    disk: Disk, opened: LocalLog, kept: Sequence[Segment], position: int | None, end: int
) -> list[Segment]:
    """Keep of the log `kept`, of the last one of them what lies before `position`, and go on at `end`."""
    was = opened.log_end
    opened.cut_due = (end, not kept)
    try:
        producers = _producers_as_of(disk, opened, end) if kept else Producers()
        gone, begun = _cut_files(disk, opened, kept, position, end)
    except (DiskFull, OSError) as error:
        disk.handles.on_refusal(error)
        raise
    # Last of what is written: by its epochs a leader tells where to cut, also if this is tried again.
    if kept:
        opened.epochs.truncate_end(end)
    else:
        opened.epochs.clear()
    opened.cut([*kept, begun], end)
    producers.committed, producers.aborted = opened.producers.committed, opened.producers.aborted
    opened.producers = producers
    log.info("%s: cut, it ended at %d and ends at %d now", opened.name, was, opened.log_end)
    return gone


def _cut_files(
    disk: Disk, opened: LocalLog, kept: Sequence[Segment], position: int | None, end: int
) -> tuple[list[Segment], Segment]:
    """The segments that are out of the way, and the one to go on in.  If it raises, it may be done again."""
    _give_up_view(disk, opened, end)
    compaction_swap.revoke(disk, opened)
    gone = opened.segments[len(kept) :]
    for segment in reversed(gone):
        opened.mark_deleted(segment)
    _remove_snapshots(disk, opened, end if kept else -1)
    begun = Segment.create(disk, opened.folder, end, opened.config)
    try:
        disk.sync_dir(opened.folder)
        if kept:
            _shorten(kept[-1], position, end)
    except BaseException:
        begun.remove()  # or the log would be taken to end there already
        raise
    return gone, begun


def _shorten(segment: Segment, position: int | None, end: int) -> None:
    """Nothing is written to `segment` any more, and from `position` on there is nothing.

    Also if there was nothing: of another try, which the disk refused.
    """
    segment.truncate(segment.size if position is None else position, end)
    segment.file.sync()
    segment.seal()


def _give_up_view(disk: Disk, opened: LocalLog, end: int) -> None:
    """A compacted view that has taken up what goes is none of this log.  Who reads in it goes on there."""
    view = opened.view
    if view is not None and view.horizon > end:
        compacted.give_up(disk, opened.folder)
        opened.view = None
        view.on_unused = view.close
        view.replaced()


def _remove_snapshots(disk: Disk, opened: LocalLog, end: int) -> None:
    for offset in producer_snapshot.offsets(disk.list(opened.folder)):
        if offset > end:
            disk.remove(segment_file(opened.folder, offset, SNAPSHOT))


def _producers_as_of(disk: Disk, opened: LocalLog, end: int) -> Producers:
    """The producers as they were at `end`, and none if there are none.

    They are known where nothing is cut that was replicated.  Else it is the last snapshot and what was
    written since: that may block for longer than the cut.
    """
    before = opened.producers
    if not len(before):
        return Producers()
    known = before.as_of(end)
    if known is not None:
        return known
    opened.producers = Producers()
    try:
        restore_producers(disk, opened, disk.list(opened.folder), len(opened.segments), end)
        replayed = opened.producers
    finally:
        opened.producers = before
    for producer in replayed:
        _recall_batches(producer, before.get(producer.producer_id), end)
    return replayed


def _recall_batches(producer: Producer, before: Producer | None, end: int) -> None:
    """Know those below `end` still that were known: a snapshot has the last one alone."""
    if before is None or before.epoch != producer.epoch:
        return
    known = [batch for batch in before.batches if batch.last_offset < end]
    if len(known) > len(producer.batches):
        producer.batches.clear()
        producer.batches.extend(known)
