"""Instances: the starts of a broker that its data folder has seen, by their random ids.

    DATA/instances      an id per line, the newest last

After a kill -9 the broker finds its own registration in the metadata store, of a session that is not over
yet; by the id it knows that nobody lives behind it.  If the file is lost, it waits until the session is over.
"""

from pathlib import Path

from anabranch.base.disk import Disk

INSTANCES = "instances"
_KEPT = 16


def begin_instance(disk: Disk, data: Path, instance: str) -> list[str]:
    """Write down that `instance` has the folder now; those before it, the newest last."""
    path = data / INSTANCES
    former = disk.read_whole(path).decode("ascii", "replace").split()[1 - _KEPT :]
    disk.write_whole(path, "".join(f"{one}\n" for one in (*former, instance)).encode(), sync=False)
    return former
