"""Compacted views of a partition: made from its log by a worker, put beside it while this broker leads."""

from pathlib import Path
from typing import NamedTuple

from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.errors import Unavailable
from anabranch.log.cleaner import make_view_job
from anabranch.log.compacted import CompactedLog, Current, give_up, new_folder
from anabranch.log.compaction_view import ViewJob
from anabranch.log.config_broker import CleanerConfig
from anabranch.partition.partition import Partition


class NewView(NamedTuple):
    folder: Path
    cuts: int
    """How often the log had been cut when it was begun."""


def new_view(partition: Partition, disk: Disk) -> NewView:
    """Where a view is to be made."""
    partition.check_leads()
    return NewView(new_folder(disk, partition.log.folder), partition.log.cuts)


def view_job(
    partition: Partition, target: Path, end: int, cleaner: CleanerConfig, *, keeps_keyless: bool
) -> ViewJob:
    """What makes a view up to `end`, in `target`, from the log and the view there is."""
    partition.check_leads()
    opened = partition.log
    return make_view_job(opened, opened.view, target, end, cleaner, keeps_keyless=keeps_keyless)


def put_view(partition: Partition, disk: Disk, clock: Clock, new: NewView, current: Current) -> CompactedLog:
    """The view that was made is the one that readers get from now on.

    Unavailable if the log was cut meanwhile: there is no view then, and `new` is to be removed.
    """
    opened = partition.log
    if opened.cuts != new.cuts:
        give_up(disk, opened.folder)
        raise Unavailable(f"{partition}: the log was cut while it was compacted")
    opened.view = CompactedLog(disk, clock, new.folder, current, opened.config)
    return opened.view
