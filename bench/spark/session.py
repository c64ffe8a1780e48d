"""A Spark session that has both: Spark's Kafka connector on its class path, and ours."""

from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.spark.session import session_builder

SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


def open_session(jars: Path) -> SparkSession:
    # Plain `spark.jars` would load the connector in a child class loader of its own.
    builder = (
        session_builder()
        .master("local[2]")
        .appName("bench")
        .config("spark.driver.extraClassPath", f"{jars}/*")
    )
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
