"""There and back between the protocols, whatever a record or a message has, under every codec.

The models are naive: protobuf objects and records, a message at a time.
"""

import struct
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.base.errors import AnabranchError
from anabranch.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    crc_of,
    read_header,
)
from anabranch.records.builder import build_batch
from anabranch.records.entries import count_of, read_metadata, verify
from anabranch.records.entry_payloads import compressed, entry_of, payload_of
from anabranch.records.pulsar_metadata_pb2 import (
    CompressionType,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)
from anabranch.records.record import Record, iter_records
from anabranch.records.record import payload_of as records_of
from anabranch.records.to_kafka import as_kafka_batch, key_of
from anabranch.records.to_pulsar import gaps_in, message_pieces
from tests.support.entries import as_pulsar_entry, enclosed, messages_of
from tests.unit.records.strategies import seeded

LIMIT = 1 << 20
BASE = 1_000
NOW_MS = 1_790_000_000_000

short = st.one_of(st.binary(max_size=12), st.sampled_from([b"", b"k", b"\xff", "ä".encode(), b"x" * 600]))
names = st.one_of(
    st.sampled_from([b"a", b"a", b"b", b"kafka.headers", b"pulsar.ordering-key"]), st.binary(max_size=5)
)
headers = st.lists(st.tuples(names, st.one_of(st.none(), short)), max_size=4).map(tuple)
times = st.one_of(st.integers(NOW_MS, NOW_MS + 5), st.sampled_from([-1, 0, 1, 127, 1 << 42, (1 << 62)]))


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Record], dict[str, Any]]:
    """Records, perhaps with gaps between them, and how their batch is built."""
    fields = draw(
        st.lists(st.tuples(times, st.one_of(st.none(), short), st.one_of(st.none(), short), headers))
    )
    records, offset = [], BASE
    for timestamp, key, value, more in fields or [(NOW_MS, None, b"", ())]:
        records.append(Record(offset, timestamp, key, value, more))
        offset += draw(st.sampled_from([1, 1, 1, 3]))
    how: dict[str, Any] = {"codec": draw(st.integers(0, 4)), "base_offset": BASE, "last_offset": offset - 1}
    if draw(st.booleans()):
        how |= {
            "producer_id": 7,
            "producer_epoch": 1,
            "base_sequence": 5,
            "transactional": draw(st.booleans()),
        }
    if draw(st.booleans()):
        how["append_time_ms"] = NOW_MS
    return records, how


def parsed(batch: bytes | memoryview) -> tuple[BatchHeader, list[Record]]:
    header = read_header(batch)
    assert header.crc == crc_of(batch)
    return header, list(iter_records(header, records_of(header, batch, LIMIT)))


@given(batches())
@seeded(150)
def test_records_come_back_from_pulsar_as_they_were(made: tuple[list[Record], dict[str, Any]]) -> None:
    records, how = made
    batch = memoryview(build_batch(records, **how))
    header = read_header(batch)
    entry = as_pulsar_entry(header, batch)
    verify(memoryview(entry))
    metadata = read_metadata(entry)
    assert count_of(metadata) == header.last_offset_delta + 1
    stored = enclosed(entry, count_of(metadata), header.max_timestamp, offset=BASE)
    _, back = parsed(as_kafka_batch(read_header(stored), stored, LIMIT))
    stamped = header.attributes & LOG_APPEND_TIME
    expected = [
        record._replace(
            timestamp=NOW_MS
            if stamped
            else record.timestamp
            if record.timestamp > 0
            else header.max_timestamp
        )
        for record in records
    ]
    assert back == expected
    gone = [at for at, (single, _) in enumerate(messages_of(entry), BASE) if single.compacted_out]
    assert gone == [
        at for start, end in gaps_in(header, records_of(header, batch, LIMIT)) for at in range(start, end)
    ]


@given(batches())
@seeded(60)
def test_records_one_by_one_are_the_same(made: tuple[list[Record], dict[str, Any]]) -> None:
    records, how = made
    batch = memoryview(build_batch(records, **how))
    header = read_header(batch)
    together, alone = [], []
    for at, (single, value) in enumerate(messages_of(as_pulsar_entry(header, batch)), BASE):
        if not single.compacted_out:
            together.append((at, described(single), value))
    for piece in message_pieces(header, records_of(header, batch, LIMIT)):
        for at, entry in piece:
            verify(memoryview(entry))
            alone.append((at, described(read_metadata(entry)), bytes(payload_of(memoryview(entry)))))
    assert alone == together


def described(message: MessageMetadata | SingleMessageMetadata) -> tuple[Any, ...]:
    return (
        key_of(message),
        message.event_time,
        message.null_value,
        message.ordering_key if message.HasField("ordering_key") else None,
        [(each.key, each.value) for each in message.properties],
    )


# --- the other way


texts = st.one_of(st.text(max_size=8), st.sampled_from(["", "k", "ä", "x" * 200, "/w==", "!"]))
properties = st.lists(st.tuples(texts.filter(lambda name: name != "kafka.headers"), texts), max_size=3)
event_times = st.one_of(st.sampled_from([0, 1, 127, 1 << 42, (1 << 64) - 1]), st.integers(NOW_MS, NOW_MS + 3))


