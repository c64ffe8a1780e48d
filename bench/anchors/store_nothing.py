"""Our broker with a log that stores nothing: requests are read and answered, batches counted and let go.

    python bench/anchors/store_nothing.py .venv/bin/anabranch standalone ...

What a client reaches against it is what it lets any broker of ours reach: `run.py --ceiling` and
`run_pulsar.py --ceiling` compare.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from anabranch.cli.main import main
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Appended, AppendedEntries
from anabranch.records.batch import read_header
from anabranch.records.entry_batches import NewEntry

_ends: dict[int, int] = {}


def append(self: Partition, batch: memoryview, _acks: int) -> Appended:
    return Appended(_pass(self, read_header(batch).count), -1, None)


def append_entries(
    self: Partition, entries: Sequence[NewEntry], _producer: tuple[int, int] | None = None
) -> AppendedEntries:
    return AppendedEntries([_pass(self, entry.messages) for entry in entries], None)


def _pass(partition: Partition, count: int) -> int:
    at = end(partition)
    _ends[id(partition)] = at + count
    return at


def end(self: Partition) -> int:
    return _ends.get(id(self), 0)


WRAPPER = (sys.executable, str(Path(__file__).resolve()))
"""What stands before the broker's command to have it so."""
STORING = ("produce", "single")
"""Modes of the loads that read nothing."""

if __name__ == "__main__":
    for name, changed in {
        "append": append,
        "append_entries": append_entries,
        "high_watermark": property(end),
        "last_stable": property(end),
    }.items():
        setattr(Partition, name, changed)
    sys.argv = sys.argv[1:]
    main()
