"""Lag, from a query's progress as Spark writes it."""

from anabranch.client.destinations import TopicPartition
from anabranch.spark.progress import lags, total_behind

PROGRESS = {
    "sources": [
        {"endOffset": {"t": {"0": 5, "1": 7}}, "latestOffset": {"t": {"0": 9, "1": 7, "2": 4}}},
        {"endOffset": 3, "latestOffset": None},
        {"endOffset": {"logOffset": 1}, "latestOffset": {"logOffset": 2}},
        {},
    ]
}


def test_lag_by_partition() -> None:
    assert list(lags(PROGRESS)) == [
        (TopicPartition("t", 0), 5, 9),
        (TopicPartition("t", 1), 7, 7),
        (TopicPartition("t", 2), 0, 4),
    ]
    assert total_behind(PROGRESS) == 8
    assert total_behind(None) == 0