@st.composite
def message_fields(draw: st.DrawFn) -> dict[str, Any]:
    fields: dict[str, Any] = {"properties": [KeyValue(key=k, value=v) for k, v in draw(properties)]}
    for name, values in (
        ("partition_key", texts),
        ("partition_key_b64_encoded", st.booleans()),
        ("ordering_key", st.binary(max_size=4)),
        ("event_time", event_times),
        ("null_value", st.booleans()),
    ):
        if draw(st.booleans()):
            fields[name] = draw(values)
    return fields


@st.composite
def entries(draw: st.DrawFn) -> tuple[bytes, list[tuple[dict[str, Any], bytes]], int]:
    """An entry as clients write it, its messages, and how many offsets it has."""
    common: dict[str, Any] = {"producer_name": "p", "sequence_id": 3, "publish_time": NOW_MS}
    if draw(st.booleans()):
        common["schema_version"] = draw(st.binary(max_size=8))
    codec = draw(st.sampled_from(list(CompressionType.values())))
    if draw(st.booleans()):
        fields, value = draw(message_fields()), draw(short)
        metadata = MessageMetadata(**common, **fields, compression=codec, uncompressed_size=len(value))
        return entry_of(metadata, compressed(codec, value)), [(fields, value)], 1
    messages, plain = [], b""
    for number in range(draw(st.integers(1, 8))):
        fields, value = draw(message_fields()), draw(short)
        if draw(st.booleans()):
            fields["sequence_id"] = number
        single = SingleMessageMetadata(**fields, payload_size=len(value)).SerializeToString()
        plain += struct.pack(">I", len(single)) + single + value
        messages.append((fields, value))
    metadata = MessageMetadata(
        **common, compression=codec, uncompressed_size=len(plain), num_messages_in_batch=len(messages)
    )
    return entry_of(metadata, compressed(codec, plain)), messages, len(messages)


@given(entries(), st.sampled_from([0, TRANSACTIONAL, LOG_APPEND_TIME]))
@seeded(150)
def test_messages_become_records_and_messages_again(
    made: tuple[bytes, list[tuple[dict[str, Any], bytes]], int], attributes: int
) -> None:
    entry, messages, count = made
    stored = enclosed(entry, count, NOW_MS, offset=BASE, leader_epoch=4)
    header = read_header(stored)
    header = header._replace(attributes=header.attributes | attributes, producer_id=9, producer_epoch=2)
    batch = as_kafka_batch(header, stored, LIMIT)
    kafka, records = parsed(batch)
    assert (kafka.attributes, kafka.producer_id, kafka.leader_epoch) == (attributes, 9, 4)
    assert [record.offset for record in records] == list(range(BASE, BASE + count))
    assert kafka.max_timestamp == max(record.timestamp for record in records)
    version = read_metadata(entry).schema_version
    for record, (fields, value) in zip(records, messages, strict=True):
        event = fields.get("event_time", 0)
        is_sound = 0 < event < 1 << 63 and not attributes & LOG_APPEND_TIME
        assert record.timestamp == (event if is_sound else NOW_MS)
        assert record.value == (None if fields.get("null_value") else value)
        assert record.key == key_of(SingleMessageMetadata(**(fields | {"payload_size": 0})))
        expected = [(each.key.encode(), each.value.encode()) for each in fields["properties"]]
        if "ordering_key" in fields and (b"pulsar.ordering-key", fields["ordering_key"]) not in expected:
            expected.append((b"pulsar.ordering-key", fields["ordering_key"]))
        if read_metadata(entry).HasField("schema_version"):
            expected.append((b"pulsar.schema-version", version))
        assert list(record.headers) == expected


# --- what is none


@given(entries(), st.data())
@seeded(100)
def test_damaged_entries_are_errors(
    made: tuple[bytes, list[tuple[dict[str, Any], bytes]], int], data: st.DataObject
) -> None:
    entry, _, count = made
    damaged = bytearray(entry)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(10, len(damaged))) :]
    stored = enclosed(bytes(damaged), count, NOW_MS, offset=BASE)
    with suppress(AnabranchError):
        parsed(as_kafka_batch(read_header(stored), stored, LIMIT))


@given(batches(), st.data())
@seeded(100)
@example(([Record(BASE, 1, b"k", b"v")], {"codec": 0}), None)
def test_damaged_batches_are_errors(
    made: tuple[list[Record], dict[str, Any]], data: st.DataObject | None
) -> None:
    records, how = made
    batch = build_batch(records, **how)
    if data is not None:
        for _ in range(data.draw(st.integers(1, 4))):
            batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    header = read_header(batch)
    if data is not None:
        header = header._replace(count=data.draw(st.sampled_from([0, header.count, 1 << 20, (1 << 31) - 1])))
        header = header._replace(
            last_offset_delta=data.draw(st.sampled_from([header.last_offset_delta, 0, (1 << 31) - 1]))
        )
    try:
        entry = as_pulsar_entry(header, batch, LIMIT)
    except AnabranchError:
        return
    assert count_of(read_metadata(entry)) == header.last_offset_delta + 1 == len(messages_of(entry))
