"""Avro read a column at a time gives what fastavro reads a record at a time."""

import io
import json
import random
import time
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from anabranch.base.errors import Invalid
from anabranch.schemas.avro import Parsed, parse
from anabranch.spark.values.avro_plan import plan
from anabranch.spark.values.avro_types import arrow_type
from anabranch.spark.values.cursor import Pieces, check_ends, cursor_of, padded
from tests.support.speed import slowness

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": "double"},
        {"name": "rate", "type": "float"},
        {"name": "paid", "type": "boolean"},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 3}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "long"]}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "colours", "type": {"type": "array", "items": "Colour"}},
                    ],
                },
            },
        },
        {"name": "either", "type": ["null", "string", "long", "Line"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "sum",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
        },
    ],
}


def parsed(schema: Any) -> Parsed:
    return parse(json.dumps(schema).encode())


def encoded(schema: Any, values: list[Any]) -> list[bytes]:
    known = fastavro.parse_schema(schema)
    out = []
    for value in values:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, known, value)
        out.append(buffer.getvalue())
    return out


def read(
    values: list[bytes], writer: Any, reader: Any | None = None, wanted: set[str] | None = None
) -> tuple[list[Any], dict[int, str]]:
    data = np.frombuffer(b"".join(values), np.uint8)
    ends = np.cumsum([len(one) for one in values])
    starts = np.concatenate(([0], ends[:-1]))
    pieces = Pieces(padded(data), starts.astype(np.int64), ends.astype(np.int64))
    node = plan(parsed(writer), parsed(writer if reader is None else reader), wanted)
    cursor = cursor_of(pieces)
    column = node.read(cursor)
    check_ends(pieces, cursor)
    column.validate(full=True)
    assert column.type == node.type
    assert len(column) == len(values)
    good = pa.array([None if row in pieces.reasons else row for row in range(len(values))], pa.int64())
    return column.take(good).to_pylist(maps_as_pydicts="lossy"), pieces.reasons


def some_order(rng: random.Random) -> dict[str, Any]:
    def text() -> str:
        return "".join(rng.choice("abcdé☃") for _ in range(rng.choice((0, 1, 3, 80, 9000))))

    def line() -> dict[str, Any]:
        colours = [rng.choice(("RED", "GREEN")) for _ in range(rng.randrange(4))]
        return {"sku": text(), "colours": colours}

    return {
        "id": rng.choice((0, -1, 1, 63, -64, 64, (1 << 63) - 1, -(1 << 63), rng.getrandbits(50))),
        "small": rng.choice((0, -(1 << 31), (1 << 31) - 1, rng.randrange(100))),
        "note": rng.choice((None, text())),
        "raw": rng.randbytes(rng.randrange(5)),
        "price": rng.random(),
        "rate": rng.randrange(100) / 4,
        "paid": rng.random() < 0.5,
        "colour": rng.choice(("RED", "GREEN")),
        "digest": rng.randbytes(3),
        "tags": [text() for _ in range(rng.choice((0, 0, 1, 2, 40)))],
        "counts": {text(): rng.choice((None, 5)) for _ in range(rng.randrange(4))},
        "lines": [line() for _ in range(rng.randrange(4))],
        "either": rng.choice((None, text(), 7, line())),
        "at": 1_700_000_000_123,
        "day": 19_000,
        "sum": Decimal(rng.randrange(-(10**18), 10**18)).scaleb(-2),
    }


def expected(order: dict[str, Any]) -> dict[str, Any]:
    either = order["either"]
    members = {"member0": None, "member1": None, "member2": None}
    if isinstance(either, str):
        members["member0"] = either  # type: ignore[assignment]
    elif isinstance(either, int):
        members["member1"] = either  # type: ignore[assignment]
    elif either is not None:
        members["member2"] = either
    return {**order, "either": None if either is None else members}


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "at": round(row["at"].timestamp() * 1000), "day": row["day"].toordinal() - 719163}


@pytest.mark.parametrize("seed", range(5))
def test_every_type(seed: int) -> None:
    rng = random.Random(seed)
    orders = [some_order(rng) for _ in range(rng.choice((1, 7, 200)))]
    found, reasons = read(encoded(ORDER, orders), ORDER)
    assert reasons == {}
    assert [comparable(row) for row in found] == [expected(order) for order in orders]


def test_only_what_is_wanted() -> None:
    rng = random.Random(7)
    orders = [some_order(rng) for _ in range(50)]
    found, reasons = read(encoded(ORDER, orders), ORDER, wanted={"paid", "id"})
    assert reasons == {}
    assert found == [{"id": order["id"], "paid": order["paid"]} for order in orders]


