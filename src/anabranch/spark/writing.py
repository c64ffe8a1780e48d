"""Write tasks: how one task stores its rows, whether the query is a batch or a stream.

Rows come a few thousand at a time; they are put together to some megabytes, so that a partition's batches
are worth sending, and go out while the next ones come in.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from anabranch.client.cluster import Cluster
from anabranch.client.destinations import TopicPartition
from anabranch.client.producer import Producer
from anabranch.spark.encode import encode
from anabranch.spark.options import WriteOptions
from anabranch.spark.partitioner import Partitioner
from anabranch.spark.rows import Sorter

_TOGETHER_BYTES = 8 << 20


def write_rows(
    batches: Iterable[pa.RecordBatch], producer: Producer, cluster: Cluster, how: WriteOptions, turn: int
) -> tuple[TopicPartition | None, int]:
    """All rows, stored.  One of the partitions they went to, and their number."""
    sorter = Sorter(cluster, how.topic, how.include_headers, Partitioner(how.batch_bytes, turn))
    somewhere: TopicPartition | None = None
    count = 0
    for together in _together(batches):
        encoded = together if how.values is None else how.values.encoded(together)
        destined = list(sorter.sort(encoded))
        producer.join(partition for partition, _ in destined)
        for partition, rows in destined:
            somewhere = partition
            count += len(rows)
            sequence = producer.sequence(partition, len(rows))
            for batch in encode(rows, producer.writer, sequence, how.batch_bytes, how.codec):
                producer.send(partition, batch)
    producer.flush()
    return somewhere, count


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        waiting.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= _TOGETHER_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size_bytes = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
