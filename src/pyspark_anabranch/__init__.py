"""Data source discovery: Spark looks for `format("anabranch")` in modules named `pyspark_...`.

A process of Spark's that knows nothing of Anabranch imports this, so it brings in as little as it can.
"""

from anabranch.spark.source import AnabranchSource as DefaultSource

__all__ = ["DefaultSource"]
