"""Small text files of numbers, in Kafka's format: version, number of lines, lines.

    0                          0
    2                          1
    orders 0 1500              0 0
    orders 1 37                (epoch, start)
    (topic, partition, offset)

A file that cannot be read is treated as absent, and said so: every checkpoint only saves work.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from anabranch.base.disk import Disk

log = logging.getLogger(__name__)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_POINTS = "cleaner-offset-checkpoint"

TopicPartition = tuple[str, int]


def _lines(disk: Disk, path: Path) -> list[str]:
    text = disk.read_whole(path).decode("utf-8", "replace")
    if not text:
        return []
    version, count, *lines = text.splitlines()
    if version.strip() != "0" or int(count) != len(lines):
        raise ValueError(f"version {version}, {count} lines declared, {len(lines)} found")
    return lines


def _encode(lines: Sequence[str]) -> bytes:
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def read_pairs(disk: Disk, path: Path) -> list[tuple[int, int]]:
    try:
        return [(int(first), int(second)) for first, second in map(str.split, _lines(disk, path))]
    except ValueError as error:
        log.warning("%s is not readable and is ignored: %s", path, error)
        return []


def write_pairs(disk: Disk, path: Path, pairs: Sequence[tuple[int, int]], *, sync: bool) -> None:
    disk.write_whole(path, _encode([f"{first} {second}" for first, second in pairs]), sync=sync)


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, int]:
    try:
        fields = (line.rsplit(" ", 2) for line in _lines(disk, path))
        return {(topic, int(partition)): int(offset) for topic, partition, offset in fields}
    except ValueError as error:
        log.warning("%s is not readable and is ignored: %s", path, error)
        return {}


def write_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    disk.write_whole(path, _encode(lines))
