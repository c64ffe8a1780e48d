"""Folders of partitions that no topic has any more.

A process that is killed between the deletion of a topic and the move of its folders leaves them behind,
and so does a disk that refuses the move.  The topic is gone from the metadata, so nobody would ever come
back to them.  After a start, and once a day, the folders are gone through, in a thread, and what is not
served is moved away like that of a topic which is deleted now.

What lies there is read in the thread, whether it is served is asked in the loop afterwards: a topic may
have been created meanwhile.  Names that are no partition's are left alone.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from anabranch.base.disk import Disk
from anabranch.base.errors import InvalidTopicName
from anabranch.base.ids import TopicName
from anabranch.base.path_parts import is_cut, text_of
from anabranch.partition.folders import TOPICS, owner_of

_PARTITION = re.compile(r"(.+)-(0|[1-9][0-9]{0,8})")


class Stored(NamedTuple):
    """A partition's folder."""

    folder: Path
    topic: TopicName | None
    """None if its name was cut to fit."""
    partition: int
    owner: str | None
    """The topic's id as text, None if the folder does not say."""


def stored_partitions(disk: Disk, data: Path) -> list[Stored]:
    """Every partition that has a folder, served or not.  Blocks: call it from a thread."""
    found = []
    for tenant in _folders(disk, data / TOPICS):
        for namespace in _folders(disk, tenant):
            for folder in _folders(disk, namespace):
                named = _PARTITION.fullmatch(folder.name)
                if named is None:
                    continue
                parts = (tenant.name, namespace.name, named[1])
                try:
                    topic = None if any(map(is_cut, parts)) else TopicName(*map(text_of, parts))
                except (InvalidTopicName, UnicodeDecodeError):
                    continue
                found.append(Stored(folder, topic, int(named[2]), owner_of(disk, folder)))
    return found


def _folders(disk: Disk, parent: Path) -> Iterator[Path]:
    try:
        names = disk.list(parent)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        yield parent / name
