"""A batch's life, random and long: placed, stamped, recompressed, compacted again and again.

The model is a list of records and a dictionary of header fields.
"""

import random
from typing import Any

import pytest

from anabranch.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    crc_of,
    place,
    read_header,
    split_batches,
    stamp,
)
from anabranch.records.builder import build_batch, recompress, retain
from anabranch.records.record import Record, iter_records, iter_spans, payload_of

LIMIT_BYTES = 1 << 20


def some_records(chance: random.Random) -> list[Record]:
    records = []
    offset = chance.randrange(1 << 40)
    for _ in range(chance.randrange(1, 150)):
        headers = tuple((b"h%d" % number, chance.choice((None, b"", b"x" * 70))) for number in range(2))
        records.append(
            Record(
                offset,
                1_700_000_000_000 + chance.randrange(-10, 100_000),
                chance.choice((None, b"", b"key-%d" % chance.randrange(20))),
                chance.choice((None, b"", b"value " * chance.randrange(40))),
                headers if chance.random() < 0.2 else (),
            )
        )
        offset += chance.choice((1, 1, 1, 500))
    return records


class Model:
    """What the batch should say."""

    def __init__(self, records: list[Record], fields: dict[str, Any]) -> None:
        self.records = records
        self.base_offset = records[0].offset
        self.last_offset = records[-1].offset
        self.leader_epoch = -1
        self.codec: int = fields["codec"]
        self.horizon: int | None = None
        self.append_time: int | None = None
        self.producer = (fields["producer_id"], fields["producer_epoch"], fields["base_sequence"])

    def move(self, base_offset: int, leader_epoch: int) -> None:
        shift = base_offset - self.base_offset
        self.records = [record._replace(offset=record.offset + shift) for record in self.records]
        self.base_offset, self.last_offset = base_offset, self.last_offset + shift
        self.leader_epoch = leader_epoch

    def check(self, batch: bytearray) -> BatchHeader:
        ((header, _),) = split_batches(batch)
        assert header.crc == crc_of(batch)
        assert (header.base_offset, header.last_offset) == (self.base_offset, self.last_offset)
        assert (header.leader_epoch, header.codec) == (self.leader_epoch, self.codec)
        assert header.delete_horizon_ms == self.horizon
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == self.producer
        assert header.count == len(self.records)
        records = list(iter_records(header, payload_of(header, batch, LIMIT_BYTES)))
        if self.append_time is None:
            assert records == self.records
            assert header.max_timestamp == max(record.timestamp for record in records)
        else:
            assert records == [record._replace(timestamp=self.append_time) for record in self.records]
        return header


@pytest.mark.parametrize("seed", range(40))
def test_a_batch_stays_true_to_its_model(seed: int) -> None:
    chance = random.Random(seed)
    fields = {
        "codec": chance.randrange(5),
        "producer_id": chance.choice((-1, 12345)),
        "producer_epoch": chance.choice((-1, 7)),
        "base_sequence": chance.choice((-1, 0, 2**31 - 2)),
    }
    records = some_records(chance)
    model = Model(records, fields)
    batch = build_batch(records, **fields)
    for _ in range(12):
        header = model.check(batch)
        action = chance.choice(("place", "stamp", "recompress", "retain", "retain", "mark"))
        if action == "place":
            model.move(chance.randrange(1 << 50), chance.randrange(1 << 20))
            place(batch, model.base_offset, model.leader_epoch)
        elif action == "stamp":
            model.append_time = 1_800_000_000_000 + chance.randrange(1000)
            stamp(batch, model.append_time)
        elif action == "recompress":
            model.codec = chance.randrange(5)
            batch = recompress(batch, model.codec, None, LIMIT_BYTES)
        else:
            payload = payload_of(header, batch, LIMIT_BYTES)
            spans = list(iter_spans(header, payload))
            keep = [chance.random() < 0.8 for _ in spans]
            keep[chance.randrange(len(keep))] = True
            horizon = chance.randrange(1 << 42) if action == "mark" else None
            batch = retain(header, payload, [s for s, kept in zip(spans, keep, strict=True) if kept], horizon)
            model.records = [r for r, kept in zip(model.records, keep, strict=True) if kept]
            if model.horizon is None:
                model.horizon = horizon
    header = model.check(batch)
    empty = retain(header, payload_of(header, batch, LIMIT_BYTES), [])
    assert len(empty) == HEADER_SIZE
    assert read_header(empty).last_offset == model.last_offset
