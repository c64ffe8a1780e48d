"""Our broker with a log that stores nothing: requests are read and answered, batches counted and let go.

    python bench/anchors/store_nothing.py .venv/bin/anabranch standalone ...

What a client reaches against it is what it lets any broker of ours reach: `run.py --ceiling` compares.
"""

import sys

from anabranch.cli.main import main
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Appended
from anabranch.records.batch import read_header

_ends: dict[int, int] = {}


def append(self: Partition, batch: memoryview, _acks: int) -> Appended:
    at = _ends.get(id(self), 0)
    _ends[id(self)] = at + read_header(batch).count
    return Appended(at, -1, None)


def end(self: Partition) -> int:
    return _ends.get(id(self), 0)


if __name__ == "__main__":
    for name, changed in {
        "append": append,
        "high_watermark": property(end),
        "last_stable": property(end),
    }.items():
        setattr(Partition, name, changed)
    sys.argv = sys.argv[1:]
    main()
