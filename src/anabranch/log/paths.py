"""File names of a partition: segments, indexes, snapshots and checkpoints.

    00000000000000000000.log              record batches, nothing else
    00000000000000000000.index            (relative offset, position) every few KiB
    00000000000000000000.timeindex        (timestamp, relative offset) alike
    00000000000000000000.txnindex         aborted transactions, if there are any
    00000000000000012345.snapshot         producers as they were before that offset
    leader-epoch-checkpoint               where each leader epoch began
    partition.metadata                    the topic's id
    entries                               empty; there if Pulsar producers wrote to the partition
    gaps                                  empty; there if offsets may be missing in the last segment
    compacted/                            the compacted view that Pulsar's readers may ask for (`compacted`)

A file about to be removed ends in `.N.deleted`, one that compaction is writing in `.cleaned`, one that
it has finished in `.swap`.  All names and formats but `entries`, `gaps` and `compacted` are Apache Kafka's,
whose tools read these folders.
"""

import re
from pathlib import Path

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
SEGMENT_FILES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
ENTRIES = "entries"
GAPS = "gaps"
COMPACTED = "compacted"

_PARTITION = re.compile(r".+-[0-9]+")


def segment_file(folder: Path, base_offset: int, suffix: str) -> Path:
    return folder / f"{base_offset:020d}{suffix}"


def partition_name(path: Path) -> str:
    """`orders-3`, from its folder or a file in it: how lines of the log name a partition."""
    names = (part.name for part in (path, *path.parents) if _PARTITION.fullmatch(part.name))
    return next(names, path.name)


def base_offset_of(name: str) -> int | None:
    """The offset that a file name begins with, None if it does not."""
    stem = name.split(".", 1)[0]
    return int(stem) if len(stem) == 20 and stem.isdigit() else None
