"""On a standalone cluster with two workers: batch and stream, both ways, by both executors."""

from pathlib import Path

from tests.spark.conftest import Topics
from tests.spark.jobs import check_copies
from tests.support.spark_cluster import WORKERS, SparkCluster


def test_batch_and_stream_by_two_executors(topics: Topics, tmp_path: Path) -> None:
    with SparkCluster(tmp_path) as cluster:
        check_copies(cluster.url, topics, tmp_path, WORKERS)
