"""Partition folders: where they lie in a data folder, and which topic and process they belong to.

    DATA/topics/TENANT/NAMESPACE/TOPIC-N/     a partition (see log/paths.py)
    DATA/deleted/UUID/                        a partition of a deleted topic, until it is removed
    DATA/strays/                              partitions that no topic has (see strays.py)
    DATA/meta.properties                      its cluster and broker (see meta_properties.py)
    DATA/.kafka_cleanshutdown                 left by a clean stop, taken away by the next start
    DATA/.lock                                held by the running process

Names are percent-encoded where they are not of Kafka's letters, and cut where they are too long for a folder
(`base/path_parts.py`).

`partition.metadata` names the topic's id, so that a folder left over from a deleted topic of the
same name is never taken for the new one.
"""

import logging
import re
from pathlib import Path
from uuid import UUID

from anabranch.base.disk import Disk
from anabranch.base.errors import Exists, Unavailable
from anabranch.base.ids import TopicName, id_text
from anabranch.base.path_parts import folder_part
from anabranch.log.paths import LOG, PARTITION_METADATA, partition_name

log = logging.getLogger(__name__)

TOPICS = "topics"
DELETED_FOLDERS = "deleted"
CLEAN_STOP = ".kafka_cleanshutdown"
LOCK = ".lock"
_NAMED = re.compile(rb"version:\s*0\s+topic_id:\s*([\w-]{22})")


def partition_folder(data: Path, topic: TopicName, index: int) -> Path:
    tenant, namespace = folder_part(topic.tenant), folder_part(topic.namespace)
    return data / TOPICS / tenant / namespace / f"{folder_part(topic.local)}-{index}"


def deleted_folder(disk: Disk, data: Path) -> Path:
    """A fresh place for a folder that is to be removed."""
    return data / DELETED_FOLDERS / disk.unused_name()


def owner_of(disk: Disk, folder: Path) -> str | None:
    """The id, as text, of the topic that a partition's folder belongs to; None if it does not say."""
    named = _NAMED.fullmatch(disk.read_whole(folder / PARTITION_METADATA).strip())
    return None if named is None else named[1].decode()


def claim(disk: Disk, data: Path, folder: Path, topic_id: UUID) -> Path | None:
    """Make `folder` the home of a partition of `topic_id`.

    A folder of another topic is moved out of the way; where to, if so.
    """
    path = folder / PARTITION_METADATA
    found = disk.read_whole(path)
    named = _NAMED.fullmatch(found.strip())
    moved = None
    if named is not None:
        if named[1].decode() == id_text(topic_id):
            return None
        moved = deleted_folder(disk, data)
        disk.make_dirs(moved.parent)
        disk.rename(folder, moved)
    elif found:  # no reason to give up the records beside it
        log.warning("%s: %s is damaged and written anew", partition_name(path), path.name)
    disk.make_dirs(folder)
    disk.write_whole(path, f"version: 0\ntopic_id: {id_text(topic_id)}\n".encode(), sync=False)
    return moved


def stored_bytes(disk: Disk, folder: Path) -> int:
    """The size of the log in a partition's folder, 0 if there is none."""
    try:
        return sum(disk.size(folder / name) for name in disk.list(folder) if name.endswith(LOG))
    except FileNotFoundError:
        return 0


class DataFolderLock:
    """Holds a data folder for this process.  Unavailable, with the holder's pid, if it is taken."""

    def __init__(self, disk: Disk, data: Path) -> None:
        disk.make_dirs(data)
        try:
            self.release = disk.lock(data / LOCK)
        except Exists as holder:
            raise Unavailable(
                f"the data folder {data} is in use by process {holder}; "
                "stop that one or choose another folder with --data"
            ) from None
