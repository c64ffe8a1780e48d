"""ShareFetch answers, by hand: headers as bytes, records as ranges of files that nobody reads.

v1        errors and messages for the fetch and for the acknowledgements that came with it, the records, and
          which of their offsets were acquired
v2        the same
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast
from uuid import UUID

from anabranch.base.disk import Buffer
from anabranch.base.ids import BrokerId
from anabranch.base.network import Chunk, FileRange
from anabranch.wire.kafka.current_leader import Brokers, CurrentLeader, plain_endpoints, plain_leader
from anabranch.wire.kafka.encoder import uvarint

_HEAD = struct.Struct(">xih")  # no tags in the header, not throttled, the error
_LOCK = struct.Struct(">i")
_PARTITION = struct.Struct(">ih")
_SHORT = struct.Struct(">h")
_ACQUIRED = struct.Struct(">qqhx")
_NO_LEADER = CurrentLeader(BrokerId(0), 0)  # as Kafka has it


class SharedPart(NamedTuple):
    """What a share fetch has for one partition."""

    partition: int
    error_code: int = 0
    error_message: str | None = None
    ack_error_code: int = 0
    ack_error_message: str | None = None
    records: Chunk | None = None
    acquired: Sequence[tuple[int, int, int]] = ()
    """First offset, last offset, how often they were delivered."""
    leader: CurrentLeader | None = None
    """Whom to ask instead."""

    @property
    def size_bytes(self) -> int:
        records = self.records
        if records is None:
            return 0
        return records.size if type(records) is FileRange else len(cast(Buffer, records))


SharedTopics = Iterable[tuple[UUID, Sequence[SharedPart]]]


def write_shared(
    error_code: int, error_message: str | None, lock_ms: int, topics: SharedTopics, brokers: Brokers
) -> list[Chunk]:
    """The answer, from the header's tagged fields on; `brokers` are those that may be leaders in it."""
    listed = list(topics)
    chunks: list[Chunk] = []
    parts = [_HEAD.pack(0, error_code), _text(error_message), _LOCK.pack(lock_ms), uvarint(len(listed) + 1)]
    for topic_id, partitions in listed:
        parts += (topic_id.bytes, uvarint(len(partitions) + 1))
        for one in partitions:
            parts += (
                _PARTITION.pack(one.partition, one.error_code),
                _text(one.error_message),
                _SHORT.pack(one.ack_error_code),
                _text(one.ack_error_message),
                plain_leader(one.leader or _NO_LEADER),
                uvarint(one.size_bytes + 1),
            )
            if one.records is not None:
                chunks += (b"".join(parts), one.records)
                parts = []
            parts.append(uvarint(len(one.acquired) + 1))
            parts += [_ACQUIRED.pack(*acquired) for acquired in one.acquired]
            parts.append(b"\0")
        parts.append(b"\0")
    parts += (plain_endpoints((one.leader for _, many in listed for one in many), brokers), b"\0")
    chunks.append(b"".join(parts))
    return chunks


def _text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw
