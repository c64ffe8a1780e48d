"""`format("anabranch")`: topics as tables, to read and to write, in batches and as streams.

Spark finds this class by itself, as `DefaultSource` of the top-level module `pyspark_anabranch`.  It only
checks options and makes the part that does the work; Spark makes it anew in every process that needs one, and
there are many, so each loads what it needs and no more.
"""

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from anabranch.spark.options import BATCH_READ, BATCH_WRITE, STREAM_READ, STREAM_WRITE, Options, write_options


class AnabranchSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "anabranch"

    def schema(self) -> str:
        from anabranch.spark.reading import spark_schema

        # Spark asks for it before it says whether it is going to stream.
        return spark_schema(Options(self._given, BATCH_READ | STREAM_READ, "a read"))

    def reader(self, schema: StructType) -> DataSourceReader:
        from anabranch.spark.batch_reader import batch_reader
        from anabranch.spark.reading import chosen_columns

        return batch_reader(Options(self._given, BATCH_READ, "a batch read"), chosen_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from anabranch.spark.reading import chosen_columns
        from anabranch.spark.stream_reader import StreamReader

        return StreamReader(Options(self._given, STREAM_READ, "a streaming read"), chosen_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from anabranch.spark.batch_writer import BatchWriter

        return BatchWriter(
            write_options(Options(self._given, BATCH_WRITE, "a batch write")), schema, overwrite
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from anabranch.spark.stream_writer import StreamWriter

        return StreamWriter(write_options(Options(self._given, STREAM_WRITE, "a streaming write")), schema)
