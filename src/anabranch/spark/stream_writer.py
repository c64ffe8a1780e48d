"""A streaming write, exactly once: a micro-batch that Spark runs again is recognised and not stored twice.

    task        takes over its transactional id, <prefix>-<query>-<task>: whatever it left open is aborted,
                and a task of that name that still runs somewhere is stopped
                asks how far the group of that name is: if past this micro-batch, its rows are stored; done
                writes its rows, and "past this micro-batch" as the group's offset, in one transaction
                leaves it open and hands it to the driver
    driver      notes in the query's own group that this micro-batch is being committed, by so many tasks
                commits the tasks' transactions

Whatever dies, and when:
    before the driver commits    Spark runs the micro-batch again; all transactions are aborted and made anew
    between two commits          likewise; tasks whose transaction was committed find so and write nothing
    after the commits            likewise; all tasks find so

A task finds its own rows again only if rows come to tasks in the same way, which they do when a micro-batch
is cut by offsets alone, as ours are, or by a shuffle of a fixed number of partitions.  If a micro-batch that
was half committed comes back with another number of tasks, nothing is committed and the query stops with an
error.

The name of the query is Spark's, kept in its checkpoint; a checkpoint that is deleted makes a new query.
With `exactlyOnce` off rows are written at once, and a micro-batch that runs again is there twice.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from anabranch.base.errors import Invalid
from anabranch.spark.cluster import Cluster, TopicPartition
from anabranch.spark.group_offsets import commit_offsets, committed_offsets
from anabranch.spark.options import WriteOptions
from anabranch.spark.row_columns import check_columns
from anabranch.spark.transactions import Transaction, end_transaction
from anabranch.spark.written import Written

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.spark.producer import Producer

_QUERY = "sql.streaming.queryId"  # Spark's names, of what it tells its tasks
_BATCH = "streaming.sql.batchId"


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, how: WriteOptions, schema: StructType) -> None:
        check_columns(schema, how.topic)
        self._how = how

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        # Spark makes a process of its own for every commit, which has no use for these.
        from anabranch.spark.producer import Producer
        from anabranch.spark.writing import write_rows

        how = self._how
        context = TaskContext.get()
        assert context is not None, "rows are written in tasks"
        task = context.partitionId()
        with (
            Cluster(how.settings) as cluster,
            Producer(cluster, how.acks, how.settings.timeout_s) as producer,
        ):
            if not how.exactly_once:
                if how.acks == -1:
                    producer.identify()
                somewhere, count = write_rows(iterator, producer, cluster, how, task)
                return StreamWritten(None, somewhere, count, "")
            query, batch_id = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
            if query is None or batch_id is None:
                raise Invalid(
                    "Spark does not say which query and micro-batch this is; set exactlyOnce to false"
                )
            name = f"{how.id_prefix}-{query}"
            return self._write_once(iterator, producer, cluster, name, task, int(batch_id))

    def _write_once(
        self,
        iterator: "Iterator[pa.RecordBatch]",
        producer: "Producer",
        cluster: Cluster,
        query: str,
        task: int,
        batch_id: int,
    ) -> WriterCommitMessage:
        from anabranch.spark.writing import write_rows

        name = f"{query}-{task}"
        producer.begin(name, self._how.transaction_timeout_ms)
        # Only now is it certain that nobody commits under this name any more.
        done = max((one.offset for one in committed_offsets(cluster, name).values()), default=0)
        if done > batch_id:
            for _ in iterator:
                pass
            return StreamWritten(None, None, 0, query)
        somewhere, count = write_rows(iterator, producer, cluster, self._how, task)
        if somewhere is None:
            return StreamWritten(None, None, 0, query)
        producer.commit_offset(name, TopicPartition(somewhere.topic, 0), batch_id + 1, "")
        return StreamWritten(producer.transaction, somewhere, count, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [one for one in messages if isinstance(one, StreamWritten)]
        to_end = [one.transaction for one in written if one.transaction is not None]
        somewhere = next((one.partition for one in written if one.partition is not None), None)
        if somewhere is None or not to_end:
            return
        with Cluster(self._how.settings) as cluster:
            self._decide(cluster, written[0].query, somewhere, batchId, len(messages), to_end)
            for transaction in to_end:
                end_transaction(cluster, transaction, commit=True)

    def _decide(
        self,
        cluster: Cluster,
        query: str,
        somewhere: TopicPartition,
        batch_id: int,
        tasks: int,
        to_end: list[Transaction],
    ) -> None:
        """Note that the micro-batch is being committed.  Invalid if other tasks have begun to."""
        begun = max(committed_offsets(cluster, query).values(), default=None)
        if begun is not None and begun.offset == batch_id + 1 and begun.metadata != f"{tasks} tasks":
            for transaction in to_end:
                end_transaction(cluster, transaction, commit=False)
            raise Invalid(
                f"micro-batch {batch_id} was half committed by {begun.metadata} when the query was stopped, "
                f"and now there are {tasks}: which rows are stored cannot be told. Start it as it was before "
                "(minPartitions, spark.sql.shuffle.partitions) until it is over this micro-batch"
            )
        commit_offsets(
            cluster, query, {TopicPartition(somewhere.topic, 0): batch_id + 1}, metadata=f"{tasks} tasks"
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with Cluster(self._how.settings) as cluster:
            for one in messages:
                if isinstance(one, StreamWritten) and one.transaction is not None:
                    end_transaction(cluster, one.transaction, commit=False)


class StreamWritten(Written):
    """`Written`, and the name under which the query keeps how far it is."""

    def __init__(
        self, transaction: Transaction | None, partition: TopicPartition | None, rows: int, query: str
    ) -> None:
        super().__init__(transaction, partition, rows)
        self.query = query
