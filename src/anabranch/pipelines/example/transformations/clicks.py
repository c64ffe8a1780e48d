"""Clicks, checked on their way in."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch import pipelines as ab

CLICK = "user string, page string, at timestamp, sent timestamp"


@ab.table(
    dead_letters="shop-dead-letters", comment="Clicks that make sense; `late` says which came too late."
)
@ab.expect("has a user", "user is not null")
@ab.expect("has a page", "page is not null")
@ab.expect("has a time", "at is not null")
def clicks_clean() -> DataFrame:
    clicks = ab.read_topic("clicks", schema=CLICK)
    return clicks.withColumn("late", F.expr("coalesce(sent - at > interval 10 minutes, false)"))
