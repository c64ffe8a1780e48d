"""The programs of docs/spark.md run as they stand, against the broker of these tests."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.conftest import Topics
from tests.support.broker import BrokerProcess
from tests.tidy.documents import blocks


def test_the_page_runs(
    spark: SparkSession, topics: Topics, spark_broker: BrokerProcess, tmp_path: Path
) -> None:
    topics.create(name="orders")
    topics.create(name="loud-orders")
    topics.fill("orders", range(300))
    # The JVM is in whichever folder it was started: a path that is not whole would not be of this test.
    said = {
        "127.0.0.1:9092": topics.bootstrap,
        "http://127.0.0.1:8080": spark_broker.admin,
        '"checkpoints/': f'"{tmp_path}/',
    }
    names: dict[str, object] = {}
    for block in blocks("docs/spark.md"):
        text = block.text if block.language == "python" else ""
        for written, meant in said.items():
            text = text.replace(written, meant)
        exec(text, names)
    assert len(topics.values("loud-orders")) == 300
    assert len(topics.values("payments")) == 100
    assert (tmp_path / "loud-orders" / "commits").exists()
