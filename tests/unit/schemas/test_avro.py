"""Avro's resolution: which reader reads which writer, and texts that are meant to hurt."""

import json
from typing import Any

import pytest

from anabranch.schemas import avro, avro_resolution
from anabranch.schemas.errors import InvalidSchema
from anabranch.schemas.reading import read
from anabranch.schemas.schema import Schema


def record(type: Any, name: str = "R", **field: Any) -> Any:
    return {"type": "record", "name": name, "fields": [{"name": "f", "type": type, **field}]}


def enum(*symbols: str, name: str = "E") -> Any:
    return {"type": "enum", "name": name, "symbols": list(symbols)}


def fixed(size: int, name: str = "F") -> Any:
    return {"type": "fixed", "name": name, "size": size}


def parsed(schema: Any) -> avro.Parsed:
    return avro.parse(json.dumps(schema).encode())


def why(reader: avro.Parsed, writer: avro.Parsed, *, strict: bool = False) -> str | None:
    found = avro_resolution.differences(reader, writer, strict=strict)
    return found[0].plain if found else None


INNER, OTHER = record("int", "I"), record("int", "J")
LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
LONGER = {**LIST, "fields": [*LIST["fields"], {"name": "x", "type": "int", "default": 1}]}
STRICTER = {**LIST, "fields": [*LIST["fields"], {"name": "x", "type": "int"}]}

ALIASED = {"type": "record", "name": "R", "fields": [{"name": "g", "type": "int", "aliases": ["f"]}]}
ARRAY = {"type": "array", "items": "int"}

# What Apache Pulsar 4.2.4 said under BACKWARD to the second after the first.
PAIRS = {
    "enum with more": (record(enum("A", "B")), record(enum("A", "B", "C")), True),
    "enum with less": (record(enum("A", "B")), record(enum("A")), True),
    "enum renamed": (record(enum("A")), record(enum("A", name="G")), False),
    "fixed of another size": (record(fixed(4)), record(fixed(8)), False),
    "fixed renamed": (record(fixed(4)), record(fixed(4, "G")), False),
    "int as long": (record("int"), record("long"), True),
    "long as int": (record("long"), record("int"), False),
    "int as string": (record("int"), record("string"), False),
    "bytes as string": (record("bytes"), record("string"), True),
    "string as bytes": (record("string"), record("bytes"), True),
    "into a union": (record("int"), record(["null", "int"]), True),
    "out of a union": (record(["null", "int"]), record("int"), False),
    "out of a union of one": (record(["int"]), record("long"), True),
    "a wider union": (record(["null", "int"]), record(["null", "long"]), True),
    "record renamed": (record("int"), record("int", "S"), True),
    "record inside renamed": (record(INNER), record(OTHER), True),
    "record in a union renamed": (record(["null", INNER]), record(["null", OTHER]), True),
    "an alias": (record("int"), ALIASED, True),
    "of itself": (LIST, LONGER, True),
    "of itself, without default": (LIST, STRICTER, False),
    "array": (record(ARRAY), record({**ARRAY, "items": "string"}), False),
    "map": (record({"type": "map", "values": "int"}), record({"type": "map", "values": "long"}), True),
    "array as map": (record(ARRAY), record({"type": "map", "values": "int"}), False),
    "logical": (record("int"), record({"type": "int", "logicalType": "date"}), True),
    "no record": ("int", "long", True),
    "error as record": ({**record("int"), "type": "error"}, record("int"), True),
}


@pytest.mark.parametrize(("old", "new", "is_read"), PAIRS.values(), ids=PAIRS)
def test_who_reads_whom(old: Any, new: Any, is_read: bool) -> None:
    assert (why(parsed(new), parsed(old)) is None) == is_read


MAP = {"type": "map", "values": "int"}
BROKEN = {
    "a union has int twice": ["int", "int"],
    "a union has array twice": record([ARRAY, {**ARRAY, "items": "string"}]),
    "a union has n.F twice": [{**fixed(1), "namespace": "n"}, "n.F"],
    "a union stands in a union": {"type": "array", "items": ["null", ["int", "string"]]},
    "'a-b' is no name": record("int", "a-b"),
    "'1a' is no name": record("int", "n.1a"),
    "'' is no name": enum("A", name="n."),
    "'x y' is no name": {**record("int"), "fields": [{"name": "x y", "type": "int"}]},
    "cannot be called int": record("int", "int"),
    "two fields f": {**record("int"), "fields": record("int")["fields"] * 2},
    "has no fields": {"type": "record", "name": "R"},
    "F has a size": {"type": "map", "values": fixed(-1)},
    "G has a size": {"type": "fixed", "name": "G", "size": "4"},
}


@pytest.mark.parametrize(("complaint", "schema"), BROKEN.items(), ids=BROKEN)
def test_rules_of_avros_own_parser(complaint: str, schema: Any) -> None:
    with pytest.raises(InvalidSchema, match=complaint):
        read(Schema(json.dumps(schema)), {})


@pytest.mark.parametrize(
    "schema",
    [
        *(["null", "int", "long", ARRAY, MAP, INNER, OTHER, fixed(0), enum("A")], "int", LIST, []),
        *(record("int", "Größe_1"), {**record("int"), "namespace": "a.Outer$"}, record(["null", LIST])),
        {**record("int"), "fields": []},
        {"type": "bytes", "logicalType": "decimal", "precision": 4},
    ],
)
def test_what_breaks_no_rule(schema: Any) -> None:
    read(Schema(json.dumps(schema)), {})


