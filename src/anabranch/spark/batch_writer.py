"""A batch write: all rows or none.

Every task writes in a transaction of its own and leaves it open; the driver commits them when all tasks are
done, and aborts them when one failed for good.  A task that is tried again takes over the name of the one
before, which ends that one's transaction.  So readers of committed records see nothing of a write that
failed, and nothing twice.  (The commits follow each other within milliseconds; a driver that dies between
them leaves the others to time out.)

With `exactlyOnce` off there are no transactions: rows can be read as soon as they are written, and those of
a task that is tried again are there twice, as with Spark's Kafka sink.
"""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from anabranch.base.errors import Invalid
from anabranch.client.cluster import Cluster
from anabranch.client.transactions import end_transaction, init_producer
from anabranch.spark.options import WriteOptions
from anabranch.spark.row_columns import check_columns
from anabranch.spark.worker_process import Travels
from anabranch.spark.written import Written

if TYPE_CHECKING:
    import pyarrow as pa


class BatchWriter(Travels, DataSourceArrowWriter):
    def __init__(self, how: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise Invalid("a topic cannot be overwritten; use mode append")
        check_columns(schema, how.topic, how.value_columns)
        self._how = how
        self._name = f"{how.id_prefix}-{uuid.uuid4()}"

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        # Spark makes a process of its own for the commit, which has no use for these.
        from anabranch.client.producer import Producer
        from anabranch.spark.writing import write_rows

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        how = self._how
        with (
            Cluster(how.settings) as cluster,
            Producer(cluster, how.acks, how.settings.timeout_s) as producer,
        ):
            if how.exactly_once:
                producer.begin(self._id(task), how.transaction_timeout_ms)
            elif how.acks == -1:
                producer.identify()
            somewhere, count = write_rows(iterator, producer, cluster, how, task)
        return Written(producer.transaction if count else None, somewhere, count)

    def _id(self, task: int) -> str:
        return f"{self._name}-{task}"

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with Cluster(self._how.settings) as cluster:
            for message in messages:
                if isinstance(message, Written) and message.transaction is not None:
                    end_transaction(cluster, message.transaction, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._how.exactly_once:
            with Cluster(self._how.settings) as cluster:
                for task in range(len(messages)):
                    # Taking over the name ends what the task left open, wherever it got to.
                    init_producer(cluster, self._id(task), self._how.transaction_timeout_ms)
