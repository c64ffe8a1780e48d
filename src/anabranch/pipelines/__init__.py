"""Declarative pipelines on Spark, with topics at both ends.

What definition files import; the rest of this package runs them (`anabranch pipeline`).

    from anabranch import pipelines as ab

    @ab.table(dead_letters="orders-dead-letters")
    @ab.expect("amount is positive", "amount > 0")
    def orders():
        return ab.read_topic("orders", schema="order string, amount decimal(12,2), at timestamp")

Nothing here loads Spark before a definition is read: the command line imports this package, too.
"""

from anabranch.pipelines.definitions import expect, read_topic, table, topic_sink, topic_view

__all__ = ["expect", "read_topic", "table", "topic_sink", "topic_view"]
