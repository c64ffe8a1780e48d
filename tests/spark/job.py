"""A job in a process of its own, on whatever Spark it is told: reads a topic, writes two, prints what it saw.

    python -m tests.spark.job WHERE BOOTSTRAP SOURCE [BATCH_SINK STREAM_SINK FOLDER]

WHERE is a master (`local[2]`, `spark://...`) or a Spark Connect server (`sc://...`).  Without sinks it only
reads.  What it prints is one line of JSON; how many processes read is told by the tasks themselves.
"""

import json
import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, udf

from anabranch.spark.session import session_builder
from tests.support.spark_cluster import EXECUTORS

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}
WAIT_S = 300


def session(where: str) -> SparkSession:
    builder = session_builder()
    if where.startswith("sc:"):
        return builder.remote(where).getOrCreate()
    builder = builder.master(where).appName("job").config(map=SETTINGS)
    if where.startswith("spark:"):
        builder = builder.config(map=EXECUTORS)
    return builder.getOrCreate()


def java_of_task(_: int) -> int:
    """The JVM that this task belongs to: the father of the Python that forks its workers."""
    daemon = os.getppid()
    with open(f"/proc/{daemon}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


def read_all(rows: DataFrame) -> dict[str, Any]:
    numbers = rows.select(col("value").cast("string").cast("int").alias("number"))
    total = numbers.selectExpr("count(*) as count", "sum(number) as sum").first()
    half = rows.where("partition = 1 and offset >= 10").count()
    assert total is not None
    return {"count": total["count"], "sum": total["sum"], "filtered": half}


def main() -> None:
    where, bootstrap, source, *sinks = sys.argv[1:]
    spark = session(where)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": source,
        "startingOffsets": "earliest",
    }
    rows = spark.read.format("anabranch").options(**options).load()
    saw = read_all(rows)
    if sinks:
        of_batch, of_stream, folder = sinks
        saw["executors"] = rows.select(udf(java_of_task, "int")("offset").alias("java")).distinct().count()
        to = {"kafka.bootstrap.servers": bootstrap}
        rows.select("key", "value").write.format("anabranch").options(**to, topic=of_batch).mode(
            "append"
        ).save()
        stream = spark.readStream.format("anabranch").options(**options, maxOffsetsPerTrigger="3000").load()
        writer = stream.select("key", "value").writeStream.format("anabranch").trigger(availableNow=True)
        query = writer.options(**to, topic=of_stream, checkpointLocation=folder).start()
        assert query.awaitTermination(WAIT_S), "still running"
    print(json.dumps(saw), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