def test_values_that_are_none_do_not_disturb_the_others() -> None:
    rng = random.Random(11)
    orders = [some_order(rng) for _ in range(300)]
    values = encoded(ORDER, orders)
    for number in range(0, 300, 3):
        damage = rng.randrange(4)
        whole = values[number]
        if damage == 0:
            values[number] = whole[: rng.randrange(len(whole))]
        elif damage == 1:
            values[number] = whole + b"\0"
        elif damage == 2:
            values[number] = rng.randbytes(rng.randrange(40))
        else:
            values[number] = b""
    found, reasons = read(values, ORDER)
    assert set(reasons) <= set(range(0, 300, 3))
    assert len(reasons) >= 95  # noise may happen to be an order
    good = [number for number in range(300) if number % 3]
    assert [comparable(found[number]) for number in good] == [expected(orders[number]) for number in good]


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, type: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **more}


def test_one_schema_read_as_another() -> None:
    writer = record(
        field("gone", ["null", {"type": "array", "items": {"type": "map", "values": "string"}}]),
        field("n", "int"),
        field("old", "string"),
        field("f", "float"),
        field("e", {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}),
        field("w", "bytes"),
        field("t", {"type": "long", "logicalType": "timestamp-millis"}),
        field("from_int", "int"),
    )
    reader = record(
        field("w", "string"),
        field("n", "long"),
        field("new", ["null", "string"], aliases=["old"], default=None),
        field("f", "double"),
        field("e", {"type": "enum", "name": "E", "symbols": ["A", "OTHER"], "default": "OTHER"}),
        field("size", "int", default=42),
        field("list", {"type": "array", "items": "int"}, default=[1, 2]),
        field("inner", record(field("x", "string", default="y"), name="I"), default={}),
        field("blob", "bytes", default="\u00ff"),
        field("nothing", "string"),
        field("t", {"type": "long", "logicalType": "timestamp-micros"}),
        field("from_int", {"type": "long", "logicalType": "timestamp-millis"}),
        name="Renamed",
    )
    written = [
        {"gone": [{"a": "b"}], "n": 1, "old": "x", "f": 0.5, "e": "A", "w": b"one", "t": 5000, "from_int": 7},
        {"gone": None, "n": -2, "old": "", "f": 2.0, "e": "C", "w": b"", "t": 0, "from_int": 9},
    ]
    found, reasons = read(encoded(writer, written), writer, reader)
    assert reasons == {}
    assert [row.pop("t").timestamp() for row in found] == [5.0, 0.0]
    assert [row.pop("from_int").timestamp() for row in found] == [0.007, 0.009]
    same = {
        "size": 42, "list": [1, 2], "inner": {"x": "y"}, "blob": b"\xff", "nothing": None,
    }  # fmt: skip
    assert found == [
        {"w": "one", "n": 1, "new": "x", "f": 0.5, "e": "A", **same},
        {"w": "", "n": -2, "new": "", "f": 2.0, "e": "OTHER", **same},
    ]


def test_only_values_that_the_reader_has_no_place_for_are_bad() -> None:
    writer = record(field("u", ["null", "string", "long"]))
    values = encoded(writer, [{"u": "x"}, {"u": 5}, {"u": None}])
    found, reasons = read(values, writer, record(field("u", ["null", "long"])))
    assert found[1:] == [{"u": 5}, {"u": None}]
    assert reasons == {0: "string of the writer's schema is long in the reader's"}
    found, reasons = read(values, writer, record(field("u", ["string", "long"])))
    assert [row["u"] for row in found[:2]] == [
        {"member0": "x", "member1": None},
        {"member0": None, "member1": 5},
    ]
    assert reasons == {2: "null, for which the reader's schema has no place"}


def test_a_type_that_contains_itself() -> None:
    node = record(field("value", "int"), field("next", ["null", "Node"]), name="Node")
    with pytest.raises(Invalid, match="Node contains itself"):
        arrow_type(parsed(node), parsed(node).root)
    writer = record(field("chain", node), field("n", "int"))
    chain = {"value": 1, "next": {"value": 2, "next": {"value": 3, "next": None}}}
    values = encoded(writer, [{"chain": chain, "n": 7}, {"chain": {"value": 9, "next": None}, "n": 8}])
    found, reasons = read(values, writer, record(field("n", "int")))
    assert (found, reasons) == ([{"n": 7}, {"n": 8}], {})


