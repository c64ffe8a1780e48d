"""Strays: folders of partitions that no topic has, moved aside and kept for some days.

    DATA/strays/MOVED-MS/TENANT/NAMESPACE/TOPIC-N     as it lay below DATA/topics

A process that is killed between the deletion of a topic and the move of its folders leaves them behind,
and so does a disk that refuses the move.  Or the metadata is not what it should be, and they are all that
is left of their topics: so they are not deleted at once as those of a deleted topic are, and an operator
can move them back.  After a start, and once a day, the folders are gone through, in a thread.

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

STRAYS = "strays"
KEPT_DAYS = 7
_KEPT_MS = KEPT_DAYS * 24 * 3_600_000
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


def move_aside(disk: Disk, data: Path, folder: Path, now_ms: int) -> Path:
    """Where to a partition's folder was moved.  OSError if the disk refuses, and it stays."""
    aside = data / STRAYS / str(now_ms) / folder.relative_to(data / TOPICS)
    disk.make_dirs(aside.parent)
    disk.rename(folder, aside)
    return aside


def outdated(disk: Disk, data: Path, now_ms: int) -> list[Path]:
    """What was moved aside so long ago that it may go."""
    return [
        moved
        for moved in _folders(disk, data / STRAYS)
        if moved.name.isdecimal() and int(moved.name) + _KEPT_MS <= now_ms
    ]
