"""Small text files of numbers, in Kafka's format: version, number of lines, lines.

    1                                   0
    2                                   1
    RmVkLXRvcGljLWlkLTAwMQ 0 1500       0 0
    RmVkLXRvcGljLWlkLTAwMQ 1 37         (epoch, start)
    (topic id, partition, offset)

Offsets go by the topic's id, where Kafka has its name (that is version 0): a topic that was deleted and
created again would begin where the old one had been trimmed to, and its records would be out of sight.

A file that cannot be read is treated as absent, and said so: every checkpoint only saves work.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from anabranch.base.disk import Disk
from anabranch.log.paths import partition_name

log = logging.getLogger(__name__)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_POINTS = "cleaner-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"

TopicPartition = tuple[str, int]
"""A topic's id, as text, and a partition's number."""

_PAIRS_VERSION = "0"
_OFFSETS_VERSION = "1"


def _lines(disk: Disk, path: Path, expected_version: str) -> list[str]:
    text = disk.read_whole(path).decode("utf-8", "replace")
    if not text:
        return []
    version, count, *lines = text.splitlines()
    if version.strip() != expected_version or int(count) != len(lines):
        raise ValueError(f"version {version}, {count} lines declared, {len(lines)} found")
    if not text.endswith("\n"):
        raise ValueError("the last line is not whole")
    return lines


def _encode(version: str, lines: Sequence[str]) -> bytes:
    return "\n".join([version, str(len(lines)), *lines, ""]).encode()


def read_pairs(disk: Disk, path: Path) -> list[tuple[int, int]]:
    try:
        lines = _lines(disk, path, _PAIRS_VERSION)
        return [(int(first), int(second)) for first, second in map(str.split, lines)]
    except ValueError as error:
        log.warning("%s: %s is not readable and is ignored: %s", partition_name(path), path.name, error)
        return []


def write_pairs(disk: Disk, path: Path, pairs: Sequence[tuple[int, int]], *, sync: bool) -> None:
    lines = [f"{first} {second}" for first, second in pairs]
    disk.write_whole(path, _encode(_PAIRS_VERSION, lines), sync=sync)


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, int]:
    try:
        fields = (line.rsplit(" ", 2) for line in _lines(disk, path, _OFFSETS_VERSION))
        return {(topic, int(partition)): int(offset) for topic, partition, offset in fields}
    except ValueError as error:
        log.warning("data folder %s: %s is not readable, ignored: %s", path.parent, path.name, error)
        return {}


def write_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    disk.write_whole(path, _encode(_OFFSETS_VERSION, lines))
