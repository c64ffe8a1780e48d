"""A driver in a process of its own: copies a topic with streaming queries until it is killed.

python -m tests.spark.copier MASTER BOOTSTRAP FROM TO CHECKPOINTS [TABLE]

One query writes to the topic TO; with TABLE, a second one writes Parquet files there.
"""

import sys
from pathlib import Path

from pyspark.sql.functions import col

from tests.spark.job import session


def main() -> None:
    master, bootstrap, source, sink, checkpoints, *table = sys.argv[1:]
    spark = session(master)
    read = spark.readStream.format("anabranch").option("kafka.bootstrap.servers", bootstrap)
    read = read.option("subscribe", source).option("startingOffsets", "earliest")
    # Whole tasks are lost, of several, though there is little to read.
    read = read.option("maxOffsetsPerTrigger", "500").option("minRecordsPerPartition", "1")
    rows = read.load().select(col("key"), col("value"))
    to_topic = rows.writeStream.format("anabranch").option("kafka.bootstrap.servers", bootstrap)
    started = {"topic": to_topic.option("topic", sink)}
    for path in table:
        started["table"] = rows.writeStream.format("parquet").option("path", path)
    for name, writer in started.items():
        writer = writer.option("checkpointLocation", str(Path(checkpoints) / name))
        writer.trigger(processingTime="100 milliseconds").start()
    spark.streams.awaitAnyTermination()


main()
