"""What Java's and Go's producers write, byte for byte, as the other protocol's clients see it.

Recorded by bench/anchors/record_crossing.py, whose programs say what they sent: ten messages per topic.
"""

import base64
import json
from pathlib import Path

import pytest

from anabranch.records.batch import HEADER_SIZE, PULSAR_ENTRY, read_header
from anabranch.records.entries import read_metadata, verify
from anabranch.records.record import Record, iter_records, payload_of
from anabranch.records.to_kafka import as_kafka_batch, is_chunk, key_of
from tests.support.entries import as_pulsar_entry, messages_of

GOLDEN: dict[str, list[str]] = json.loads((Path(__file__).parent / "golden" / "crossing.json").read_text())
TIME_MS = 1_790_000_000_000
LIMIT = 1 << 20


def topics(beginning: str) -> list[str]:
    return [
        name
        for name in GOLDEN
        if name.startswith(beginning) and "chunks" not in name and "schema" not in name
    ]


def batches(topic: str) -> list[memoryview]:
    return [memoryview(base64.b64decode(batch)) for batch in GOLDEN[topic]]


def records_of(topic: str) -> list[Record]:
    """What Kafka's consumers get of a topic."""
    found = []
    for batch in batches(topic):
        header = read_header(batch)
        assert header.attributes == PULSAR_ENTRY
        made = as_kafka_batch(header, batch, LIMIT)
        header = read_header(made)
        found += iter_records(header, payload_of(header, made, LIMIT))
    return found


@pytest.mark.parametrize("topic", [*topics("java-pulsar"), *topics("go-pulsar")])
def test_messages_of_pulsars_producers(topic: str) -> None:
    assert len(batches(topic)) == (10 if topic.endswith("single") else 1)
    is_java = topic.startswith("java")
    for number, record in enumerate(records_of(topic)):
        key, value = b"k%d" % number, b"value-%d" % number
        if is_java and number == 7:
            key = b"\xff\x07"
        assert record[:4] == (number, TIME_MS + number, key, None if is_java and number == 8 else value)
        assert sorted(record.headers) == [
            (b"a", b"1"),
            (b"n", b"%d" % number),
            (b"pulsar.ordering-key", b"o%d" % number),
        ]


def test_every_codec_is_among_them() -> None:
    def codecs(beginning: str) -> set[int]:
        return {
            read_metadata(batch[HEADER_SIZE:]).compression
            for topic in topics(beginning)
            for batch in batches(topic)
        }

    assert codecs("java-pulsar") == {0, 1, 2, 3, 4}
    assert codecs("go-pulsar") == {0, 1, 2, 3}  # its library has no snappy
    assert {read_header(batch).codec for topic in topics("java-kafka") for batch in batches(topic)} == set(
        range(5)
    )


def test_a_schemas_version() -> None:
    [record] = records_of("java-pulsar-schema")
    assert (record.key, record.value) == (b"k", b"text")
    assert record.headers == ((b"pulsar.schema-version", bytes(8)),)


def test_chunks_say_so() -> None:
    parts = [read_metadata(batch[HEADER_SIZE:]) for batch in batches("go-pulsar-chunks")]
    assert [(part.chunk_id, part.num_chunks_from_msg, is_chunk(part)) for part in parts] == [
        (number, 3, True) for number in range(3)
    ]
    assert records_of("go-pulsar-chunks") == []  # alone they are nothing: partition/chunked.py


@pytest.mark.parametrize("topic", topics("java-kafka"))
def test_records_of_kafkas_producer(topic: str) -> None:
    [batch] = batches(topic)
    entry = memoryview(as_pulsar_entry(read_header(batch), batch))
    verify(entry)
    assert read_metadata(entry).publish_time == TIME_MS + 9
    for number, (message, value) in enumerate(messages_of(entry)):
        key = {7: b"\xff\x07", 9: None}.get(number, b"k%d" % number)
        assert (key_of(message), message.event_time) == (key, TIME_MS + number)
        assert message.partition_key_b64_encoded == (number == 7)
        assert (message.null_value, value) == (number == 8, b"" if number == 8 else b"value-%d" % number)
        properties = {each.key: each.value for each in message.properties}
        if number != 3:
            assert properties == {"n": str(number)}
            continue
        listed = json.loads(properties.pop("kafka.headers"))
        assert listed == [["n", "3"], ["n", "again"], ["raw", {"base64": "/g=="}], ["null", None]]
        assert properties == {"n": "again", "raw": "/g==", "null": ""}
