"""A Spark session that runs anywhere pip does.

    spark = session_builder().master("local[*]").getOrCreate()

What it adds to `SparkSession.builder`: a Java that Spark can run on (`java`), this interpreter for Spark's
workers, without which Spark would not find the data source, and filters pushed down to Python sources, which
Spark leaves off.  All of it can be set otherwise, before or after.
"""

import os
import sys

from pyspark.sql import SparkSession

from anabranch.spark.java import with_java

_SETTINGS = {"spark.sql.python.filterPushdown.enabled": "true"}


def session_builder() -> SparkSession.Builder:
    """`SparkSession.builder`, ready to go.  Invalid if there is no Java that is new enough."""
    with_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.Builder()
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    return builder
