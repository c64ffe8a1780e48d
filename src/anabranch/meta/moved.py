"""Moved metadata: a data folder whose metadata is in ZooKeeper now, because its broker has joined a cluster.

    DATA/metadata            the embedded store of a broker that is alone
    DATA/metadata.adopted    the same, set aside: nothing reads it any more
    DATA/metadata.moved      the command that starts the broker from now on

Without that it would start alone from old metadata, and give out what the cluster has given out already.
"""

from pathlib import Path

from anabranch.base.disk import Disk
from anabranch.base.errors import Invalid

METADATA = "metadata"
_ASIDE = "metadata.adopted"
_MOVED = "metadata.moved"


def set_aside(disk: Disk, data: Path, command: str) -> None:
    """The folder's metadata counts no more; `command` starts its broker.  May be done again."""
    disk.write_whole(data / _MOVED, f"{command}\n".encode())
    if disk.exists(data / METADATA):
        disk.rename(data / METADATA, data / _ASIDE)
        disk.sync_dir(data)


def check_not_moved(disk: Disk, data: Path) -> None:
    """Invalid, with what to do, if the folder's metadata is elsewhere."""
    if disk.exists(data / _MOVED):
        command = disk.read_whole(data / _MOVED).decode("utf-8", "replace").strip()
        raise Invalid(
            f"the metadata of {data} is in ZooKeeper, and its broker is one of a cluster; "
            f"start it with: {command}"
        )
