"""Reads in Kafka's form: a partition that Pulsar producers write to as well, for Kafka's consumers.

    Kafka │ Kafka │ Pulsar │ Pulsar │ Kafka
    └─ as stored ─┘ └─ translated ──┘ └ the next read

A read gives batches of one kind, up to the first of the other kind, so that Kafka's own still go from the
file to the socket.  Entries are translated one by one and once (`translations`): small ones at once, as many
as take some milliseconds; for a large one the reader has to come again.

An entry that nobody can translate becomes a batch without records, and a line in the log: readers go on
behind it.
"""

import asyncio

from anabranch.base.errors import AnabranchError, NotOwner
from anabranch.base.network import FileRange
from anabranch.partition.chunked import whole_payload
from anabranch.partition.partition import Partition
from anabranch.partition.translations import (
    LARGE_BYTES,
    MANY_MESSAGES,
    Translated,
    in_turns,
    key_of,
    passed_over,
)
from anabranch.records.batch import HEADER_SIZE, PULSAR_ENTRY, BatchHeader, read_header
from anabranch.records.compression import NONE
from anabranch.records.entries import read_metadata
from anabranch.records.entry_payloads import LIMIT_BYTES, payload_of, uncompressed
from anabranch.records.to_kafka import KafkaBatch, as_gap, as_kafka_batch, is_chunk

Pending = asyncio.Future[None]

_MOST_BATCHES = 256  # that are looked at; the reader comes back for more
_TRANSLATED_BYTES = 128 << 10  # of entries a read, unless the first is larger
_GIVEN_BYTES = 1 << 20  # of what they become


def kafka_part(
    partition: Partition, part: FileRange, *, described: bool = False
) -> FileRange | bytes | Pending:
    """The beginning of `part` that is of one kind, as Kafka's clients read it; or when to ask again.

    With messages `described` as Pulsar's clients see them, if that is wanted (`records/to_kafka.py`).
    """
    first = read_header(part.file.pread(HEADER_SIZE, part.position))
    if first.attributes & PULSAR_ENTRY:
        size = max(first.size_bytes, min(part.size, _TRANSLATED_BYTES))
        return _translated(partition, FileRange(part.file, part.position, size), described)
    position, end = part.position + first.size_bytes, part.position + part.size
    for _ in range(_MOST_BATCHES - 1):
        if position >= end:
            break
        header = read_header(part.file.pread(HEADER_SIZE, position))
        if header.attributes & PULSAR_ENTRY:
            break
        position += header.size_bytes
    return FileRange(part.file, part.position, position - part.position)


def _translated(partition: Partition, part: FileRange, described: bool) -> bytes | Pending:
    """The entries that `part` begins with.  Its last one may be cut short."""
    if not part.is_cached():
        return part.read_ahead()
    data = memoryview(part.file.pread(part.size, part.position))
    made: list[bytes] = []
    at = size = 0
    while len(data) - at >= HEADER_SIZE and len(made) < _MOST_BATCHES and size < _GIVEN_BYTES:
        header = read_header(data, at)
        batch = data[at : at + header.size_bytes]
        if not header.attributes & PULSAR_ENTRY or len(batch) < header.size_bytes:
            break
        one = _batch(partition, header, batch, described)
        if isinstance(one, asyncio.Future):
            if not made:
                return one
            break
        made.append(one)
        size += len(one)
        at += header.size_bytes
    return b"".join(made) if len(made) != 1 else made[0]


def _batch(partition: Partition, header: BatchHeader, batch: memoryview, described: bool) -> bytes | Pending:
    key = key_of((partition, "described") if described else partition, header)
    translations = partition.translations
    kept = translations.find(key)
    if kept is not None:
        return kept.data
    if len(batch) > LARGE_BYTES or header.count > MANY_MESSAGES:
        return translations.begin(key, lambda: _made(partition, header, batch, described))
    try:
        metadata = read_metadata(batch[HEADER_SIZE:])
        if is_chunk(metadata) or metadata.compression != NONE:
            return translations.begin(key, lambda: _made(partition, header, batch, described))
        made = as_kafka_batch(header, batch, described=described)
    except AnabranchError as error:
        passed_over(partition, header, "Kafka's clients", error)
        made = as_gap(header)
    translations.keep(key, Translated(made))
    return made


async def _made(partition: Partition, header: BatchHeader, batch: memoryview, described: bool) -> Translated:
    entry = batch[HEADER_SIZE:]
    try:
        metadata = read_metadata(entry)
        payload = bytes(payload_of(entry))
        if is_chunk(metadata):
            if metadata.chunk_id != metadata.num_chunks_from_msg - 1:
                return Translated(as_gap(header))
            payload = await whole_payload(partition, header.base_offset, metadata, payload)
        if not metadata.encryption_keys and metadata.compression != NONE:
            payload = await partition.translations.aside(
                uncompressed, metadata, memoryview(payload), LIMIT_BYTES
            )
        made = KafkaBatch(header, metadata, described=described)
        pieces = await in_turns(made.pieces(payload))
        del payload  # large ones would be there several times over
        return Translated(made.sealed(pieces))
    except NotOwner:
        raise
    except AnabranchError as error:
        passed_over(partition, header, "Kafka's clients", error)
        return Translated(as_gap(header))
