"""The programs of docs/spark.md run as they stand, against the broker of these tests."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import Topics
from tests.tidy.documents import blocks


def test_the_page_runs(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topics.create(name="orders")
    topics.create(name="loud-orders")
    topics.fill("orders", range(300))
    names: dict[str, object] = {}
    for block in blocks("docs/spark.md"):
        if block.language == "python":
            exec(block.text.replace("127.0.0.1:9092", topics.bootstrap), names)
    assert len(topics.values("loud-orders")) == 300
    assert os.path.exists("checkpoints/loud-orders/commits")
