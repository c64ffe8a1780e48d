"""What is encoded a column at a time is what fastavro reads, and what our own reader reads back."""

import io
import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from anabranch.base.errors import Invalid
from anabranch.schemas.avro import parse
from anabranch.spark.values import json_write
from anabranch.spark.values.avro_plan import plan
from anabranch.spark.values.avro_types import list_of, map_of
from anabranch.spark.values.avro_write import encode_rows, schema_of
from anabranch.spark.values.cursor import Pieces, check_ends, cursor_of, padded
from anabranch.spark.values.json_read import reader_of
from anabranch.spark.values.json_types import of_json_schema

LINE = pa.struct([pa.field("sku", pa.string(), nullable=False), ("tags", list_of(pa.string()))])
FIELDS = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("small", pa.int8()),
    pa.field("n", pa.int32()),
    pa.field("name", pa.string()),
    pa.field("raw", pa.binary()),
    pa.field("real", pa.float64()),
    pa.field("half", pa.float32()),
    pa.field("paid", pa.bool_()),
    pa.field("day", pa.date32()),
    pa.field("at", pa.timestamp("us", tz="UTC")),
    pa.field("sum", pa.decimal128(12, 2)),
    pa.field("lines", list_of(LINE)),
    pa.field("counts", map_of(pa.int64())),
    pa.field("line", LINE),
]


def some_row(rng: random.Random) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.25 else value

    def line() -> dict[str, Any]:
        tags = [maybe("t" * rng.randrange(5)) for _ in range(rng.randrange(4))]
        return {"sku": rng.choice(("", "é", "x" * 300)), "tags": maybe(tags)}

    return {
        "id": rng.choice((0, -1, 1 << 62, -(1 << 63), 300)),
        "small": maybe(rng.randrange(-128, 128)),
        "n": maybe(rng.randrange(-(1 << 31), 1 << 31)),
        "name": maybe(rng.choice(("", "a", "☃" * 100))),
        "raw": maybe(rng.randbytes(rng.randrange(4))),
        "real": maybe(rng.random()),
        "half": maybe(rng.randrange(8) / 4),
        "paid": maybe(rng.random() < 0.5),
        "day": maybe(date(2026, 11, rng.randrange(1, 30))),
        "at": maybe(datetime(2026, 11, 16, 3, 4, 5, rng.randrange(10**6), tzinfo=UTC)),
        "sum": maybe(Decimal(rng.randrange(-(10**11), 10**11)).scaleb(-2)),
        "lines": maybe([line() for _ in range(rng.randrange(4))]),
        "counts": maybe({f"k{n}": maybe(n) for n in range(rng.randrange(4))}),
        "line": maybe(line()),
    }


def columns(rows: list[dict[str, Any]], offset: int = 0) -> list[pa.Array]:
    listed = [
        {**row, "counts": None if row["counts"] is None else list(row["counts"].items())} for row in rows
    ]
    batch = pa.RecordBatch.from_pylist(listed, schema=pa.schema(FIELDS))
    return list(batch.slice(offset).columns)


@pytest.mark.parametrize("offset", [0, 3])
def test_rows_come_back(offset: int) -> None:
    rng = random.Random(3)
    rows = [some_row(rng) for _ in range(200)]
    encoded = encode_rows(columns(rows, offset), FIELDS)
    schema = schema_of(FIELDS, "shop.Order")
    known = fastavro.parse_schema(json.loads(json.dumps(schema)))
    rows = rows[offset:]
    assert [fastavro.schemaless_reader(io.BytesIO(one), known, None) for one in encoded.to_pylist()] == rows
    parsed = parse(json.dumps(schema).encode())
    values = encoded.to_pylist()
    ends = np.cumsum([len(one) for one in values]).astype(np.int64)
    starts = np.concatenate(([0], ends[:-1])).astype(np.int64)
    pieces = Pieces(padded(np.frombuffer(b"".join(values), np.uint8)), starts, ends)
    cursor = cursor_of(pieces)
    found = plan(parsed, parsed).read(cursor)
    check_ends(pieces, cursor)
    assert pieces.reasons == {}
    assert found.to_pylist(maps_as_pydicts="strict") == rows


def test_nothing_and_what_cannot_be() -> None:
    assert encode_rows(columns([]), FIELDS).to_pylist() == []
    wrong = pa.field("x", pa.int64(), nullable=False)
    with pytest.raises(Invalid, match="x has a null"):
        encode_rows([pa.array([1, None])], [wrong])
    with pytest.raises(Invalid, match="month_day_nano_interval cannot be written"):
        schema_of([pa.field("x", pa.month_day_nano_interval())], "X")
    with pytest.raises(Invalid, match="keys of int32"):
        schema_of([pa.field("x", pa.map_(pa.int32(), pa.string()))], "X")


def test_json_is_read_back_by_its_own_schema() -> None:
    rng = random.Random(5)
    rows = [some_row(rng) for _ in range(50)]
    encoded = json_write.encode_rows(columns(rows), FIELDS)
    shape = of_json_schema(json_write.schema_of(FIELDS, "Order"))
    found, reasons = reader_of(shape)(encoded)
    assert reasons == {}
    same = ("id", "small", "n", "name", "real", "half", "paid", "lines", "line", "counts")
    for row, back in zip(rows, found.to_pylist(maps_as_pydicts="strict"), strict=True):
        assert {name: back[name] for name in same} == {name: row[name] for name in same}
        assert back["day"] == (row["day"] and row["day"].isoformat())
        assert back["sum"] == (row["sum"] and str(row["sum"]))
