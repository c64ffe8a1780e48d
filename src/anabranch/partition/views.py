"""Compacted views of a partition: made from its log by a worker, put beside it while this broker leads."""

from pathlib import Path

from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.log.cleaner import make_view_job
from anabranch.log.compacted import CompactedLog, Current, new_folder
from anabranch.log.compaction_view import ViewJob
from anabranch.log.config_broker import CleanerConfig
from anabranch.partition.partition import Partition


def new_view_folder(partition: Partition, disk: Disk) -> Path:
    """Where a view is to be made."""
    partition.check_leads()
    return new_folder(disk, partition.log.folder)


def view_job(
    partition: Partition, target: Path, end: int, cleaner: CleanerConfig, *, keeps_keyless: bool
) -> ViewJob:
    """What makes a view up to `end`, in `target`, from the log and the view there is."""
    partition.check_leads()
    opened = partition.log
    return make_view_job(opened, opened.view, target, end, cleaner, keeps_keyless=keeps_keyless)


def put_view(partition: Partition, disk: Disk, clock: Clock, target: Path, current: Current) -> CompactedLog:
    """The view in `target` is the one that readers get from now on."""
    opened = partition.log
    opened.view = CompactedLog(disk, clock, target, current, opened.config)
    return opened.view
