"""Log flusher: one fsync at a time per log, shared by everybody who waits for it.

    flush(log, 7) ──┐                       ┌── flush(log, 12)      these two come while it runs
    flush(log, 9) ──┴─[ sync up to 10 ]─────┴─[ sync up to 15 ]     and share the next one
                       recovery_point = 10      recovery_point = 15

A sync covers what the log holds when it starts.  The thread that does it gets descriptors and a
path, never the log.  Descriptors are duplicated for it, so as many logs as there are threads have their
turn at a time, each with a few segments: ten thousand logs may be flushed at once, as a stop does.

A sealed segment is synced with its indexes, the active one without them: after
a crash the last segment is read whole anyway.  A segment that is synced for the first time has its
name made durable too.  Leader epochs that are new are synced first, since nobody reads again where those
began that lie below the recovery point.

A failed fsync is final for a log.  The kernel may drop what it could not write and call the next fsync
a success, so nothing is believed any more: every later `flush` fails like the first, the recovery
point stays, and after a restart recovery reads all that is beyond it.  `on_failure` is told, once.
A sync that could not be tried for want of a descriptor is not one that failed: it is Unavailable now.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.errors import DiskFailed, DiskFull, Unavailable
from anabranch.base.metrics import Histogram
from anabranch.log.local_log import LocalLog
from anabranch.log.segment import Segment

log = logging.getLogger(__name__)

_SEGMENTS_A_ROUND = 12  # of up to four files each
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)  # to open a folder with, say; fsync itself never says so

Sync = Callable[[], None]
Waiting = list[tuple[int, int, "asyncio.Future[None]"]]
"""Up to where, how often the log had been cut by then, and who waits."""


def is_due(opened: LocalLog) -> bool:
    """Whether `flush.messages` asks for a sync before what was appended is acknowledged."""
    return opened.log_end - opened.recovery_point >= opened.config.flush_messages


class Flusher:
    def __init__(self, disk: Disk, threads: Executor, at_a_time: int, clock: Clock) -> None:
        self.times = Histogram()
        """How long flushes took, until the loop heard of it."""
        self._monotonic = clock.monotonic
        self._disk = disk
        self._threads = threads
        self._turns = asyncio.Semaphore(at_a_time)
        self._waiting: dict[LocalLog, Waiting] = {}
        self._rounds: dict[LocalLog, asyncio.Task[None]] = {}
        self._named: dict[LocalLog, int] = {}  # the newest segment whose name is durable
        self._failed: dict[LocalLog, DiskFailed] = {}
        self.on_failure: Callable[[LocalLog, DiskFailed], None] = lambda opened, error: None

    @property
    def has_failed(self) -> bool:
        """Whether any log may have lost what it was given to keep."""
        return bool(self._failed)

    @property
    def failed(self) -> int:
        """How many of them have."""
        return len(self._failed)

    async def flush(self, opened: LocalLog, up_to: int) -> None:
        """Return once all below `up_to` is on the disk.  DiskFailed if that cannot be said."""
        waiter = self.begin(opened, up_to)
        if waiter is not None:
            await waiter

    def begin(self, opened: LocalLog, up_to: int) -> "asyncio.Future[None] | None":
        """As `flush`, without waiting; None if all below `up_to` is on the disk already."""
        if opened in self._failed:
            raise DiskFailed(str(self._failed[opened]))
        if up_to <= opened.recovery_point:
            return None
        waiting = self._waiting.get(opened)
        if waiting is None:
            waiting = self._waiting[opened] = []
            self._rounds[opened] = asyncio.create_task(self._run(opened, waiting))
        waiter = asyncio.get_running_loop().create_future()
        waiting.append((up_to, opened.cuts, waiter))
        return waiter

    def forget(self, opened: LocalLog) -> None:
        """The log is no more: whoever waits is let go, and nothing of it is kept."""
        rounds = self._rounds.get(opened)
        if rounds is not None:
            rounds.cancel()
            self._let_go(opened)  # here, since one that has not begun yet ends without a word
        self._named.pop(opened, None)
        self._failed.pop(opened, None)

    def close(self) -> None:
        """Let the threads go; what they are at they end."""
        self._threads.shutdown()

    async def _run(self, opened: LocalLog, waiting: Waiting) -> None:
        """Sync until nobody waits any more."""
        try:
            while waiting:
                async with self._turns:
                    await self._round(opened, max(up_to for up_to, _, _ in waiting))
                for up_to, cuts, waiter in waiting:
                    if waiter.done():
                        continue
                    if cuts != opened.cuts:  # what is there now may be another's
                        waiter.set_exception(Unavailable(f"{opened.folder} was cut"))
                    elif up_to <= opened.recovery_point:
                        waiter.set_result(None)
                waiting[:] = [each for each in waiting if not each[2].done()]
        except Unavailable as error:
            for _, _, waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(error)
        finally:
            if self._waiting.get(opened) is waiting:
                self._let_go(opened)

    def _let_go(self, opened: LocalLog) -> None:
        """Nothing more is synced for those who wait."""
        del self._rounds[opened]
        for _, _, waiter in self._waiting.pop(opened):
            if not waiter.done():
                waiter.set_exception(Unavailable(f"{opened.folder} is not served any more"))

    async def _round(self, opened: LocalLog, up_to: int) -> None:
        """One sync of all that the log holds now; of the sealed segments alone if that will do.

        Of many segments it is the oldest few, the rest is for the rounds after this one.
        """
        newest = opened.active.base_offset
        end = newest if up_to <= newest else opened.log_end
        cuts = opened.cuts
        segments = [
            s for s in opened.segments if s.end_offset > opened.recovery_point and s.base_offset < end
        ]
        if len(segments) > _SEGMENTS_A_ROUND:
            del segments[_SEGMENTS_A_ROUND:]
            end = segments[-1].end_offset
        are_named = self._named.get(opened) == newest and opened.epochs.is_durable
        syncs, refusal = _syncs(opened, segments)
        epochs = opened.epochs.written
        if refusal is None and not are_named:
            syncs += [
                partial(self._disk.sync_dir, folder) for folder in (opened.folder, opened.folder.parent)
            ]
        begun_s = self._monotonic()
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, _sync_all, syncs)
        except OSError as error:
            if error.errno in _NO_DESCRIPTOR:
                raise _not_now(opened, error) from error
            raise self._fail(opened, error) from error
        if refusal is not None:
            raise _not_now(opened, refusal) from refusal
        self.times.observe(self._monotonic() - begun_s)
        self._named[opened] = newest
        opened.epochs.synced(epochs)
        if opened.active.base_offset != newest:  # it was sealed meanwhile, and its indexes are not synced
            end = min(end, newest)
        if opened.cuts == cuts:
            opened.recovery_point = max(opened.recovery_point, min(end, opened.log_end))

    def _fail(self, opened: LocalLog, error: OSError) -> DiskFailed:
        failed = DiskFailed(
            f"{opened.name}: sync failed, records from offset {opened.recovery_point} on may be lost: {error}"
        )
        self._failed[opened] = failed
        log.critical("%s; the broker stops, recovery at the next start tells", failed)
        self.on_failure(opened, failed)
        return failed


def _syncs(opened: LocalLog, segments: list[Segment]) -> tuple[list[Sync], Exception | None]:
    """What makes `segments` durable; if there was no descriptor for all of it, what there is, and why.

    What there is has to be called all the same: it holds descriptors, and the kernel says only once that
    what was written to a file is lost.
    """
    syncs: list[Sync] = []
    try:
        if not opened.epochs.is_durable:
            syncs.append(opened.epochs.syncer())
        for segment in segments:
            for sync in segment.syncers(indexes=segment is not opened.active):
                syncs.append(sync)  # one by one: if the next fails these are there
    except (DiskFull, OSError) as error:
        return syncs, error
    return syncs, None


def _not_now(opened: LocalLog, error: Exception) -> Unavailable:
    return Unavailable(f"{opened.folder} could not be synced: {error}")


def _sync_all(syncs: list[Sync]) -> None:
    """Make all of them durable, or raise: what failed for want of a descriptor only if nothing else did.

    Runs in a thread.
    """
    failures: list[OSError] = []
    for sync in syncs:  # each of them to the end: it holds a descriptor
        try:
            sync()
        except OSError as error:
            failures.append(error)
    if failures:
        raise next((each for each in failures if each.errno not in _NO_DESCRIPTOR), failures[0])
