"""Producer snapshots: Kafka's bytes, and anything else is refused."""

import random

import pytest

from anabranch.base.errors import Corrupt
from anabranch.log.producer_snapshot import decode, encode, offsets
from anabranch.log.producers import Producers
from anabranch.records.batch import read_header
from tests.support.logs import marker, records


def some_producers() -> Producers:
    producers = Producers()
    fields = {"producer_epoch": 2, "timestamp": 1000}
    producers.update(read_header(records("a", "b", producer_id=5, base_sequence=7, **fields)), 40)
    producers.update(
        read_header(records("c", producer_id=6, base_sequence=0, transactional=True, **fields)), 42
    )
    producers.complete(read_header(marker(8, commit=True, epoch=1, timestamp=2000)), 43, 3, aborted=False)
    return producers


def test_the_bytes_are_kafkas() -> None:
    """Version 1, CRC-32C, count, then 46 bytes per producer."""
    data = encode(some_producers())
    assert data[:2] == b"\x00\x01"
    assert data[6:10] == b"\x00\x00\x00\x03"
    assert len(data) == 10 + 3 * 46
    assert data[10:56] == bytes.fromhex(
        "0000000000000005"  # producer id
        "0002"  # epoch
        "00000008"  # last sequence
        "0000000000000029"  # last offset
        "00000001"  # offset delta
        "00000000000003e8"  # timestamp
        "ffffffff"  # coordinator epoch
        "ffffffffffffffff"  # no open transaction
    )
    assert data[56 + 38 : 56 + 46] == (42).to_bytes(8, "big"), "the first offset of the open transaction"


def test_there_and_back() -> None:
    before = some_producers()
    after = decode(encode(before))
    assert encode(after) == encode(before)
    assert after.first_open_transaction == 42
    assert [p.last_sequence for p in after] == [8, 0, -1]


def test_no_producers_at_all() -> None:
    assert len(decode(encode(Producers()))) == 0


def test_any_damage_is_noticed() -> None:
    data = encode(some_producers())
    for size in range(len(data)):
        with pytest.raises(Corrupt):
            decode(data[:size])
    chance = random.Random(2)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << chance.randrange(8)
        with pytest.raises(Corrupt):
            decode(bytes(flipped))
    with pytest.raises(Corrupt):
        decode(data + b"\x00")


def test_names_newest_first() -> None:
    names = ["00000000000000000005.snapshot", "x.snapshot", "00000000000000000012.snapshot", "5.log"]
    assert offsets(names) == [12, 5]
