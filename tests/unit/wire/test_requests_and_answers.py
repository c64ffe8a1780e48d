"""The client's side of the codec: brokers read the requests that it writes, and it reads their answers."""

import pytest

from anabranch.base.errors import Corrupt
from anabranch.wire.kafka.decoder import decode, decode_answer
from anabranch.wire.kafka.encoder import encoder, request_encoder

FIND_COORDINATOR, API_VERSIONS, WRITE_TXN_MARKERS, LIST_TRANSACTIONS = 10, 18, 27, 66


@pytest.mark.parametrize("version", range(7))
def test_a_request_is_read_as_it_was_written(version: int) -> None:
    out = bytearray(b"before")
    values = {"key": "payments", "key_type": 1, "coordinator_keys": ["payments", "refunds"]}
    request_encoder(FIND_COORDINATOR, version)(out, values)
    read = decode(FIND_COORDINATOR, version, memoryview(bytes(out)), len(b"before"))
    assert read.key_type == (1 if version >= 1 else 0)
    if version >= 4:
        assert list(read.coordinator_keys) == ["payments", "refunds"]
    else:
        assert (read.key, list(read.coordinator_keys)) == ("payments", [])


@pytest.mark.parametrize("version", [1, 2])
def test_arrays_within_arrays(version: int) -> None:
    markers = [
        {
            "producer_id": 7,
            "producer_epoch": 3,
            "transaction_result": True,
            "topics": [{"name": "t", "partition_indexes": [0, 2]}],
            "coordinator_epoch": 5,
        }
    ]
    out = bytearray()
    request_encoder(WRITE_TXN_MARKERS, version)(out, {"markers": markers})
    (marker,) = decode(WRITE_TXN_MARKERS, version, memoryview(bytes(out)), 0).markers
    assert (marker.producer_id, marker.transaction_result, marker.coordinator_epoch) == (7, True, 5)
    assert [(topic.name, list(topic.partition_indexes)) for topic in marker.topics] == [("t", [0, 2])]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_answer_is_read_as_it_was_written(version: int) -> None:
    state = {"transactional_id": "payments", "producer_id": 7, "transaction_state": "Ongoing"}
    out = bytearray()
    encoder(LIST_TRANSACTIONS, version)(
        out, {"unknown_state_filters": ["Odd"], "transaction_states": [state]}
    )
    read = decode_answer(LIST_TRANSACTIONS, version, memoryview(bytes(out)), 0)
    assert (int(read.error_code), list(read.unknown_state_filters)) == (0, ["Odd"])
    (only,) = read.transaction_states
    assert {name: getattr(only, name) for name in state} == state


@pytest.mark.parametrize("version", range(4))
def test_half_an_answer_is_none(version: int) -> None:
    out = bytearray()
    encoder(API_VERSIONS, version)(out, {"api_keys": [{"api_key": 3, "min_version": 0, "max_version": 13}]})
    assert decode_answer(API_VERSIONS, version, memoryview(bytes(out)), 0).api_keys[0].max_version == 13
    for end in range(len(out)):
        with pytest.raises(Corrupt):
            decode_answer(API_VERSIONS, version, memoryview(bytes(out[:end])), 0)
