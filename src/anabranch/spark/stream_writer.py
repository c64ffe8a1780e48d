"""A streaming write, exactly once: a micro-batch that Spark runs again is recognised and not stored twice.

    task        takes over its transactional id, <prefix>-<query>-<task>: whatever it left open is aborted,
                and a task of that name that still runs somewhere is stopped
                asks how far the group of that name is: if past this micro-batch, its rows are stored; done
                writes its rows, and "past this micro-batch" as the group's offset, in one transaction
                leaves it open and hands it to the driver
    driver      notes in the query's own group that this micro-batch is being committed, by so many tasks
                commits the tasks' transactions

Whatever dies, and when:
    before the driver commits    Spark runs the micro-batch again; all transactions are aborted and made again
    between two commits          likewise; tasks whose transaction was committed find so and write nothing
    after the commits            likewise; all tasks find so

A task finds its own rows again only if rows come to tasks in the same way, which they do when a micro-batch
is cut by offsets alone, as ours are, or by a shuffle of a fixed number of partitions.  If a micro-batch that
was half committed comes back with another number of tasks, nothing is committed and the query stops with an
error: also if all of them find rows that are stored, for those of tasks that are no more may not be.

A task that fails aborts its transaction, or readers of committed records would wait for it to time out.
What one could not abort that was killed, the driver does.

The name of the query is Spark's, kept in its checkpoint; a checkpoint that is deleted makes a new query.
With `exactlyOnce` off rows are written at once, and a micro-batch that runs again is there twice.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from anabranch.base.errors import AnabranchError, Invalid, Unavailable
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import TopicPartition
from anabranch.client.group_offsets import Committed, commit_offsets, committed_offsets
from anabranch.client.transactions import Transaction, end_transaction, init_producer
from anabranch.spark.options import WriteOptions
from anabranch.spark.row_columns import check_columns
from anabranch.spark.worker_process import Travels, keep_what_is_loaded
from anabranch.spark.written import Written

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.client.producer import Producer

_QUERY = "sql.streaming.queryId"  # Spark's names, of what it tells its tasks
_BATCH = "streaming.sql.batchId"


class StreamWriter(Travels, DataSourceStreamArrowWriter):
    def __init__(self, how: WriteOptions, schema: StructType) -> None:
        check_columns(schema, how.topic, how.value_columns)
        self._how = how
        keep_what_is_loaded()

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        # Processes that plan and commit have no use for these.
        from anabranch.client.producer import Producer
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
            written = self._write_once(iterator, producer, cluster, name, task, int(batch_id))
            keep_what_is_loaded()
            return written

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
            return StreamWritten(None, None, 0, query, found_stored=True)
        try:
            somewhere, count = write_rows(iterator, producer, cluster, self._how, task)
            if somewhere is None:
                return StreamWritten(None, None, 0, query)
            producer.commit_offset(name, TopicPartition(somewhere.topic, 0), batch_id + 1, "")
        except BaseException as error:
            _give_up(cluster, producer, error)
            raise
        return StreamWritten(producer.transaction, somewhere, count, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [one for one in messages if isinstance(one, StreamWritten)]
        to_end = [one.transaction for one in written if one.transaction is not None]
        somewhere = next((one.partition for one in written if one.partition is not None), None)
        any_stored = any(one.found_stored for one in written)
        if not to_end and not any_stored:
            return
        with Cluster(self._how.settings) as cluster:
            query = written[0].query
            begun = max(committed_offsets(cluster, query).values(), default=None)
            if complaint := complaint_of(begun, batchId, len(messages), any_stored):
                for transaction in to_end:
                    end_transaction(cluster, transaction, commit=False)
                raise Invalid(complaint)
            if somewhere is not None:
                done = {TopicPartition(somewhere.topic, 0): batchId + 1}
                commit_offsets(cluster, query, done, metadata=_told(len(messages)))
            for transaction in to_end:
                end_transaction(cluster, transaction, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [one for one in messages if isinstance(one, StreamWritten)]
        if not written or not self._how.exactly_once:
            return  # without a message the name of the query is not known
        with Cluster(self._how.settings) as cluster:
            for task in range(len(messages)):
                # Taking over the name ends what the task left open, wherever it got to.
                init_producer(cluster, f"{written[0].query}-{task}", self._how.transaction_timeout_ms)


def _give_up(cluster: Cluster, producer: "Producer", error: BaseException) -> None:
    """Abort what a task has begun.  `error` is what it fails with, whatever becomes of this."""
    if producer.transaction is not None and not isinstance(error, Unavailable):
        with suppress(AnabranchError):
            end_transaction(cluster, producer.transaction, commit=False)


def _told(tasks: int) -> str:
    """What is noted of a micro-batch that is being committed."""
    return f"{tasks} tasks"


def complaint_of(begun: Committed | None, batch_id: int, tasks: int, any_stored: bool) -> str:
    """Why a micro-batch of so many tasks must not be committed, if `begun` is the query's last note.

    `any_stored`: some task has found that rows of the micro-batch are stored.
    """
    if begun is None and any_stored:
        return (
            f"rows of micro-batch {batch_id} are stored, but the note is gone by how many tasks: whether all "
            "are cannot be told. Set exactlyOnce to false until the query is over this micro-batch; rows may "
            "be there twice"
        )
    if begun is not None and begun.offset == batch_id + 1 and begun.metadata != _told(tasks):
        return (
            f"micro-batch {batch_id} was half committed by {begun.metadata} when the query was stopped, "
            f"and now there are {tasks}: which rows are stored cannot be told. Start it as it was before "
            "(minPartitions, spark.sql.shuffle.partitions) until it is over this micro-batch"
        )
    return ""


class StreamWritten(Written):
    """`Written`, the name under which the query keeps how far it is, and whether a task was there before."""

    def __init__(
        self,
        transaction: Transaction | None,
        partition: TopicPartition | None,
        rows: int,
        query: str,
        *,
        found_stored: bool = False,
    ) -> None:
        super().__init__(transaction, partition, rows)
        self.query = query
        self.found_stored = found_stored
