"""JSON, Protobuf and Pulsar's single values as columns; records grouped by the schema that wrote them."""

import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.base.errors import Corrupt, Invalid, NotFound
from anabranch.spark.column_types import in_table
from anabranch.spark.columns import of_table
from anabranch.spark.values import protobuf_read, pulsar_types, to_column, typed
from anabranch.spark.values import registry as registry_module
from anabranch.spark.values.cursor import Pieces, padded
from anabranch.spark.values.json_read import reader_of
from anabranch.spark.values.json_types import of_json_schema
from anabranch.spark.values.reading import Target, read_column, type_of
from anabranch.spark.values.registry import Registry, Schema
from anabranch.spark.values.typed import Side, Typed

WHERE = Registry("http://127.0.0.1:1", 1.0)
LONG = Schema("AVRO", '"long"', 1)
TEXT = Schema("AVRO", '"string"', 2)
JSON = Schema("JSON", '{"type": "integer"}', 3)
KNOWN = {1: LONG, 2: TEXT, 3: JSON}
ASKED: list[int] = []


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_id(registry: Registry, id: int) -> Schema:
        ASKED.append(id)
        if id not in KNOWN:
            raise NotFound(f"Schema {id} not found")
        return KNOWN[id]

    ASKED.clear()
    monkeypatch.setattr(Registry, "by_id", by_id)
    monkeypatch.setattr(Registry, "written_by", lambda registry, subject, version: KNOWN[version])
    monkeypatch.setattr(registry_module, "_known", {})


def framed(id: int, value: bytes) -> bytes:
    return b"\0" + id.to_bytes(4, "big") + value


def test_rows_of_several_schemas_come_back_in_order() -> None:
    values = [
        framed(1, b"\x02"),
        None,
        framed(2, b"\x02x"),
        framed(9, b""),
        b"\0\0",
        framed(1, b"\x04"),
        b"\x06",
    ]
    versions = np.array([-1] * 6 + [0], np.int64)
    target = Target("t-value", "t", LONG)
    found, reasons = read_column(WHERE, target, pa.array(values, pa.binary()), versions, None)
    assert found.to_pylist() == [1, None, None, None, None, 2, 3]
    assert reasons == {
        2: "string of the writer's schema is long in the reader's",
        3: "its schema is not to be had: Schema 9 not found",
        4: "it does not begin with the id of a schema",
    }
    found, reasons = read_column(WHERE, target, pa.array([framed(3, b"7")]), np.array([-1]), None)
    assert reasons == {0: "it is written as JSON, not as AVRO"}
    found, reasons = read_column(WHERE, target, pa.array([], pa.binary()), np.zeros(0, np.int64), None)
    assert (found.to_pylist(), found.type, reasons) == ([], pa.int64(), {})


def test_ids_that_stand_for_nothing_are_not_asked_for_without_end() -> None:
    target = Target("t-value", "t", LONG)
    no_versions = np.full(50_001, -1, np.int64)
    first = pa.array([framed(1, b"\x02")], pa.binary())
    read_column(WHERE, target, first, no_versions[:1], None)
    values = [framed(id, b"\x02") for id in range(10, 50_010)] + [framed(1, b"\x04")]
    found, reasons = read_column(WHERE, target, pa.array(values, pa.binary()), no_versions, None)
    assert found[50_000].as_py() == 2, "what is known is not among what nobody knows"
    assert len(reasons) == 50_000
    assert reasons[0] == "its schema is not to be had: Schema 10 not found"
    assert "nobody was asked" in reasons[49_999]
    assert len(ASKED) == 1001


def test_a_column_that_is_a_slice_of_another() -> None:
    whole = pa.array([b"junk", framed(1, b"\x02"), framed(1, b"\x04"), b"junk"])
    found, reasons = read_column(WHERE, Target("s", "t", LONG), whole.slice(1, 2), np.array([-1, -1]), None)
    assert (found.to_pylist(), reasons) == ([1, 2], {})


def side(spread: bool = True) -> Typed:
    one = Side("value", (Target("t-value", "t", LONG),), None, None, pa.int64(), spread)
    return Typed(WHERE, (one,), permissive=True)