def test_schemas_that_are_no_records() -> None:
    assert read(encoded("string", ["a", "é"]), "string") == (["a", "é"], {})
    assert read(encoded(["null", "long"], [None, 3]), ["null", "long"]) == ([None, 3], {})
    assert arrow_type(parsed(["null", "int", "long"]), ["null", "int", "long"]) == pa.int64()
    assert read([b"\x02\xff"], "string")[1] == {0: "text is not UTF-8"}


@pytest.mark.parametrize("precision", [1, 4, 18, 19, 20, 38])
def test_decimals_of_too_many_digits(precision: int) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 0}
    most = 10**precision - 1
    numbers = [0, most, -most, most + 1, -most - 1, 1, -1, 10**38, -(1 << 127), (1 << 127) - 1]
    values = [b"\x20" + number.to_bytes(16, "big", signed=True) for number in numbers]
    found, reasons = read(values, schema)
    assert reasons == {
        row: f"a decimal has more than {precision} digits"
        for row, number in enumerate(numbers)
        if abs(number) > most
    }
    assert [found[row] for row in (0, 1, 2, 5, 6)] == [Decimal(numbers[row]) for row in (0, 1, 2, 5, 6)]


def test_blocks_with_sizes_and_claims_that_cannot_be() -> None:
    schema = {"type": "array", "items": "long"}
    sized = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"  # two of 2 bytes, then one, then the end
    found, reasons = read([sized, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x00"], schema)
    assert found[0] == [1, 2, 3]
    assert found[2] == []
    assert reasons == {1: "an array claims more items than it can hold"}


LONG: dict[str, Any] = {
    "long": {"type": "array", "items": "long"},
    "text": {"type": "array", "items": "string"},
    "map": {"type": "map", "values": {"type": "array", "items": "int"}},
    "record": {
        "type": "array",
        "items": record(
            field("a", ["null", "string", "double"]),
            field("b", {"type": "map", "values": "long"}),
            name="Item",
        ),
    },
    "nested": {"type": "array", "items": {"type": "array", "items": "boolean"}},
    "real": {"type": "array", "items": "float"},
}


def some_item(rng: random.Random, kind: str) -> Any:
    number = rng.choice((0, -1, 100, 1 << 40))
    if kind == "record":
        a = rng.choice((None, "é" * rng.randrange(3), 1.5))
        return {"a": a, "b": {f"k{n}": number for n in range(rng.randrange(3))}}
    if kind == "nested":
        return [rng.random() < 0.5 for _ in range(rng.randrange(4))]
    return {"long": number, "text": "é" * rng.randrange(70), "real": rng.randrange(8) / 4}[kind]


def some_items(rng: random.Random, kind: str, most: int) -> Any:
    count = rng.choice((0, 1, 2, 3, most))
    if kind == "map":
        return {f"k{n}": list(range(rng.randrange(3))) for n in range(count)}
    return [some_item(rng, kind) for _ in range(count)]


def as_members(kind: str, items: Any) -> Any:
    """What Arrow has in place of a union."""
    if kind != "record":
        return items
    return [
        {
            **one,
            "a": None
            if one["a"] is None
            else {
                "member0": one["a"] if isinstance(one["a"], str) else None,
                "member1": one["a"] if isinstance(one["a"], float) else None,
            },
        }
        for one in items
    ]


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("count", [3, 300])
def test_a_few_long_arrays_among_short_ones(kind: str, count: int) -> None:
    """Those that are long are gone over by themselves; damaged ones do not disturb them."""
    rng = random.Random(f"{kind} {count}")
    rows = [some_items(rng, kind, 200 if n % 20 == 2 else 4) for n in range(count)]
    rows[2] = some_items(rng, kind, 200)
    values = encoded(LONG[kind], rows)
    found, reasons = read(values, LONG[kind])
    assert reasons == {}
    assert found == [as_members(kind, row) for row in rows]
    both = record(field("gone", LONG[kind]), field("n", "int"))
    found, reasons = read([value + b"\x0e" for value in values], both, record(field("n", "int")))
    assert (found, reasons) == ([{"n": 7}] * count, {})
    bad = {n for n in range(count) if n % 3 == 0}
    for _ in range(20):
        damaged = list(values)
        for n in bad:
            cut = values[n][: rng.randrange(len(values[n]))] + rng.randbytes(rng.randrange(4))
            damaged[n] = rng.choice((cut, rng.randbytes(rng.randrange(60)), b"\x01" * 50))
        found, reasons = read(damaged, LONG[kind])
        assert set(reasons) <= bad
        assert all(found[n] == as_members(kind, rows[n]) for n in range(count) if n not in bad)


@pytest.mark.parametrize("item", ["long", "double"])
def test_one_array_of_very_many_items_or_blocks_does_not_take_long(item: str) -> None:
    one = b"\x04" if item == "long" else bytes(8)
    value = 2 if item == "long" else 0.0
    blocks = (b"\x02" + one) * 20_000 + b"\x00"
    count = b"\xc0\xb8\x02"  # 20 000
    begun = time.process_time()
    found, reasons = read([blocks, count + one * 20_000 + b"\x00"], {"type": "array", "items": item})
    spent_s = time.process_time() - begun
    assert spent_s < 2 * slowness()
    assert (found, reasons) == ([[value] * 20_000] * 2, {})


def test_items_without_a_byte_are_no_bomb() -> None:
    schema = {"type": "array", "items": "null"}
    _, reasons = read([b"\x04\x00" + b"\x00" * 2] * 2 + [b"\x08" * 1000], schema)
    assert set(reasons) == {0, 1, 2}


def zigzag(number: int) -> bytes:
    """A number of Avro's that is not negative, in three bytes."""
    return bytes((number << 1 & 127 | 128, number >> 6 & 127 | 128, number >> 13))


EMPTY: dict[str, Any] = {
    "null": "null",
    "record": record(field("n", "null"), name="Nothing"),
    "fixed": {"type": "fixed", "name": "Nil", "size": 0},
}


@pytest.mark.parametrize("rows", [1, 200])
@pytest.mark.parametrize("item", EMPTY)
@pytest.mark.parametrize("read_as", ["itself", "nothing"])
def test_items_without_a_byte_are_no_bomb_in_blocks_or_inside_others(
    item: str, rows: int, read_as: str
) -> None:
    """Each block claims no more than there are bytes left, and all of them together many times as many."""
    array = {"type": "array", "items": EMPTY[item]}
    blocks = b"".join(zigzag(left // 4) for left in range(6_000, 1_000, -3)) + b"\0"
    arrays = zigzag(1_200) + b"".join(zigzag(left // 4) + b"\0" for left in range(6_000, 1_200, -4)) + b"\0"
    begun = time.process_time()
    for value, schema in ((blocks, array), (arrays, {"type": "array", "items": array})):
        writer = record(field("a", schema))
        reader = writer if read_as == "itself" else record(field("n", ["null", "int"], default=None))
        found, reasons = read([value] * rows, writer, reader)
        assert found is not None
        assert set(reasons.values()) == {"an array claims more items than it can hold"}
        assert len(reasons) == rows
    spent_s = time.process_time() - begun
    assert spent_s < 10 * slowness()


def test_a_count_that_has_no_opposite_is_no_end() -> None:
    least = b"\xff" * 9 + b"\x01"
    values = [b"\x02\x02" + least + b"\x00" + b"\x00"] * 150
    assert len(read(values, {"type": "array", "items": "long"})[1]) == 150


@pytest.mark.parametrize("size", [4, 8])
def test_long_arrays_of_reals(size: int) -> None:
    schema = {"type": "array", "items": "float" if size == 4 else "double"}
    rng = random.Random(size)
    arrays = [[rng.randrange(64) / 8 for _ in range(rng.choice((0, 1, 768)))] for _ in range(40)]
    values = encoded(schema, arrays)
    values[7] = values[7][:-9]
    values[9] = b"\x7e" + bytes(20)
    blocks = b"\x02" + bytes(size) + b"\x03" + b"\x20" + bytes(2 * size) + b"\x00"
    found, reasons = read([*values, blocks], schema, {"type": "array", "items": "double"})
    assert set(reasons) == {7, 9}
    assert [row for n, row in enumerate(found) if n not in (7, 9)] == [
        *(row for n, row in enumerate(arrays) if n not in (7, 9)),
        [0.0] * 3,
    ]


@pytest.mark.parametrize(
    "bad",
    [
        field("a", "int", default=1 << 40),
        field("a", "bytes", default="\u1234"),
        field("a", {"type": "long", "logicalType": "timestamp-millis"}, default=1 << 62),
    ],
    ids=["int", "bytes", "time"],
)
def test_a_default_that_is_none_of_its_type_is_said(bad: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="the default of the field a is none of its type"):
        plan(parsed(record(field("b", "int"))), parsed(record(field("b", "int"), bad)))


@pytest.mark.parametrize("size", [-1, 1 << 31, 1 << 70, "x"])
def test_a_fixed_of_no_size_is_said(size: Any) -> None:
    writer = record(field("a", {"type": "fixed", "name": "F", "size": size}), field("b", "int"))
    for reader in (writer, record(field("b", "int"))):
        with pytest.raises(Invalid, match="a fixed has a size of"):
            plan(parsed(writer), parsed(reader))
