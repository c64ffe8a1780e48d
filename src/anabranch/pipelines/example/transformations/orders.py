"""Orders: checked on their way in, summed up by minute, and the sums announced on the topic `revenue`.

A minute is closed, and appears in `revenue_per_minute`, when an order 20 minutes younger has come.  Orders
sent more than 10 minutes after they were made are not waited for: they are marked, and are in `late_orders`.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch import pipelines as ab

spark = SparkSession.active()

ORDER = "order string, user string, amount decimal(12,2), currency string, at timestamp, sent timestamp"


@ab.table(
    dead_letters="shop-dead-letters", comment="Orders that make sense; `late` says which came too late."
)
@ab.expect("has a number", "order is not null")
@ab.expect("has a user", "user is not null")
@ab.expect("has a time", "at is not null")
@ab.expect("amount is positive", "amount > 0")
@ab.expect("currency is known", "currency in ('EUR', 'GBP', 'USD')")
def orders_clean() -> DataFrame:
    orders = ab.read_topic("orders", schema=ORDER)
    return orders.withColumn("late", F.expr("coalesce(sent - at > interval 10 minutes, false)"))


ab.topic_sink("revenue")


@dp.append_flow(target="revenue", name="revenue_to_topic")
def revenue_to_topic() -> DataFrame:
    minutes = spark.readStream.table("revenue_per_minute")
    return minutes.selectExpr("currency as key", "to_json(struct(minute, currency, orders, amount)) as value")
