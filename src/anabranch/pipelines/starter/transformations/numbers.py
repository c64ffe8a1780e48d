"""A topic of JSON numbers becomes a table; what is no number goes to another topic, with the reason."""

from pyspark.sql import DataFrame

from anabranch import pipelines as ab


@ab.table(dead_letters="numbers-dead-letters")
@ab.expect("is a number", "number is not null")
def numbers() -> DataFrame:
    return ab.read_topic("numbers", schema="number bigint")
