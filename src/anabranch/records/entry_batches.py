"""Several Pulsar entries as the batches to store, one after the other in one buffer.

A producer that does not batch sends thousands of small messages per second, and a connection reads many of
them at once: made into batches here, with their place in the log already in the header, they are one write.
"""

from collections.abc import Sequence
from typing import Protocol

from crc32c import crc32c

from anabranch.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    OVERHEAD,
    PULSAR_ENTRY,
    TRANSACTIONAL,
    Part,
    read_header,
)

LATEST_MS = (1 << 63) - 1
_CRC_AT = 17


class NewEntry(Protocol):
    """What is to be stored."""

    @property
    def messages(self) -> int: ...

    @property
    def publish_time_ms(self) -> int: ...

    @property
    def payload(self) -> memoryview: ...


def enclose_all(
    entries: Sequence[NewEntry],
    offset: int,
    leader_epoch: int,
    append_time_ms: int = -1,
    latest_ms: int = LATEST_MS,
    producer: tuple[int, int] | None = None,
) -> tuple[bytearray, list[Part]]:
    """The batches of `entries`, from `offset` on, and what is to be known of each.

    With an `append_time_ms` the broker's time stands for the producer's.  A producer's that is beyond
    `latest_ms` counts as that: what is kept for a time goes by it, and what is sought by time.  Entries of a
    transaction have its `producer`, by id and epoch.
    """
    attributes = PULSAR_ENTRY if append_time_ms < 0 else PULSAR_ENTRY | LOG_APPEND_TIME
    producer_id, epoch = -1, -1
    if producer is not None:
        attributes |= TRANSACTIONAL
        producer_id, epoch = producer
    buffer = bytearray(HEADER_SIZE * len(entries) + sum([len(entry.payload) for entry in entries]))
    view = memoryview(buffer)
    parts: list[Part] = []
    at = 0
    pack = HEADER.pack_into
    for entry in entries:
        messages, payload = entry.messages, entry.payload
        size = HEADER_SIZE + len(payload)
        time_ms = min(entry.publish_time_ms, latest_ms) if append_time_ms < 0 else append_time_ms
        pack(
            buffer, at, offset, size - OVERHEAD, leader_epoch, MAGIC, 0, attributes,
            messages - 1, time_ms, time_ms, producer_id, epoch, -1, messages,
        )  # fmt: skip
        end = at + size
        view[at + HEADER_SIZE : end] = payload
        buffer[at + _CRC_AT : at + CRC_START] = crc32c(view[at + CRC_START : end]).to_bytes(4, "big")
        offset += messages
        parts.append((size, offset - 1, time_ms, None if producer is None else read_header(buffer, at)))
        at = end
    return buffer, parts
