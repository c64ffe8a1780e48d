"""Topics as DataFrames whose history Spark reads by itself: the rows of a batch read, whatever is asked."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row, SparkSession

from anabranch.base.errors import Corrupt, Invalid, Unavailable
from anabranch.spark.ranges import DataLost
from anabranch.spark.topic_table import topic_table
from tests.spark.conftest import Topics
from tests.support.tables import Tables

Rows = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def table(spark: SparkSession, bootstrap: str) -> Rows:
    def read(topic: str, **options: str) -> DataFrame:
        return topic_table(spark, {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options})

    return read


def in_order(rows: DataFrame) -> list[Row]:
    return sorted(rows.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def offsets(topic: str, **by_partition: int) -> str:
    return json.dumps({topic: {name[1:]: offset for name, offset in by_partition.items()}})


@pytest.fixture(scope="module")
def kept(bootstrap: str, topics: Topics, tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three partitions: 300 offsets of each in files of some hours, 40 more in the log, 10 gone there."""
    topic = topics.create(3, **{"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(900):
        headers = {"n": b"%d" % number} if number % 2 else None
        key = None if number % 5 == 0 else b"k"
        value = None if number % 7 == 0 else b"%d" % number
        producer.produce(topic, value, key, number % 3, timestamp=1 + number * 60_000, headers=headers)
    assert producer.flush(30) == 0
    tables.enable(topic, tmp_path_factory.mktemp("tables") / "of {a,b} [c]% *")
    assert tables.round().rows == 900
    topics.fill(topic, range(900, 1020))
    topics.trim(topic, 0, 10)
    return topic


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"includeHeaders": "true", "includePulsar": "true"},
        {"endingTimestamp": str(1 + 400 * 60_000)},
        {"startingTimestamp": str(1 + 400 * 60_000)},
    ],
    ids=["all", "every column", "until a time", "since a time"],
)
def test_it_is_what_a_batch_read_has(kept: str, rows: Rows, table: Rows, options: dict[str, str]) -> None:
    asked, expected = table(kept, **options), rows(kept, **options)
    assert asked.schema == expected.schema
    assert in_order(asked) == in_order(expected)
    assert asked.count() == expected.count()


def test_ranges_that_begin_and_end_inside_files(kept: str, rows: Rows, table: Rows) -> None:
    limits = {
        "startingOffsets": offsets(kept, p0=25, p1=130, p2=290),
        "endingOffsets": offsets(kept, p0=26, p1=250, p2=320),
    }
    asked = in_order(table(kept, **limits))
    assert asked == in_order(rows(kept, **limits))
    assert len(asked) == 1 + 120 + 30


def test_only_the_log_or_only_files_or_nothing(kept: str, rows: Rows, table: Rows, topics: Topics) -> None:
    tail = {"startingOffsets": offsets(kept, p0=310, p1=310, p2=310)}
    assert in_order(table(kept, **tail)) == in_order(rows(kept, **tail))
    history = {"endingOffsets": offsets(kept, p0=300, p1=300, p2=300)}
    assert table(kept, **history).count() == 900
    nothing = table(
        kept, startingOffsets=offsets(kept, p0=5, p1=5, p2=5), endingOffsets=offsets(kept, p0=5, p1=5, p2=5)
    )
    assert (nothing.count(), nothing.schema) == (0, rows(kept).schema)
    plain = topics.create(2)
    topics.fill(plain, range(50), partitions=2)
    assert in_order(table(plain)) == in_order(rows(plain))
    assert table(f"{kept},{plain}").count() == rows(f"{kept},{plain}").count() == 1070


def test_it_is_of_one_moment(
    topics: Topics, tables: Tables, topic_in_files: Callable[[int], str], table: Rows
) -> None:
    topic = topic_in_files(100)
    topics.fill(topic, range(100, 120), partitions=1)
    before = table(topic)
    topics.fill(topic, range(120, 150), partitions=1)
    tables.round()
    topics.trim(topic, 0, 130)
    assert (before.count(), table(topic).count()) == (120, 150)


def test_a_table_that_begins_after_the_log(
    topics: Topics, tables: Tables, table: Rows, tmp_path: Path
) -> None:
    """What is before the table, its files, and the tail: two ranges of the log around the files."""
    topic = topics.create(1)
    topics.fill(topic, range(40), partitions=1)
    tables.enable(topic, tmp_path / "table", retention_ms="1")
    tables.round()
    topics.fill(topic, range(40, 60), partitions=1)
    tables.round()
    topics.fill(topic, range(60, 70), partitions=1)
    assert [row.offset for row in in_order(table(topic))] == list(range(70))


@pytest.fixture
def careless(spark: SparkSession) -> Iterator[None]:
    """A session that leaves out what it cannot read."""
    names = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    for name in names:
        spark.conf.set(name, "true")
    yield
    for name in names:
        spark.conf.unset(name)


@pytest.mark.usefixtures("careless")
def test_damage_is_an_error_and_not_another_row(
    topic_in_files: Callable[[int], str], table: Rows, tmp_path: Path
) -> None:
    topic = topic_in_files(1000)
    (file,) = (tmp_path / "table").rglob("*.parquet")
    good = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(good[:-20] + bytes([good[-20] ^ 1]) + good[-19:])
    with pytest.raises(Corrupt, match="checksum"):
        table(topic)
    file.write_bytes(good[:200] + bytes([good[200] ^ 1]) + good[201:])
    with pytest.raises(Exception, match="could not verify page integrity"):  # the bridge to the JVM's own
        table(topic).collect()
    file.write_bytes(good)
    before = table(topic)
    file.unlink()
    with pytest.raises(Exception, match="FILE_NOT_EXIST"):
        before.collect()
    with pytest.raises(Unavailable, match="cannot be read from here"):
        table(topic)


def test_what_is_gone_and_what_is_wrong_is_said(
    topics: Topics, topic_in_files: Callable[[int], str], table: Rows
) -> None:
    topic = topic_in_files(100)
    topics.fill(topic, range(100, 300), partitions=1)
    topics.trim(topic, 0, 200)
    with pytest.raises(DataLost, match="gone"):
        table(topic)
    assert table(topic, failOnDataLoss="false").count() == 200
    with pytest.raises(Invalid, match="valueSchema"):
        table(topic, valueSchema="registry")
