"""Compaction worker: the process that compacts a log, so that the broker's own is not held up.

    stdin    one line: the job as JSON.  The pipe stays open; when it closes, the parent is gone
    stdout   {"replaced": [0, 512]}     as soon as a replacement of these segments is durable
             {"done": {...}}            a `Summary` or `ViewSummary`, the last line
             {"failed": "..."}          instead of it
    stderr   what went wrong in a way that nobody foresaw

The argument `view` says that the job is a `ViewJob`.

It runs at the lowest priority and no faster than it is told.  It may be killed at any time: what it
writes (`.cleaned` files, the folder of a view) counts for nothing until the parent says so.  It dies with
its parent, by the kernel's signal where there is one and by its closed stdin everywhere.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import AnabranchError
from anabranch.log.compaction import Job, Summary, compact
from anabranch.log.compaction_view import VIEW, ViewJob, ViewSummary, write_view

_LOWEST_PRIORITY = 19
_PR_SET_PDEATHSIG = 1
_MAX_OPEN = 64
_SHORTEST_SLEEP_S = 0.02


class Pace:
    """At most so many bytes per second, counted from the first."""

    def __init__(
        self,
        bytes_per_second: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._started = monotonic()
        self._spent = 0

    def spend(self, size: int) -> None:
        self._spent += size
        ahead_s = self._spent / self._bytes_per_second - (self._monotonic() - self._started)
        if ahead_s > _SHORTEST_SLEEP_S:
            self._sleep(ahead_s)


def main() -> int:
    _die_with_parent()
    os.nice(_LOWEST_PRIORITY)
    fields = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    disk, pace = DirectDisk(_MAX_OPEN), Pace(fields["io_bytes_per_second"])
    summary: Summary | ViewSummary
    try:
        if VIEW in sys.argv[1:]:
            summary = write_view(disk, ViewJob(**fields), pace.spend)
        else:
            summary = compact(disk, Job(**fields), pace.spend, lambda bases: _say({"replaced": bases}))
    except (AnabranchError, OSError) as error:
        _say({"failed": f"{type(error).__name__}: {error}"})
        return 1
    _say({"done": summary._asdict()})
    return 0


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _exit_with_parent() -> None:
    while os.read(0, 4096):  # not sys.stdin: its lock would be held when the interpreter ends
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
