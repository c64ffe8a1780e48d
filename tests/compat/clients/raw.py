"""Kafka's protocol by hand: any request at any version, for the corners that no client reaches.

    with Connection("127.0.0.1:9092") as broker:
        answer = broker.call(METADATA, 12, {"topics": [{"name": "orders"}]})

A request is told as a dictionary; fields that the version does not have are left out, fields that are not
told get their default or zero.  The answer is kio's object.  Reading it also checks that it is well formed:
the frame has exactly the bytes that the schema of that version asks for.

kio (and not our own codec) writes and reads here: a judge must not share the judged one's mistakes.
"""

import datetime
import io
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from types import TracebackType
from typing import Any, Self

import crc32c
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 19, 20, 21, 22
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS, DESCRIBE_LOG_DIRS = 23, 32, 33, 35
CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CLUSTER = 37, 44, 60
DESCRIBE_PRODUCERS, LIST_CONFIG_RESOURCES, DESCRIBE_TOPIC_PARTITIONS = 61, 74, 75

BASE_MS = int(time.time()) * 1000 - 3_600_000  # an hour ago, or retention would take the records

_ZERO: dict[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "float64": 0.0,
    "timedelta_i32": datetime.timedelta(),
    "timedelta_i64": datetime.timedelta(),
}


def build(schema: Any, values: dict[str, Any]) -> Any:
    """An entity of `schema` from plain values; milliseconds for times."""
    chosen: dict[str, Any] = {}
    for field in fields(schema):
        kind = classify_field(field)
        kafka_type = str(field.metadata.get("kafka_type"))
        if field.name in values:
            chosen[field.name] = _convert(kind, kafka_type, values[field.name])
        elif field.default is MISSING:
            if kind.is_array:
                chosen[field.name] = None if is_optional(field) else ()
            elif isinstance(kind, EntityField):
                chosen[field.name] = None if is_optional(field) else build(kind.type_, {})
            else:
                chosen[field.name] = None if is_optional(field) else _ZERO.get(kafka_type, 0)
    return schema(**chosen)


def _convert(kind: Any, kafka_type: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, EntityTupleField):
        return tuple(build(kind.type_, item) for item in value)
    if isinstance(kind, EntityField):
        return build(kind.type_, value)
    if kind.is_array:
        return tuple(value)
    if kafka_type.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    return value


class Connection:
    def __init__(self, bootstrap: str, timeout_s: float = 60.0, client_id: str = "raw") -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self._client_id = client_id
        self._next = 1

    def call(self, key: int, version: int, values: dict[str, Any] | None = None) -> Any:
        correlation = self.send(key, version, values)
        return self.receive(key, version, correlation)

    def send(self, key: int, version: int, values: dict[str, Any] | None = None) -> int:
        """Send a request without waiting.  Returns its correlation id."""
        schema = load_request_schema(key, version)
        correlation, self._next = self._next, self._next + 1
        header = build(
            schema.__header_schema__,
            {
                "request_api_key": key,
                "request_api_version": version,
                "correlation_id": correlation,
                "client_id": self._client_id,
            },
        )
        out = io.BytesIO()
        entity_writer(type(header))(out, header)
        entity_writer(schema)(out, build(schema, values or {}))
        self.send_frame(out.getvalue())
        return correlation

    def send_frame(self, body: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, key: int, version: int, correlation: int) -> Any:
        frame = self.receive_frame()
        if frame is None:
            raise ConnectionError("the broker closed the connection")
        schema = load_response_schema(key, version)
        header, used = entity_reader(schema.__header_schema__)(frame, 0)
        assert header.correlation_id == correlation, f"answer to {header.correlation_id}, not {correlation}"
        answer, size = entity_reader(schema)(frame, used)
        assert used + size == len(frame), f"{len(frame) - used - size} bytes after the answer"
        return answer

    def receive_frame(self) -> bytes | None:
        """The next frame, or None when the broker has closed the connection."""
        try:
            size = self._file.read(4)
        except ConnectionResetError:
            return None
        if len(size) < 4:
            return None
        wanted = struct.unpack(">i", size)[0]
        frame = self._file.read(wanted)
        if len(frame) < wanted:
            raise ConnectionError("the broker closed the connection in the middle of an answer")
        return frame

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def record(delta: int, value: bytes | None, key: bytes | None = None, time_delta: int = 0) -> bytes:
    parts = [b"\0", varint(time_delta), varint(delta)]
    for content in (key, value):
        parts.append(varint(-1) if content is None else varint(len(content)) + content)
    parts.append(varint(0))
    body = b"".join(parts)
    return varint(len(body)) + body


