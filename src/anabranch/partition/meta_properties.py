"""Meta properties: which cluster and broker a data folder belongs to, in the file that Kafka's brokers have.

    version=1
    cluster.id=Kf6nM1FpQ7mWqTzVdGm0Ug
    node.id=1
    directory.id=p1m3ZcQnT9m5x1N7sJm5vA
    anabranch.format=1                         ours: how what lies in the folder is laid out

In the wrong folder a broker would find none of its own partitions, and take those that lie there for strays.
So it is refused before any of them is touched.
"""

import re
from pathlib import Path
from typing import NamedTuple

from anabranch.base.disk import Disk
from anabranch.base.errors import Corrupt, Invalid
from anabranch.base.ids import BrokerId
from anabranch.partition.folders import TOPICS

META_PROPERTIES = "meta.properties"
_VERSION = 1  # of the file, as Kafka counts
_FORMAT = 1  # of the folder
_LINE = re.compile(r"\s*([\w.]+)\s*[=:]\s*(.*?)\s*")


class MetaProperties(NamedTuple):
    cluster_id: str
    node_id: BrokerId
    directory_id: str
    """Of this folder alone; it tells one that was emptied from the one before."""


def check_broker(disk: Disk, data: Path, node_id: BrokerId) -> None:
    """Invalid if the folder is another broker's or of another format; Corrupt if it does not say."""
    found = read_meta_properties(disk, data)
    if found is not None and found.node_id != node_id:
        raise Invalid(
            f"the data folder {data} belongs to broker {found.node_id}, and node.id is {node_id}: "
            f"set node.id={found.node_id}, or choose another folder with --data"
        )


def claim_data_folder(disk: Disk, data: Path, mine: MetaProperties) -> MetaProperties:
    """Make the folder this broker's, if it is nobody's; what it says.  Invalid if it is of another cluster.

    The directory id is `mine` only if the folder has none yet.
    """
    found = read_meta_properties(disk, data)
    if found is None:
        disk.write_whole(data / META_PROPERTIES, _written(mine))
        return mine
    if found.cluster_id != mine.cluster_id:
        raise Invalid(
            f"the data folder {data} belongs to cluster {found.cluster_id}, and the metadata is that of "
            f"cluster {mine.cluster_id}: restore the metadata that belongs to the folder, or choose another "
            "folder with --data"
        )
    return found


def _written(mine: MetaProperties) -> bytes:
    lines = (
        f"version={_VERSION}",
        f"cluster.id={mine.cluster_id}",
        f"node.id={mine.node_id}",
        f"directory.id={mine.directory_id}",
        f"anabranch.format={_FORMAT}",
    )
    return "".join(f"{line}\n" for line in lines).encode()


def read_meta_properties(disk: Disk, data: Path) -> MetaProperties | None:
    """What the folder says; None if it is nobody's."""
    path = data / META_PROPERTIES
    if not disk.exists(path):
        if disk.exists(data / TOPICS):
            raise Invalid(
                f"the data folder {data} has partitions but no {META_PROPERTIES}: it is of an older format, "
                "or the file was lost. Restore it from a backup, start the version that wrote the folder, or "
                "choose another one with --data"
            )
        return None
    said = _parsed(path, disk.read_whole(path))
    _check_number(path, said, "version", _VERSION)
    _check_number(path, said, "anabranch.format", _FORMAT)
    cluster_id, node_id, directory_id = (
        said.get(key, "") for key in ("cluster.id", "node.id", "directory.id")
    )
    if not cluster_id or not directory_id or not node_id.isdecimal():
        raise Corrupt(
            f"{path} does not name a cluster.id, node.id and directory.id; restore it from a backup"
        )
    return MetaProperties(cluster_id, BrokerId(int(node_id)), directory_id)


def _parsed(path: Path, content: bytes) -> dict[str, str]:
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise Corrupt(f"{path} is not text; restore it from a backup") from error
    said = {}
    for line in lines:
        named = _LINE.fullmatch(line)
        if named is not None:
            said[named[1]] = named[2]
        elif line.strip() and not line.lstrip().startswith(("#", "!")):
            raise Corrupt(
                f"{path} has the line {line[:100]!r}, which is no property; restore it from a backup"
            )
    return said


def _check_number(path: Path, said: dict[str, str], key: str, ours: int) -> None:
    found = said.get(key, "none")
    if found != str(ours):
        raise Invalid(
            f"{path} says {key} {found[:20]!r}, this version of Anabranch uses {ours}: it was written by "
            "another version or program. Start that one, or choose another folder with --data"
        )
