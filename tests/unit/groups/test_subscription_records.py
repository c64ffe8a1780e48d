"""The records of `__subscription_state`: there and back, and what garbage does."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.errors import Corrupt
from anabranch.groups.subscription_records import (
    CHUNK,
    DOCUMENT,
    FLOOR,
    PENDING_ACK,
    SNAPSHOT,
    StateKey,
    read_floor,
    read_key,
    read_snapshot,
    read_value,
    write_floor,
    write_key,
    write_snapshot,
    write_value,
)
from anabranch.groups.transaction_ids import TxnId
from tests.unit.records.strategies import seeded

KEYS = [
    StateKey(DOCUMENT, "grüße", "orders", 3),
    StateKey(CHUNK, "s", "tenant/ns/t", 0, 1 << 40),
    StateKey(FLOOR, "s", "orders", 0),
    StateKey(SNAPSHOT, "", "orders", 7),
    StateKey(PENDING_ACK, "s", "orders", 2, 9, TxnId(15, 1 << 40)),
]


@pytest.mark.parametrize("key", KEYS)
def test_keys(key: StateKey) -> None:
    data = write_key(key)
    assert read_key(data) == key
    for size in range(2, len(data)):
        with pytest.raises(Corrupt):
            read_key(data[:size])


def test_a_kind_of_a_later_version_is_passed_over() -> None:
    assert read_key(b"\x00\x05anything") is None
    assert read_key(b"\xff\xffanything") is None


def test_values() -> None:
    assert read_value(write_value(b"")) == b""
    assert read_floor(write_floor(1 << 62)) == 1 << 62
    assert read_snapshot(write_snapshot(UUID(int=9), b"data")) == (UUID(int=9), b"data")
    for read, data in ((read_value, b"\x00\x01x"), (read_floor, b"\x00\x00x"), (read_snapshot, b"\x00\x00x")):
        with pytest.raises(Corrupt):
            read(data)


@seeded(200)
@given(st.binary(max_size=40))
def test_garbage_is_corrupt_and_nothing_else(data: bytes) -> None:
    for read in (read_key, read_value, read_floor, read_snapshot):
        with suppress(Corrupt):
            read(data)