def test_the_reason_names_the_place() -> None:
    inner = {"type": "array", "items": record("string", "I")}
    told = why(parsed(record(inner)), parsed(record({"type": "array", "items": INNER})))
    assert told == "int of the writer's schema cannot be read as string of the reader's schema at /f/items/f"


def test_a_type_by_its_name() -> None:
    twice = {
        "type": "record",
        "name": "R",
        "namespace": "n",
        "fields": [{"name": "a", "type": fixed(4)}, {"name": "b", "type": "F"}],
    }
    assert why(parsed(twice), parsed(twice)) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b"null",
        b"7",
        b"{}",
        b'"nothing"',
        b'{"type": "record"}',
        b'{"type": "record", "name": "R", "fields": 3}',
        b'{"type": "record", "name": "R", "fields": [3]}',
        b'{"type": "record", "name": "R", "fields": [{"name": "f"}]}',
        b'{"type": "record", "name": 7, "fields": []}',
        b'{"type": "enum", "name": "E", "symbols": 1}',
        b'{"type": "enum", "name": "E"}',
        b'{"type": "fixed", "name": "F"}',
        b'{"type": "array"}',
        b'{"type": "record", "name": "R", "fields": [{"name": {}, "type": "int"}]}',
        b'{"type": "record", "name": "R", "fields": [{"name": "f", "type": "int", "aliases": [{}]}]}',
        b"[" * 100_000,
        b'{"type": ' * 500 + b'"int"' + b"}" * 500,
        b'{"type":"array","items":' * 500 + b'"int"' + b"}" * 500,
    ],
    ids=lambda text: text[:30].decode("latin-1"),
)
def test_what_is_no_schema(text: bytes) -> None:
    with pytest.raises(InvalidSchema):
        avro.parse(text)


@pytest.mark.parametrize("name", ["record", "int", "array"])
def test_a_type_by_the_name_of_another(name: str) -> None:
    confusing = parsed(record(["null", name], name))
    assert why(confusing, confusing) is None


def test_work_has_an_end() -> None:
    wide = [fixed(4, f"F{n}") for n in range(700)]
    with pytest.raises(InvalidSchema, match="intricate"):
        why(parsed(wide), parsed(wide[::-1]))


def test_white_space_order_and_documentation_mean_nothing() -> None:
    one = b'{"type": "record", "name": "R", "doc": "x", "fields": []}'
    other = b'{"name":"R","fields":[],\n"type":"record"}'
    assert avro.normal_form(one) == avro.normal_form(other) != avro.normal_form(b'"int"')


# What Kafka's users are told under BACKWARD of the second after the first.
STRICT_PAIRS = {
    "enum with less": (record(enum("A", "B")), record(enum("A")), "MISSING_ENUM_SYMBOLS"),
    "enum with less and a default": (
        record(enum("A", "B")),
        record({**enum("A"), "default": "A"}),
        None,
    ),
    "record renamed": (record("int"), record("int", "S"), "NAME_MISMATCH"),
    "record in another namespace": (record("int"), record("int", "n.R"), None),
    "record with an alias": (record("int"), {**record("int", "S"), "aliases": ["R"]}, None),
    "a field without default": (
        record("int"),
        {**record("int"), "fields": STRICTER["fields"][1:]},
        "READER_FIELD_MISSING_DEFAULT_VALUE",
    ),
    "out of a union": (record(["null", "int"]), record("int"), "TYPE_MISMATCH"),
    "a smaller union": (record(["null", "int"]), record(["null", "string"]), "MISSING_UNION_BRANCH"),
    "fixed of another size": (record(fixed(4)), record(fixed(8)), "FIXED_SIZE_MISMATCH"),
}


@pytest.mark.parametrize(("old", "new", "kind"), STRICT_PAIRS.values(), ids=STRICT_PAIRS)
def test_what_kafkas_users_are_told(old: Any, new: Any, kind: str | None) -> None:
    found = avro_resolution.differences(parsed(new), parsed(old), strict=True)
    assert {one.kind for one in found} == ({kind} if kind else set())


def told(schema: Any) -> bytes:
    return json.dumps(schema).encode()


def test_names_are_the_same_however_they_are_written() -> None:
    short = {"type": "record", "name": "R", "namespace": "n", "fields": [{"name": "f", "type": fixed(4)}]}
    long = {"fields": [{"type": fixed(4, "n.F"), "name": "f"}], "type": "record", "name": "n.R"}
    assert avro.identity(told(short)) == avro.identity(told(long))
    assert avro.identity(told({"type": "string"})) == avro.identity(told("string"))
    assert avro.identity(told({**short, "doc": "x"})) != avro.identity(told(short))


def test_what_is_referred_to_is_put_where_it_is_used_first() -> None:
    inner = {"type": "record", "name": "n.I", "fields": [{"name": "e", "type": enum("A", name="n.E")}]}
    outer = {
        "type": "record",
        "name": "n.O",
        "fields": [
            {"name": name, "type": kind} for name, kind in (("e", "E"), ("i", "I"), ("j", ["null", "I"]))
        ],
    }
    whole = avro.inlined(told(outer), [told(inner)])
    assert why(avro.parse(whole), avro.parse(told(outer), [told(inner)]), strict=True) is None
    assert whole.count(b'"symbols"') == 1
    with pytest.raises(InvalidSchema):
        avro.parse(told(outer))