def test_rows_of_a_table_are_read_by_their_schemas() -> None:
    columns: dict[str, Any] = {
        "key": [b"k", None],
        "value": [framed(1, b"\x02"), b"poison"],
        "topic": ["t", "t"],
        "partition": [0, 0],
        "offset": [5, 6],
        "timestamp": [0, 1],
        "timestampType": [0, 0],
        "headers": [None, [{"key": "h", "value": b"1"}]],
    }
    rows = pa.RecordBatch.from_pydict(columns, schema=in_table(()))
    reasons = [("_corrupt_record", pa.binary()), ("_corrupt_reason", pa.string())]
    schema = pa.schema([("value", pa.int64()), ("offset", pa.int64()), *reasons])
    assert of_table(rows, schema, side()).to_pylist() == [
        {"value": 1, "offset": 5, "_corrupt_record": None, "_corrupt_reason": None},
        {
            "value": None,
            "offset": 6,
            "_corrupt_record": b"poison",
            "_corrupt_reason": "the value: it does not begin with the id of a schema",
        },
    ]
    with pytest.raises(Corrupt, match="the value at offset 6 of t-0"):
        of_table(rows, schema.remove(3).remove(2), side()._replace(permissive=False))


def test_a_topic_that_comes_up_later_must_have_the_same_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    one = side().sides[0]
    found = {"same": Target("same-value", "same", LONG), "other": Target("other-value", "other", TEXT)}
    monkeypatch.setattr(typed, "_found_later", lambda registry, topic, subject, version: found[topic])
    assert one.target(WHERE, "t").topic == "t"
    assert one.target(WHERE, "same") == found["same"]
    with pytest.raises(Invalid, match="topic 'other', which is new"):
        one.target(WHERE, "other")


@pytest.mark.parametrize(
    ("schema", "type"),
    [
        ({"type": ["null", "string"]}, pa.string()),
        ({"oneOf": [{"type": "null"}, {"type": "number"}]}, pa.float64()),
        ({"oneOf": [{"type": "string"}, {"type": "number"}]}, pa.string()),
        ({"type": "object"}, pa.string()),
        ({"type": "array", "items": {"type": "boolean"}}, pa.list_(pa.field("element", pa.bool_()))),
        ({"$ref": "#/definitions/x~1y", "definitions": {"x/y": {"type": "integer"}}}, pa.int64()),
        ({"$ref": "elsewhere.json"}, pa.string()),
        (True, pa.string()),
    ],
)
def test_json_schemas_as_types(schema: Any, type: pa.DataType) -> None:
    assert of_json_schema(schema).type == type


def test_json_that_is_too_deep_or_too_large() -> None:
    with pytest.raises(Invalid, match="contains itself"):
        of_json_schema({"type": "object", "properties": {"next": {"$ref": "#"}}})
    read = reader_of(of_json_schema({"type": "integer"}))
    values = pa.array([b"1", b"9223372036854775808", b"1.5", b"null", b"", b"\xff", b"[" * 100_000])
    found, reasons = read(values)
    assert found.to_pylist()[:2] == [1, None]
    assert set(reasons) == {1, 2, 3, 4, 5, 6}


