"""Fetch answers, by hand: headers as bytes, records as ranges of files that nobody reads.

v4        last stable offset, aborted transactions
v5        log start offset
v7        sessions: an error code and a session id for the whole answer
v11       preferred read replica
v12       flexible; tagged diverging epoch
v13       topics by id
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from anabranch.base.network import Chunk, FileRange
from anabranch.wire.kafka.encoder import uvarint

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_SESSION = struct.Struct(">ihi")
_V4 = struct.Struct(">ihqq")
_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")
_NO_REPLICA = _INT.pack(-1)
_NOT_THROTTLED = bytes(4)
_DIVERGING_SIZE = 1 + _EPOCH_END.size


class Fetched(NamedTuple):
    """What a fetch found in one partition."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: list[tuple[int, int]] | None  # producer id and first offset of each transaction
    records: FileRange | None
    diverging: tuple[int, int] | None = None

    @property
    def size_bytes(self) -> int:
        return 0 if self.records is None else self.records.size


Topics = Iterable[tuple[str | UUID, list[Fetched]]]


def write_fetched(version: int, error_code: int, session_id: int, topics: Topics) -> list[Chunk]:
    """The answer, from the header's tagged fields on."""
    listed = list(topics)
    out = _Chunks()
    flexible = version >= 12
    if flexible:
        out.write(b"\0")
    out.write(_SESSION.pack(0, error_code, session_id) if version >= 7 else _NOT_THROTTLED)
    out.write(uvarint(len(listed) + 1) if flexible else _INT.pack(len(listed)))
    for topic, partitions in listed:
        out.write(_topic(topic, flexible))
        out.write(uvarint(len(partitions) + 1) if flexible else _INT.pack(len(partitions)))
        for one in partitions:
            _write_partition(out, one, version)
        if flexible:
            out.write(b"\0")
    if flexible:
        out.write(b"\0")
    return out.finish()


class _Chunks:
    """Bytes gathered into as few pieces as the file ranges between them allow."""

    __slots__ = ("_chunks", "_parts")

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def attach(self, part: FileRange) -> None:
        self._chunks.append(b"".join(self._parts))
        self._parts.clear()
        self._chunks.append(part)

    def finish(self) -> list[Chunk]:
        if self._parts:
            self._chunks.append(b"".join(self._parts))
        return self._chunks


def _topic(topic: str | UUID, flexible: bool) -> bytes:
    if isinstance(topic, UUID):
        return topic.bytes
    raw = topic.encode()
    return (uvarint(len(raw) + 1) if flexible else _SHORT.pack(len(raw))) + raw


def _write_partition(out: _Chunks, one: Fetched, version: int) -> None:
    head = (one.partition, one.error_code, one.high_watermark, one.last_stable)
    out.write(_V5.pack(*head, one.log_start) if version >= 5 else _V4.pack(*head))
    flexible = version >= 12
    if one.aborted is None:
        out.write(b"\0" if flexible else b"\xff\xff\xff\xff")
    else:
        out.write(uvarint(len(one.aborted) + 1) if flexible else _INT.pack(len(one.aborted)))
        for entry in one.aborted:
            out.write(_ABORTED.pack(*entry))
            if flexible:
                out.write(b"\0")
    if version >= 11:
        out.write(_NO_REPLICA)
    size = one.size_bytes
    out.write(uvarint(size + 1) if flexible else _INT.pack(size))
    if one.records is not None:
        out.attach(one.records)
    if flexible:
        if one.diverging is None:
            out.write(b"\0")
        else:
            out.write(b"\1\0" + uvarint(_DIVERGING_SIZE) + _EPOCH_END.pack(*one.diverging) + b"\0")
