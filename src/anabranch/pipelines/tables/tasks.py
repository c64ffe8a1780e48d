"""Pieces of work done by Spark, one per task, wherever its executors are; or here, one after the other.

Work and results are JSON, and a piece that fails for a reason of its own (a folder that cannot be written, a
topic that was deleted) fails alone: its error comes back as its result.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.base.errors import AnabranchError, Unavailable
from anabranch.pipelines.tables.copying import Copy, Done, Merge, failed, perform
from anabranch.spark.ranges import Fetching

_ID, _RESULT = 0, "result"


def run_here(work: Sequence[Copy | Merge], how: Fetching) -> list[Done]:
    """What came of each piece, without Spark."""
    return [msgspec.json.decode(_performed(msgspec.json.encode(one), how), type=Done) for one in work]


def run_tasks(spark: SparkSession, work: Sequence[Copy | Merge], how: Fetching) -> list[Done]:
    """What came of each piece.  Unavailable if Spark gave up on the whole of it."""
    if not work:
        return []
    pieces = [msgspec.json.encode(one) for one in work]

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(_ID).to_pylist():
                yield pa.RecordBatch.from_pydict({_RESULT: [_performed(pieces[number], how)]})

    tasks = spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(run, f"{_RESULT} binary")
    try:
        rows = tasks.collect()
    except PySparkException as error:
        if spark.sparkContext._jsc.sc().isStopped():
            raise  # none of its jobs will work any more
        raise Unavailable(f"Spark gave up: {str(error).splitlines()[0]}") from error
    return [msgspec.json.decode(row[_RESULT], type=Done) for row in rows]


def _performed(piece: bytes, how: Fetching) -> bytes:
    work = msgspec.json.decode(piece, type=Copy | Merge)
    try:
        done = perform(work, how)
    except (AnabranchError, OSError, pa.ArrowException) as error:
        done = failed(work, f"{type(error).__name__}: {error}")
    return msgspec.json.encode(done)
