"""Leader epochs: where each began, which two replicas compare to find where their logs diverge.

    epoch  start          end_of(2) = (2, 250): epoch 2 wrote up to, not including, 250
        1      0          end_of(3) = (2, 250): nothing was written in 3
        2    100          end_of(4) = (4, log end)
        4    250          end_of(5): not known here
                          end_of(0) = (0, 0): whatever it wrote, it ended where 1 began

Kept in Kafka's `leader-epoch-checkpoint`.  The file is written without waiting for the disk: every
batch carries its epoch, so recovery fills in what a crash took.  It does not read what is below the recovery
point, so before that moves on the file is synced, too (`flusher`).
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path

from anabranch.base.disk import Disk
from anabranch.base.errors import DiskFull
from anabranch.log.checkpoints import read_pairs, write_pairs
from anabranch.log.paths import LEADER_EPOCHS, partition_name

log = logging.getLogger(__name__)

UNKNOWN = (-1, -1)


class LeaderEpochs:
    __slots__ = ("_disk", "_durable", "_epochs", "_path", "_starts", "_unsaved", "latest", "written")

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._path = folder / LEADER_EPOCHS
        pairs = read_pairs(disk, self._path)
        self._epochs = [epoch for epoch, _ in pairs]
        self._starts = [start for _, start in pairs]
        self._unsaved = False
        self.written = 1 if pairs else 0
        """How often the file was, by an earlier process too if it has left one."""
        self._durable = 0  # so often it is on the disk
        self.latest = self._epochs[-1] if self._epochs else -1  # looked at by every append

    @property
    def is_empty(self) -> bool:
        return not self._epochs

    def assign(self, epoch: int, start: int) -> None:
        """Batches from `start` on are of `epoch`.  Nothing to do if it is known or older."""
        if epoch <= self.latest:
            return
        keep = bisect_left(self._starts, start)  # a power cut may bring back what was cut off the log
        del self._epochs[keep:], self._starts[keep:]
        self._epochs.append(epoch)
        self._starts.append(start)
        self._save()

    def epoch_of(self, offset: int) -> int:
        i = bisect_right(self._starts, offset) - 1
        return self._epochs[i] if i >= 0 else -1

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch not beyond `epoch` and the offset that it ended at; UNKNOWN if it is newer."""
        if not self._epochs or epoch > self._epochs[-1] or epoch < 0:
            return UNKNOWN
        i = bisect_right(self._epochs, epoch)
        if i == 0:
            return epoch, self._starts[0]
        return self._epochs[i - 1], self._starts[i] if i < len(self._starts) else log_end

    def truncate_end(self, end: int) -> None:
        """The log now ends at `end`."""
        keep = bisect_left(self._starts, end)
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self._save()

    def clear(self) -> None:
        """There is no batch any more."""
        self.truncate_end(0)

    def truncate_start(self, start: int) -> None:
        """The log now starts at `start`: only the epoch that holds it and later ones matter."""
        first = bisect_right(self._starts, start) - 1
        if first < 0 or (first == 0 and self._starts[0] == start):
            return
        del self._epochs[:first], self._starts[:first]
        self._starts[0] = start
        self._save()

    def settle(self) -> None:
        """Save what could not be saved before.  DiskFull or OSError if it still cannot."""
        if self._unsaved:
            write_pairs(
                self._disk, self._path, list(zip(self._epochs, self._starts, strict=True)), sync=False
            )
            self._unsaved = False
            self.written += 1

    @property
    def is_durable(self) -> bool:
        """Whether the file is on the disk as it is now, and so is its name."""
        return self.written == self._durable and not self._unsaved

    def syncer(self) -> Callable[[], None]:
        """A call for a thread that makes the content of the file durable.  Raises as `settle`."""
        self.settle()
        file = self._disk.open(self._path)
        try:
            return file.syncer()
        finally:
            file.close()

    def synced(self, written: int) -> None:
        """It is on the disk, with its name, as it was when it had been `written` so often."""
        self._durable = max(self._durable, written)

    def _save(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else -1
        self._unsaved = True
        try:
            self.settle()
        except (DiskFull, OSError) as error:  # no reason to refuse an append, whose batch carries its epoch
            log.warning(
                "%s: leader epochs could not be stored, tried again with the next: %s",
                partition_name(self._path),
                error,
            )
