"""A Spark session that runs anywhere pip does.

    spark = session_builder().master("local[*]").getOrCreate()

What it adds to `SparkSession.builder`: a Java that Spark can run on (`java`), and this interpreter for
Spark's workers (`interpreter`), without which Spark would not find the source.  Both can be set otherwise,
before or after.

Filters are not pushed down to Python sources, as Spark has it: its 4.3 keeps them with the table, so that
whatever else is made of the same DataFrame loses the rows, too.
"""

from pyspark.sql import SparkSession

from anabranch.base.java import with_java
from anabranch.spark.interpreter import with_interpreter


def session_builder() -> SparkSession.Builder:
    """`SparkSession.builder`, ready to go.  Invalid if there is no Java that is new enough."""
    with_java()
    with_interpreter()
    return SparkSession.Builder()
