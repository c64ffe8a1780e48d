"""Bytes that real clients and a real Apache Kafka 4.3.1 exchanged, recorded between them.

`golden/kafka_exchanges.json` has one exchange an API and version: what confluent-kafka, kafka-python or
aiokafka asked and what Kafka answered, as whole frames without their length.  We must understand the
question, and writing the same answer must give the same bytes.
"""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from kio.serial import entity_reader

from anabranch.wire.kafka.decoder import Cursor, decode, skip_tags
from anabranch.wire.kafka.encoder import encoder
from anabranch.wire.kafka.schema import answers_flexibly, is_flexible, request_schema, response_schema
from tests.wire.kafka_messages import assert_read, plain

EXCHANGES = json.loads(
    (Path(__file__).parent / "golden" / "kafka_exchanges.json").read_text(encoding="utf-8")
)
each = pytest.mark.parametrize(
    "exchange", EXCHANGES, ids=[f"{e['api']}-v{e['version']}-{e['client'].split()[0]}" for e in EXCHANGES]
)


def body_of_request(frame: bytes, key: int, version: int) -> int:
    """Where the body starts, after the client's name and the tags."""
    assert struct.unpack_from(">hh", frame) == (key, version)
    name_size = max(struct.unpack_from(">h", frame, 8)[0], 0)
    cursor = Cursor(memoryview(frame), 10 + name_size)
    if is_flexible(key, version):
        skip_tags(cursor)
    return cursor.at


@each
def test_what_real_clients_send_is_understood(exchange: dict[str, Any]) -> None:
    key, version, frame = exchange["api"], exchange["version"], bytes.fromhex(exchange["request"])
    at = body_of_request(frame, key, version)
    meant, size = entity_reader(request_schema(key, version))(frame, at)
    assert at + size == len(frame)
    assert_read(decode(key, version, memoryview(frame), at), meant)


@each
def test_what_kafka_answers_is_written_alike(exchange: dict[str, Any]) -> None:
    key, version, frame = exchange["api"], exchange["version"], bytes.fromhex(exchange["answer"])
    at = 5 if answers_flexibly(key, version) else 4
    meant, size = entity_reader(response_schema(key, version))(frame, at)
    assert at + size == len(frame)
    out = bytearray()
    encoder(key, version)(out, plain(meant))
    assert out.hex() == frame[at:].hex()


def test_a_request_by_hand() -> None:
    """Metadata v12 for `a` and for a topic id, spelled out byte by byte."""
    body = bytes.fromhex(
        "03"  # two topics
        "00000000000000000000000000000000" "0261" "00"  # no id, "a", no tags
        "000102030405060708090a0b0c0d0e0f" "00" "00"  # an id, no name, no tags
        "00" "01"  # no auto-creation, authorized operations
        "01" "63" "02" "beef"  # a tag nobody knows, two bytes
    )  # fmt: skip
    request = decode(3, 12, memoryview(body), 0)
    assert [topic.name for topic in request.topics] == ["a", None]
    assert request.topics[0].topic_id is None
    assert str(request.topics[1].topic_id) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (request.allow_auto_topic_creation, request.include_topic_authorized_operations) == (False, True)
    # A field that version 12 no longer has is there all the same, with its default.
    assert decode(3, 0, memoryview(bytes(4)), 0).allow_auto_topic_creation is True


def test_an_answer_by_hand() -> None:
    out = bytearray()
    encoder(22, 4)(out, {"producer_id": 7, "producer_epoch": 0})
    assert out.hex() == "00000000" "0000" "0000000000000007" "0000" "00"  # fmt: skip
