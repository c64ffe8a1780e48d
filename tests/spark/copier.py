"""A driver in a process of its own: copies a topic with a streaming query until it is killed.

python -m tests.spark.copier BOOTSTRAP FROM TO CHECKPOINT
"""

import sys

from pyspark.sql.functions import col

from tests.spark.conftest import new_session


def main() -> None:
    bootstrap, source, sink, checkpoint = sys.argv[1:]
    spark = new_session()
    read = spark.readStream.format("anabranch").option("kafka.bootstrap.servers", bootstrap)
    read = read.option("subscribe", source).option("startingOffsets", "earliest")
    rows = read.option("maxOffsetsPerTrigger", "500").load().select(col("key"), col("value"))
    write = rows.writeStream.format("anabranch").option("kafka.bootstrap.servers", bootstrap)
    write = write.option("topic", sink).option("checkpointLocation", checkpoint)
    write.trigger(processingTime="100 milliseconds").start().awaitTermination()


main()
