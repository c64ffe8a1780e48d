"""Share state records: `__share_group_state` in Kafka's own format, so that its tools read it.

    key     int16 kind, then group, topic id, partition
    0       a snapshot: all there is to know of a share partition; without a value: it is forgotten
    1       an update: the start offset if it moved, and the batches that changed

An update adds to the snapshot before it and to the updates since, whose snapshot epoch it repeats.  So a
snapshot must not go while updates of its epoch are needed, and the topic is not compacted.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from anabranch.base.errors import Corrupt
from anabranch.groups.fields import INT16, INT32, Fields, string, tagged, varint
from anabranch.groups.share_state import UNKNOWN_COUNT, DeliveryState, ShareKey, StateBatch

SNAPSHOT, UPDATE = 0, 1

_V0 = INT16.pack(0)
_COUNT_TAG = 0
_SNAPSHOT_HEAD = struct.Struct(">hiiiqqq")
_UPDATE_HEAD = struct.Struct(">hiiq")
_BATCH = struct.Struct(">qqbhx")  # the last byte: no tagged fields


class Snapshot(NamedTuple):
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    created_ms: int
    written_ms: int
    batches: tuple[StateBatch, ...]
    complete_count: int = UNKNOWN_COUNT


class Update(NamedTuple):
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    complete_count: int = UNKNOWN_COUNT


def write_key(kind: int, key: ShareKey) -> bytes:
    return INT16.pack(kind) + string(key.group) + key.topic_id.bytes + INT32.pack(key.partition)


def read_key(data: bytes) -> tuple[int, ShareKey] | None:
    """None if the kind is not known.  Corrupt if it is, and the rest is not what it should be."""
    fields = Fields(data)
    kind = fields.int16()
    if kind not in (SNAPSHOT, UPDATE):
        return None
    return kind, ShareKey(fields.string(), UUID(bytes=fields.take(16)), fields.int32())


def write_snapshot(snapshot: Snapshot) -> bytes:
    return b"".join(
        (_SNAPSHOT_HEAD.pack(0, *snapshot[:6]), _batches(snapshot.batches), _tags(snapshot.complete_count))
    )


def read_snapshot(data: bytes) -> Snapshot:
    fields = _value(data)
    epochs = (fields.int32(), fields.int32(), fields.int32())
    numbers = (fields.int64(), fields.int64(), fields.int64())
    batches = _read_batches(fields)
    return Snapshot(*epochs, *numbers, batches, _read_count(fields))


def write_update(update: Update) -> bytes:
    return b"".join(
        (_UPDATE_HEAD.pack(0, *update[:3]), _batches(update.batches), _tags(update.complete_count))
    )


def read_update(data: bytes) -> Update:
    fields = _value(data)
    head = (fields.int32(), fields.int32(), fields.int64())
    batches = _read_batches(fields)
    return Update(*head, batches, _read_count(fields))


def _value(data: bytes) -> Fields:
    fields = Fields(data)
    version = fields.int16()
    if version != 0:
        raise Corrupt(f"the state of a share partition is written at version {version}, 0 is known")
    return fields


def _batches(batches: Sequence[StateBatch]) -> bytes:
    return varint(len(batches) + 1) + b"".join([_BATCH.pack(*batch) for batch in batches])


def _read_batches(fields: Fields) -> tuple[StateBatch, ...]:
    batches = []
    for _ in range(fields.count(flexible=True)):
        first, last, state, count = fields.int64(), fields.int64(), fields.int8(), fields.int16()
        fields.tags()
        try:
            batches.append(StateBatch(first, last, DeliveryState(state), count))
        except ValueError as error:
            raise Corrupt(f"a record of a share partition is in state {state}, which there is not") from error
    return tuple(batches)


def _tags(complete_count: int) -> bytes:
    return tagged({} if complete_count == UNKNOWN_COUNT else {_COUNT_TAG: INT32.pack(complete_count)})


def _read_count(fields: Fields) -> int:
    content = fields.tags().get(_COUNT_TAG)
    return UNKNOWN_COUNT if content is None else Fields(content).int32()
