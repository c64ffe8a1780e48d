import io
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.client.settings import Settings
from anabranch.pipelines.tables import copying
from anabranch.pipelines.tables.copying import Copy, perform
from anabranch.spark.ranges import Fetching
from anabranch.spark.values.avro_types import list_of
from anabranch.tables.snapshot import Span
from tests.unit.tables.test_data_files import SCHEMA, START_MS, rows

HOW = Fetching(Settings("127.0.0.1:1"))


def test_a_copy_ends_where_there_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large records would else fill a disk before anybody saw one of them."""
    batches = [rows(list(range(at, at + 10)), [START_MS] * 10) for at in range(0, 100, 10)]
    monkeypatch.setattr(copying, "read_ranges", lambda wanted, how, schema: iter(batches))
    monkeypatch.setattr(copying, "_COLUMNS", SCHEMA)
    work = Copy(str(tmp_path), "orders", "an id", 2, 0, 500)
    done = perform(work, HOW)
    assert (done.topic_id, done.partition) == ("an id", 2)
    assert done.copied is not None
    assert (done.copied.span, done.copied.files[0].rows) == (Span(0, 500), 100)
    limited = msgspec.structs.replace(work, most_bytes=batches[0].nbytes + batches[1].nbytes)
    done = perform(limited, HOW)
    assert done.copied is not None
    assert (done.copied.span, done.copied.files[0].rows) == (Span(0, 20), 20)


def nested(levels: int) -> pa.DataType:
    type = pa.int32()
    for _ in range(levels):
        type = list_of(type)
    return type


@pytest.mark.parametrize(
    ("type", "fits"),
    [
        (nested(31), True),
        (nested(60), False),
        (list_of(pa.struct([])), False),
        (pa.struct([(f"f{number}", pa.int32()) for number in range(1000)]), True),
        (list_of(pa.struct([(f"f{number}", pa.int32()) for number in range(3000)])), False),
    ],
    ids=["deep", "too deep", "without fields", "wide", "too wide"],
)
def test_a_schema_whose_files_could_not_be_read_is_not_a_column(type: pa.DataType, fits: bool) -> None:
    assert copying._fits_a_file(type) == fits
    if fits:
        file = io.BytesIO()
        pq.write_table(pa.table({"record": pa.nulls(1, type)}), file)
        assert pq.read_table(file).num_rows == 1
