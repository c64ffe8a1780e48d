"""Over Spark Connect: the client has no driver beside it, and the source works as it does there."""

from pathlib import Path

from tests.spark.conftest import Topics
from tests.spark.jobs import check_copies
from tests.support.spark_connect import ConnectServer


def test_batch_and_stream_from_afar(topics: Topics, tmp_path: Path) -> None:
    with ConnectServer(tmp_path) as server:
        check_copies(server.url, topics, tmp_path, executors=1)
