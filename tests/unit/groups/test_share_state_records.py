"""States of share partitions as Kafka 4.3.1 wrote them."""

from uuid import UUID

import pytest

from anabranch.base.errors import Corrupt
from anabranch.groups.share_state import DeliveryState, ShareKey, StateBatch
from anabranch.groups.share_state_records import (
    SNAPSHOT,
    UPDATE,
    Snapshot,
    Update,
    read_key,
    read_snapshot,
    read_update,
    write_key,
    write_snapshot,
    write_update,
)

KEY = ShareKey("a6-states", UUID("c74b15ec-f296-45f5-854a-9de5bd9b1ba4"), 0)
FREE, DONE, SET_ASIDE = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


def test_keys():
    key = "000961362d737461746573c74b15ecf29645f5854a9de5bd9b1ba400000000"
    assert write_key(UPDATE, KEY).hex() == "0001" + key
    assert read_key(bytes.fromhex("0000" + key)) == (SNAPSHOT, KEY)
    assert read_key(bytes.fromhex("0007" + key)) is None


@pytest.mark.parametrize(
    ("value", "update"),
    [
        (
            "00000000000000000002000000000000000a03000000000000000a000000000000000e00000100"
            "000000000000000f00000000000000130200010001000400000003",
            Update(0, 2, 10, (StateBatch(10, 14, FREE, 1), StateBatch(15, 19, DONE, 1)), 3),
        ),
        (
            "00000000000000000002ffffffffffffffff030000000000000014000000000000001400000100"
            "000000000000001e000000000000001f0400050001000400000003",
            Update(0, 2, -1, (StateBatch(20, 20, FREE, 1), StateBatch(30, 31, SET_ASIDE, 5)), 3),
        ),
        ("000000000000000000020000000000000003" + "0100", Update(0, 2, 3, ())),
    ],
)
def test_an_update(value, update):
    assert read_update(bytes.fromhex(value)) == update
    assert write_update(update).hex() == value


def test_a_snapshot_is_read_as_it_was_written():
    batches = (StateBatch(10, 14, FREE, 1), StateBatch(15, 1 << 40, SET_ASIDE, 5))
    for count in (-1, 7):
        snapshot = Snapshot(4, 5, 6, 10, 1_000, 2_000, batches, count)
        value = write_snapshot(snapshot)
        assert read_snapshot(value) == snapshot
        for end in range(len(value)):
            with pytest.raises(Corrupt):
                read_snapshot(value[:end])


def test_a_state_that_there_is_not_is_corrupt():
    value = write_update(Update(0, 0, 0, (StateBatch(1, 2, DONE, 1),)))
    with pytest.raises(Corrupt):
        read_update(value.replace(b"\x02\x00\x01\x00", b"\x03\x00\x01\x00"))
    with pytest.raises(Corrupt):
        read_update(b"\x00\x01" + value[2:])
