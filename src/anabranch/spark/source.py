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

from anabranch.base.errors import Invalid
from anabranch.spark.options import (
    BATCH_READ,
    BATCH_WRITE,
    OF_SCHEMAS,
    STREAM_READ,
    STREAM_WRITE,
    Options,
    WriteOptions,
    write_options,
)


class AnabranchSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "anabranch"

    def schema(self) -> StructType:
        from anabranch.spark.reading import spark_schema

        # Spark asks for it before it says whether it is going to stream.
        return spark_schema(Options(self._given, BATCH_READ | STREAM_READ, "a read"))

    def reader(self, schema: StructType) -> DataSourceReader:
        from anabranch.spark.batch_reader import batch_reader
        from anabranch.spark.reading import chosen_columns

        options = Options(self._given, BATCH_READ, "a batch read")
        return batch_reader(options, chosen_columns(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from anabranch.spark.reading import chosen_columns
        from anabranch.spark.stream_reader import StreamReader

        options = Options(self._given, STREAM_READ, "a streaming read")
        return StreamReader(options, chosen_columns(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from anabranch.spark.batch_writer import BatchWriter

        how = _write_options(Options(self._given, BATCH_WRITE, "a batch write"), schema)
        return BatchWriter(how, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from anabranch.spark.stream_writer import StreamWriter

        how = _write_options(Options(self._given, STREAM_WRITE, "a streaming write"), schema)
        return StreamWriter(how, schema)


def _write_options(options: Options, schema: StructType) -> WriteOptions:
    how = write_options(options)
    if options.text("valueSchema") is None:
        if needless := [name for name in OF_SCHEMAS if options.text(name) is not None]:
            raise Invalid(f"the option {needless[0]} has no meaning without valueSchema")
        return how
    from anabranch.spark.values.writing import with_values

    return with_values(how, options, schema)
