"""Findings: what reading a log turns up, in the order it is found.

The readers of this package yield these and print nothing; `show.py` turns them into text or JSON.
A Problem is something that a broker would not have written, or would cut off on its next start.
"""

from pathlib import Path
from typing import Any, NamedTuple

from anabranch.records.batch import BatchHeader


class FileOpened(NamedTuple):
    path: Path
    size_bytes: int


class Batch(NamedTuple):
    path: Path
    position: int
    header: BatchHeader


class Entry(NamedTuple):
    """A record, an index entry, a producer, an epoch: a few named values."""

    path: Path
    kind: str
    values: dict[str, Any]


class Problem(NamedTuple):
    path: Path
    position: int | None
    message: str


class FileDone(NamedTuple):
    path: Path
    counts: dict[str, int]


Finding = FileOpened | Batch | Entry | Problem | FileDone
