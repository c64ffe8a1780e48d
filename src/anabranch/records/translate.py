"""From one protocol's messages to the other's, a batch at a time.

A Kafka batch becomes a Pulsar batch entry, not compressed, with a message for every offset that the batch
stands for, so that entry id + batch index is the offset here as everywhere:

    record             message
    key                partition key; base64, and marked so, if it is not UTF-8
    value              payload; null is marked
    timestamp          event time; the batch's largest is the publish time
    headers            properties, of a repeated one the last; a value that is not UTF-8 as base64
    one that compaction took      a message that is marked as compacted out
"""

import base64
import struct

from crc32c import crc32c

from anabranch.base.disk import Buffer
from anabranch.records.batch import BatchHeader
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata, SingleMessageMetadata
from anabranch.records.record import Record, iter_records, payload_of

PRODUCER_NAME = "kafka"
_UNPACKED_BYTES = 64 << 20
_SIZE = struct.Struct(">I")
_CHECKED = struct.Struct(">HI")
_MAGIC = 0x0E01


def as_pulsar_entry(header: BatchHeader, batch: Buffer, limit_bytes: int = _UNPACKED_BYTES) -> bytes:
    """What a Pulsar consumer gets for a batch that a Kafka producer wrote."""
    metadata = MessageMetadata(
        producer_name=PRODUCER_NAME,
        sequence_id=max(header.base_sequence, 0),
        publish_time=max(header.max_timestamp, 0),
        num_messages_in_batch=header.last_offset_delta + 1,
    )
    messages: list[bytes] = []
    expected = header.base_offset
    for record in iter_records(header, payload_of(header, batch, limit_bytes)):
        messages.extend(_GONE for _ in range(record.offset - expected))
        messages.append(_message(record))
        expected = record.offset + 1
    messages.extend(_GONE for _ in range(header.last_offset + 1 - expected))
    payload = b"".join(messages)
    metadata.uncompressed_size = len(payload)
    described = metadata.SerializeToString()
    body = b"".join((_SIZE.pack(len(described)), described, payload))
    return _CHECKED.pack(_MAGIC, crc32c(body)) + body


def _message(record: Record) -> bytes:
    value = record.value
    single = SingleMessageMetadata(payload_size=0 if value is None else len(value))
    if value is None:
        single.null_value = True
    if record.timestamp > 0:
        single.event_time = record.timestamp
    if record.key is None:
        single.null_partition_key = True
    else:
        single.partition_key, encoded = _text(record.key)
        if encoded:
            single.partition_key_b64_encoded = True
    for name, header_value in dict(record.headers).items():
        single.properties.add(key=_text(name)[0], value=_text(header_value or b"")[0])
    described = single.SerializeToString()
    return b"".join((_SIZE.pack(len(described)), described, value or b""))


def _text(data: bytes) -> tuple[str, bool]:
    """`data` as text, and whether that took base64."""
    try:
        return data.decode("utf-8"), False
    except UnicodeDecodeError:
        return base64.b64encode(data).decode("ascii"), True


def _gone() -> bytes:
    described = SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString()
    return _SIZE.pack(len(described)) + described


_GONE = _gone()
