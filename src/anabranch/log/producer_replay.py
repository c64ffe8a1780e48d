"""Producer state of a log, made again: from a snapshot, and the batches after it.

Snapshots that say more than the log has are removed, and so are those that stand where no segment begins
(compaction merged it away), except the newest.
"""

import logging
from collections.abc import Sequence

from anabranch.base.disk import Disk
from anabranch.base.errors import Corrupt
from anabranch.log import producer_snapshot
from anabranch.log.local_log import LocalLog
from anabranch.log.paths import SNAPSHOT, segment_file
from anabranch.log.segment import Segment

log = logging.getLogger(__name__)


def restore_producers(
    disk: Disk, opened: LocalLog, names: Sequence[str], first_rebuilt: int, end: int | None = None
) -> None:
    """Fill in the producers, which know nothing yet, as of `end` or the log's; `names` are the folder's.

    The aborted transactions of segments from the `first_rebuilt` on are listed again, so the snapshot must
    not be one behind the first of them.
    """
    rebuilt = opened.segments[first_rebuilt:]
    end = opened.log_end if end is None else end
    latest = rebuilt[0].base_offset if rebuilt else end
    start = opened.log_start
    bases = {segment.base_offset for segment in opened.segments}
    found = False
    for offset in producer_snapshot.offsets(names):
        path = segment_file(opened.folder, offset, SNAPSHOT)
        if offset > latest or (found and offset not in bases):
            disk.remove(path)
        elif not found:
            try:
                opened.producers = producer_snapshot.decode(disk.read_whole(path))
            except Corrupt as error:
                log.warning(
                    "%s: %s is removed, an older one or the log is read instead: %s",
                    opened.name,
                    path.name,
                    error,
                )
                disk.remove(path)
                continue
            start, found = offset, True
    opened.producers.known_from = start
    for segment in opened.segments:
        if segment.end_offset > start and segment.base_offset < end and segment.size:
            _replay(opened, segment, start, end, list_aborted=segment in rebuilt)


def _replay(opened: LocalLog, segment: Segment, start: int, end: int, *, list_aborted: bool) -> None:
    """Tell the producers of every batch from `start` to `end`."""
    first = segment.find(max(start, segment.base_offset))
    if first is None:
        return
    for position, header in segment.batches(first.position):
        if header.base_offset >= end:
            return
        if header.base_offset < start or header.producer_id < 0:
            continue
        batch = segment.file.pread(header.size_bytes, position) if header.is_control else b""
        opened.note_producer(segment, batch, 0, header, header.base_offset, list_aborted=list_aborted)