def batch(
    values: Sequence[bytes | None],
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
    base_ms: int = BASE_MS,
    max_ms: int | None = None,
    magic: int = 2,
    keys: Sequence[bytes | None] = (),
    count: int | None = None,
    crc_off_by: int = 0,
    payload: bytes | None = None,
) -> bytes:
    """A record batch; `producer` is (id, epoch, first sequence).  The last four are for lying."""
    records = payload
    if records is None:
        known = list(keys) + [None] * (len(values) - len(keys))
        records = b"".join(record(i, value, known[i]) for i, value in enumerate(values))
    number = len(values) if count is None else count
    last_ms = base_ms if max_ms is None else max_ms
    checked = struct.pack(">hiqqqhii", attributes, len(values) - 1, base_ms, last_ms, *producer, number)
    checked += records
    crc = (crc32c.crc32c(checked) + crc_off_by) & 0xFFFFFFFF
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, magic, crc) + checked


def batches(data: bytes | None) -> list[tuple[int, int, int]]:
    """(first offset, last offset, size) of every whole batch in `data`."""
    found, at = [], 0
    data = data or b""
    while at + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            break
        found.append((base, base + struct.unpack_from(">i", data, at + 23)[0], 12 + length))
        at += 12 + length
    return found


def new_producer(connection: Connection) -> int:
    """A new producer id.  Kafka needs a moment after its start to have some."""
    told = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    for _ in range(100):
        answer = connection.call(INIT_PRODUCER_ID, 4, told)
        if answer.error_code == 0:
            return int(answer.producer_id)
        time.sleep(0.1)
    raise TimeoutError(f"no producer id: {answer.error_code}")


def topic_id(connection: Connection, topic: str) -> Any:
    return connection.call(METADATA, 12, {"topics": [{"name": topic}]}).topics[0].topic_id


def create_topic(connection: Connection, topic: str, partitions: int = 1, **configs: str) -> Any:
    """Make a topic, wait until it has leaders, and return its id."""
    wanted = {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()],
    }
    made = connection.call(CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 10_000})
    assert made.topics[0].error_code == 0, made
    for _ in range(200):
        found = connection.call(METADATA, 12, {"topics": [{"name": topic}]}).topics[0]
        if found.error_code == 0 and all(p.error_code == 0 for p in found.partitions):
            return found.topic_id
    raise TimeoutError(f"{topic} has no leaders")


def produce(
    connection: Connection, topic: str, data: bytes, partition: int = 0, acks: int = -1, version: int = 9
) -> Any:
    """Produce one blob to one partition; returns the partition's answer."""
    told = [{"name": topic, "partition_data": [{"index": partition, "records": data}]}]
    answer = connection.call(PRODUCE, version, {"acks": acks, "timeout": 10_000, "topic_data": told})
    return answer.responses[0].partition_responses[0]


def fetch_request(topics: Iterable[tuple[Any, Sequence[tuple[int, int]]]], **options: Any) -> dict[str, Any]:
    """A Fetch by topic id (version 13 and later): (id, [(partition, offset)])."""
    size = options.pop("partition_max_bytes", 1 << 20)
    told = [
        {
            "topic_id": ident,
            "partitions": [
                {"partition": p, "fetch_offset": offset, "partition_max_bytes": size} for p, offset in where
            ],
        }
        for ident, where in topics
    ]
    return {"max_wait": 100, "min_bytes": 1, "max_bytes": 50 << 20, "topics": told} | options
