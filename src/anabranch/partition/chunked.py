"""A large message that a Pulsar producer sent in chunks, put together for readers who know no chunks.

    offset   7          8        9          10          11
             chunk 1/3  another  chunk 2/3  another's   chunk 3/3
             nothing             nothing                the message, whole

Other producers' entries may lie between.  So that a reader can begin anywhere, the other chunks are looked
for backwards from the last one, in a bounded number of entries.  What is not there (retention took it, or
its producer gave up and began again) or is larger than a batch may become is no message at all.
"""

import asyncio
import struct

from anabranch.base.errors import AnabranchError, Corrupt, TooLarge
from anabranch.base.network import FileRange
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.records.batch import HEADER_SIZE, PULSAR_ENTRY, read_header
from anabranch.records.entries import read_metadata
from anabranch.records.entry_payloads import LIMIT_BYTES, payload_of
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata

_MOST_CHUNKS = 1 << 16
_MOST_ENTRIES = 10_000
_A_TURN = 32  # offsets that are looked at
_READ_BYTES = 64 << 10
_HEAD_BYTES = 1024  # of an entry, enough for most metadata
_SIZE = struct.Struct(">I")
_CHECKED_BYTES = 6


class Incomplete(Corrupt):
    """Not all chunks are there."""


async def whole_payload(partition: Partition, offset: int, last: MessageMetadata, payload: bytes) -> bytes:
    """The payload of the message whose last chunk lies at `offset`, still compressed as its producer did."""
    count = last.num_chunks_from_msg
    if count > _MOST_CHUNKS:
        raise TooLarge(f"a message of {count} chunks")
    chunks: dict[int, bytes] = {count - 1: payload}
    size, looked_at = len(payload), 0
    while looked_at < _MOST_ENTRIES and offset > partition.log_start:
        entries, offset = _entries_before(partition, offset)
        looked_at += len(entries)
        for part in reversed(entries):
            found = None if part is None else _chunk_in(part, last)
            if found is None or found[0] in chunks:
                continue
            chunks[found[0]] = found[1]
            size += len(found[1])
            if size > LIMIT_BYTES:
                raise TooLarge(f"a message of more than {LIMIT_BYTES} bytes, in {count} chunks")
            if len(chunks) == count:
                return b"".join([chunks[number] for number in range(count)])
        await asyncio.sleep(0)
    raise Incomplete(f"{count - len(chunks)} of a message's {count} chunks are not there")


def _entries_before(partition: Partition, end: int) -> tuple[list[FileRange | None], int]:
    """Some entries that lie just before `end`, in order, None for a batch of Kafka's; and where they begin.

    A log can only be read forwards, and to find a place in it costs more than to go on from there.
    """
    offset = start = max(end - _A_TURN, partition.log_start)
    entries: list[FileRange | None] = []
    while offset < end:
        part = partition.read(offset, _READ_BYTES, Isolation.UNCOMMITTED, whole_first=True)
        if part is None:
            break
        at, stop = part.position, part.position + part.size
        while offset < end and at + HEADER_SIZE <= stop:
            header = read_header(part.file.pread(HEADER_SIZE, at))
            if header.base_offset < end:
                is_entry = header.attributes & PULSAR_ENTRY
                entries.append(FileRange(part.file, at, header.size_bytes) if is_entry else None)
            start, offset = min(start, header.base_offset), header.last_offset + 1
            at += header.size_bytes
    return entries, start


def _chunk_in(part: FileRange, wanted: MessageMetadata) -> tuple[int, bytes] | None:
    """Number and payload of the entry in `part`, if it is a chunk of the message."""
    start, size = part.position + HEADER_SIZE, part.size - HEADER_SIZE
    head = part.file.pread(min(size, _HEAD_BYTES), start)
    at = _CHECKED_BYTES if head[:2] == b"\x0e\x01" else 0
    if len(head) < at + _SIZE.size:
        return None
    described = at + _SIZE.size + _SIZE.unpack_from(head, at)[0]
    if described > len(head):
        head = part.file.pread(min(size, described), start)
    try:
        metadata = read_metadata(head)
    except AnabranchError:
        return None
    if (
        metadata.uuid != wanted.uuid
        or metadata.num_chunks_from_msg != wanted.num_chunks_from_msg
        or metadata.producer_name != wanted.producer_name
        or not 0 <= metadata.chunk_id < wanted.num_chunks_from_msg - 1
    ):
        return None
    return metadata.chunk_id, bytes(payload_of(memoryview(part.file.pread(size, start))))
