from pathlib import Path

import msgspec
import pytest

from anabranch.pipelines.tables import copying
from anabranch.pipelines.tables.copying import Copy, perform
from anabranch.spark.cluster import Settings
from anabranch.spark.fetching import Fetching
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
