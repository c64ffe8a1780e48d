"""Batches of effects: the records of a decision as a coordinator's log takes them."""

from anabranch.groups.effects import Effects, Producer
from anabranch.records.builder import build_keyed, seal_keyed

_NO_PRODUCER = Producer(-1, -1)
_PART_BYTES = 256 << 10  # of records that need not be one batch; a topic takes 1 MiB unless told otherwise
_AROUND_BYTES = 32  # what a record has beside key and value, at most


def batch_of(effects: Effects, now_ms: int) -> bytearray:
    """The records that were decided at `now_ms`, of which there are some."""
    producer_id, producer_epoch = effects.producer or _NO_PRODUCER
    if effects.encoded is None:
        return build_keyed(effects.records, now_ms, producer_id=producer_id, producer_epoch=producer_epoch)
    assert not effects.records, "records are encoded or not, else nobody knows their order"
    count, parts = effects.encoded
    return seal_keyed(parts, count, now_ms, producer_id, producer_epoch)


def first_part(effects: Effects) -> Effects:
    """As many records as are enough for a batch, taken out of `effects`; itself if that is all of them."""
    size = 0
    for count, (key, value) in enumerate(effects.records):
        size += _AROUND_BYTES + len(key) + len(value or b"")
        if size > _PART_BYTES and count:
            part = Effects()
            part.records, effects.records = effects.records[:count], effects.records[count:]
            return part
    return effects
