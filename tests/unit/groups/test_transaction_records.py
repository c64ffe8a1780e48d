"""The bytes of `golden` are those that Apache Kafka 4.3.1 wrote."""

import pytest

from anabranch.base.errors import Corrupt
from anabranch.groups.transaction_records import (
    STATES,
    State,
    Transaction,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

KAFKAS = [
    (
        "000100000000000001b00000000027100000000001a1e09aed77ffffffffffffffff01000800000000000001b0",
        Transaction(432, 0, 10_000, updated_ms=1794769612151, previous_producer_id=432),
    ),
    (
        "000100000000000001b000020000271001020867343535342d7402000000000000"
        "0001a1e09b1923000001a1e09b192301000800000000000001b0",
        Transaction(
            432,
            2,
            10_000,
            State.ONGOING,
            frozenset({("g4554-t", 0)}),
            updated_ms=1794769623331,
            started_ms=1794769623331,
            previous_producer_id=432,
        ),
    ),
    (
        "000100000000000001b00001000027100501000001a1e09b1728000001a1e09b14d002000800000000000001b002020002",
        Transaction(
            432,
            1,
            10_000,
            State.COMPLETE_ABORT,
            updated_ms=1794769622824,
            started_ms=1794769622224,
            previous_producer_id=432,
            client_version=2,
        ),
    ),
]
# Version 0: what a cluster at transaction.version 0 writes.
OLD = (
    "0000" "0000000000000007" "0003" "0000ea60" "03"
    "00000001" "0001" "61" "00000002" "00000001" "00000004"
    "0000000000000010" "0000000000000008"
)  # fmt: skip


@pytest.mark.parametrize(("golden", "transaction"), KAFKAS)
def test_bytes_are_kafkas(golden: str, transaction: Transaction) -> None:
    assert decode_value(bytes.fromhex(golden)) == transaction
    assert encode_value(transaction).hex() == golden


def test_keys_are_kafkas() -> None:
    assert encode_key("tx1").hex() == "00000003747831"
    assert decode_key(encode_key("tx1")) == "tx1"
    assert decode_key(b"\x00\x05abc") is None


def test_the_old_version_is_read() -> None:
    found = decode_value(bytes.fromhex(OLD))
    partitions = frozenset({("a", 1), ("a", 4)})
    assert found == Transaction(7, 3, 60_000, State.PREPARE_ABORT, partitions, updated_ms=16, started_ms=8)


def test_every_field_survives() -> None:
    full = Transaction(
        5, 3, 9, State.PREPARE_COMMIT, frozenset({("a", 1), ("a", 0), ("b", 7)}), 11, 10, 4, 6, 2
    )
    assert decode_value(encode_value(full)) == full


def test_an_unknown_version_is_passed_over() -> None:
    assert decode_value(b"\x00\x02rest") is None


@pytest.mark.parametrize("cut", range(2, len(bytes.fromhex(KAFKAS[1][0])), 3))
def test_a_cut_record_is_corrupt(cut: int) -> None:
    with pytest.raises(Corrupt):
        decode_value(bytes.fromhex(KAFKAS[1][0])[:cut])


@pytest.mark.parametrize("state", [6, 7, 8, 127, 255])
def test_a_state_that_is_never_written_is_corrupt(state: int) -> None:
    value = bytearray(bytes.fromhex(KAFKAS[0][0]))
    value[16] = state
    with pytest.raises(Corrupt):
        decode_value(bytes(value))


def test_names_are_those_of_kafkas_tools() -> None:
    assert list(STATES) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
