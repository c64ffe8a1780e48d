"""Subscription records: the keys and values of `__subscription_state`.

    key     int16 kind, then                       value   int16 version 0, then
    0       group, topic, partition                a subscription's document, in its writer's own form
    1       group, topic, partition, int64 chunk   the bitmap of what is acknowledged in the chunk
    2       group, topic, partition                int64 floor: a position that was committed before
    3       topic, partition                       topic id, a snapshot of the partition's producers
    4       group, topic, partition, int32         what a transaction acknowledges if it commits, one
            coordinator, int64 transaction,        request of a consumer's after the other
            int32 number

Names and numbers as in `__consumer_offsets`.  A record of an unknown kind was written by a later version.
"""

import struct
from typing import NamedTuple
from uuid import UUID

from anabranch.base.errors import Corrupt
from anabranch.groups.fields import INT16, INT32, INT64, string
from anabranch.groups.transaction_ids import TxnId

DOCUMENT, CHUNK, FLOOR, SNAPSHOT, PENDING_ACK = range(5)

_VERSION = INT16.pack(0)
_HEAD = INT16.size
_ID_BYTES = 16
_PENDING = struct.Struct(">iqi")


class StateKey(NamedTuple):
    """`group_id` is empty for a snapshot; `chunk` is -1 for what is not of one, and the number of an
    acknowledgement in its transaction, which others have none of."""

    kind: int
    group_id: str
    topic: str
    partition: int
    chunk: int = -1
    txn: TxnId | None = None


def write_key(key: StateKey) -> bytes:
    parts = [INT16.pack(key.kind)]
    if key.kind != SNAPSHOT:
        parts.append(string(key.group_id))
    parts += (string(key.topic), INT32.pack(key.partition))
    if key.kind == CHUNK:
        parts.append(INT64.pack(key.chunk))
    elif key.kind == PENDING_ACK:
        assert key.txn is not None
        parts.append(_PENDING.pack(*key.txn, key.chunk))
    return b"".join(parts)


def read_key(data: bytes) -> StateKey | None:
    """None if the kind is not known.  Corrupt if it is, and the rest is not what it should be."""
    try:
        kind = INT16.unpack_from(data)[0]
        if not DOCUMENT <= kind <= PENDING_ACK:
            return None
        group_id, at = ("", _HEAD) if kind == SNAPSHOT else _text(data, _HEAD)
        topic, at = _text(data, at)
        partition = INT32.unpack_from(data, at)[0]
        at += INT32.size
        chunk, txn = -1, None
        if kind == CHUNK:
            chunk = INT64.unpack_from(data, at)[0]
        elif kind == PENDING_ACK:
            coordinator, number, chunk = _PENDING.unpack_from(data, at)
            txn = TxnId(coordinator, number)
    except (struct.error, UnicodeDecodeError) as error:
        raise Corrupt("the key of a subscription's state is cut short or no text") from error
    return StateKey(kind, group_id, topic, partition, chunk, txn)


def write_value(data: bytes) -> bytes:
    return _VERSION + data


def read_value(data: bytes) -> bytes:
    if data[:_HEAD] != _VERSION:
        raise Corrupt("a subscription's state is written at a version that is not known here")
    return data[_HEAD:]


def write_floor(offset: int) -> bytes:
    return _VERSION + INT64.pack(offset)


def read_floor(data: bytes) -> int:
    value = read_value(data)
    if len(value) != INT64.size:
        raise Corrupt(f"a floor of {len(value)} bytes")
    offset: int = INT64.unpack(value)[0]
    return offset


def write_snapshot(topic_id: UUID, data: bytes) -> bytes:
    return _VERSION + topic_id.bytes + data


def read_snapshot(data: bytes) -> tuple[UUID, bytes]:
    value = read_value(data)
    if len(value) < _ID_BYTES:
        raise Corrupt("a snapshot without the id of its topic")
    return UUID(bytes=value[:_ID_BYTES]), value[_ID_BYTES:]


def _text(data: bytes, at: int) -> tuple[str, int]:
    size = INT16.unpack_from(data, at)[0]
    end = at + INT16.size + size
    if size < 0 or end > len(data):
        raise Corrupt("a name in the key of a subscription's state is null or cut short")
    return str(data[at + INT16.size : end], "utf-8"), end
