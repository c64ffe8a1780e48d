"""Spark's side: the data source `format("anabranch")`, and what pipelines are made of."""