def test_not_all_values_are_objects_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is wrong is told of the right one, wherever a part of them begins."""
    parts: list[int] = []
    real = to_column._column_of

    def counted(values: list[Any], *other: Any) -> pa.Array:
        parts.append(len(values))
        return real(values, *other)

    monkeypatch.setattr(to_column, "_column_of", counted)
    large = json.dumps("x" * 100_000).encode()
    values = [large, b"5", large, large, large, b"6", b'"\\ud800"', b'"y"']
    found, reasons = reader_of(of_json_schema({"type": "string"}))(pa.array(values, pa.binary()))
    assert parts == [4, 4]
    assert sorted(reasons) == [1, 5, 6]
    assert [None if one is None else len(one) for one in found.to_pylist()] == [
        *(100_000, None, 100_000, 100_000),
        *(100_000, None, None, 1),
    ]
    empty, _ = reader_of(of_json_schema({"type": "string"}))(pa.array([], pa.binary()))
    assert (len(empty), empty.type) == (0, pa.string())


def test_protobuf_messages_that_contain_themselves() -> None:
    text = 'syntax = "proto3"; message Node { int32 value = 1; Node next = 2; }'
    with pytest.raises(Invalid, match="Node contains itself"):
        type_of(Schema("PROTOBUF", text))
    file = protobuf_read.descriptor_of(text)
    with pytest.raises(Invalid, match="no such message"):
        protobuf_read.message_at(file, (1,))


def test_text_of_protobuf_that_is_none_spoils_only_its_row() -> None:
    text = 'syntax = "proto2"; message M { optional string name = 1; repeated string tags = 2; }'
    read = protobuf_read.reader_of(protobuf_read.message_at(protobuf_read.descriptor_of(text), (0,)))
    values = [b"\x0a\x02ab", b"\x0a\x02\xff\xfe", b"\x12\x01x\x12\x01\xff", b"", b"\x0a\x05"]
    found, reasons = read(pa.array(values))
    assert found.to_pylist() == [{"name": "ab", "tags": []}, None, None, {"name": None, "tags": []}, None]
    assert set(reasons) == {1, 2, 4}
    assert "utf8" in reasons[1]


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        ("STRING", "é".encode(), "é"),
        ("BYTES", b"\0\xff", b"\0\xff"),
        ("INT8", b"\xff", -1),
        ("INT16", struct.pack(">h", -300), -300),
        ("INT32", struct.pack(">i", 70_000), 70_000),
        ("INT64", struct.pack(">q", -(1 << 60)), -(1 << 60)),
        ("FLOAT", struct.pack(">f", 1.5), 1.5),
        ("DOUBLE", struct.pack(">d", 0.1), 0.1),
        ("BOOLEAN", b"\1", True),
    ],
)
def test_pulsars_single_values(kind: str, written: bytes, value: Any) -> None:
    data = np.frombuffer(written + written, np.uint8)
    size = len(written)
    pieces = Pieces(padded(data), np.array([0, size]), np.array([size, 2 * size]))
    column = pulsar_types.reader_of(kind)(pieces)
    assert (column.to_pylist(), column.type) == ([value, value], pulsar_types.TYPES[kind])
    if kind in ("INT32", "DOUBLE"):
        short = Pieces(padded(data), np.array([0]), np.array([size - 1]))
        pulsar_types.reader_of(kind)(short)
        assert short.reasons == {0: "it ends too early"}


def test_values_of_a_schema_that_doubles_with_every_level_are_bad_ones() -> None:
    inner: Any = "int"
    reader: Any = "int"
    writer: list[Any] = []
    for level in range(18):
        for name in (f"A{level}", f"B{level}"):
            type = {"type": "record", "name": name, "fields": [{"name": "f", "type": inner}]}
            writer.append({"name": f"is{name}", "type": type})
        inner = [f"A{level}", f"B{level}"]
        reader = {"type": "record", "name": f"R{level}", "fields": [{"name": "f", "type": reader}]}
    writer.append({"name": "f", "type": inner})
    text = json.dumps({"type": "record", "name": "W", "fields": writer})
    KNOWN[50] = Schema("AVRO", text, 50)
    fields = [{"name": "f", "type": reader}]
    asked = Schema("AVRO", json.dumps({"type": "record", "name": "W", "fields": fields}))
    target = Target("t-value", "t", asked)
    found, reasons = read_column(WHERE, target, pa.array([framed(50, b"\0" * 30)]), np.array([-1]), None)
    assert found.null_count == 1
    assert "its schema cannot be resolved: the writer's schema has more than" in reasons[0]


def test_a_value_that_is_nested_too_deeply_spoils_only_its_row() -> None:
    node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    fields = [{"name": "chain", "type": node}, {"name": "n", "type": "int"}]
    KNOWN[51] = Schema("AVRO", json.dumps({"type": "record", "name": "W", "fields": fields}), 51)
    text = json.dumps({"type": "record", "name": "W", "fields": fields[1:]})
    values = [framed(51, b"\x02" * depth + b"\x00\x0e") for depth in (0, 5000, 3)]
    target = Target("t-value", "t", Schema("AVRO", text))
    found, reasons = read_column(WHERE, target, pa.array([*values, framed(51, b"")]), np.full(4, -1), None)
    assert found.to_pylist() == [{"n": 7}, None, {"n": 7}, None]
    assert reasons == {1: "it is nested too deeply", 3: "it ends too early"}


def test_small_schemas_of_a_great_many_columns() -> None:
    levels: list[Any] = ["int"]
    for level in range(20):
        fields = [{"name": name, "type": levels[-1] if name == "a" else f"R{level - 1}"} for name in "ab"]
        if not level:
            fields[1]["type"] = "int"
        levels.append({"type": "record", "name": f"R{level}", "fields": fields})
    avro = json.dumps(levels[-1])
    shapes: dict[str, Any] = {"r0": {"type": "integer"}}
    for level in range(1, 20):
        inner = {"$ref": f"#/definitions/r{level - 1}"}
        shapes[f"r{level}"] = {"type": "object", "properties": {"a": inner, "b": inner}}
    schema = json.dumps({"$ref": "#/definitions/r19", "definitions": shapes})
    messages = ["message R0 { int32 a = 1; }"]
    messages += [f"message R{n} {{ R{n - 1} a = 1; R{n - 1} b = 2; }}" for n in range(1, 20)]
    proto = 'syntax = "proto3"; ' + " ".join(reversed(messages))
    for kind, text in (("AVRO", avro), ("PULSAR_JSON", avro), ("JSON", schema), ("PROTOBUF", proto)):
        with pytest.raises(Invalid, match="more than 10000 columns"):
            type_of(Schema(kind, text))
