"""Control records: what the log says to readers about transactions, in batches that carry no data.

    key    int16 version, int16 type: 0 abort, 1 commit (others belong to Kafka's own consensus log)
    value  int16 version, int32 epoch of the coordinator that decided

A marker ends its producer's transaction on one partition.  It is a batch of its own, transactional
and control, one record, no sequence number.  A newer version only ever appends fields, so what is
known is read and the rest left alone.
"""

import struct
from typing import NamedTuple

from anabranch.base.errors import Corrupt
from anabranch.records.builder import build_batch
from anabranch.records.record import Record

ABORT = 0
COMMIT = 1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0


class Marker(NamedTuple):
    """The end of a transaction."""

    commit: bool
    coordinator_epoch: int


def marker_batch(
    marker: Marker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The batch that ends a transaction of `producer_id`."""
    key = _KEY.pack(_VERSION, COMMIT if marker.commit else ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(record: Record) -> Marker | None:
    """The marker that a control batch's record holds; None if it is of a type we do not know."""
    kind = _read(_KEY, record.key, "key")
    if kind not in (ABORT, COMMIT):
        return None
    return Marker(kind == COMMIT, _read(_VALUE, record.value, "value"))


def _read(layout: struct.Struct, data: bytes | None, what: str) -> int:
    """The field that follows the version."""
    if data is None or len(data) < layout.size:
        size = "no" if data is None else len(data)
        raise Corrupt(f"the {what} of a control record has {size} bytes, {layout.size} are needed")
    version: int
    field: int
    version, field = layout.unpack_from(data)
    if version < 0:
        raise Corrupt(f"the {what} of a control record has the version {version}")
    return field
