"""DescribeLogDirs (35): the data folder, and how many bytes each partition takes in it.

Null asks for all partitions; of those that are named, the ones that are not here are left out.  A
partition that was never opened is not opened for this: its folder is measured, in a thread.

v3 has an error code of its own, v4 the size of the file system and what is free, v5 whether the
folder takes no new partitions (ours always does).  We keep one folder, and a log is never on its way
to another.
"""

import asyncio
from concurrent.futures import Executor
from typing import Any

from anabranch.base.ids import TopicName
from anabranch.partition.host import PartitionHost
from anabranch.server.kafka.registry import Answer, RequestContext, api


@api(35, versions=(1, 5))
async def describe_log_dirs(request: Any, ctx: RequestContext) -> Answer:
    host = ctx.services.partitions
    sizes = await _sizes(host, _wanted(request, host), ctx.services.threads)
    topics: dict[TopicName, list[Answer]] = {}
    for (topic, index), size in sizes.items():
        topics.setdefault(topic, []).append(_partition(index, size))
    return {
        "results": [
            {
                "log_dir": str(folder.path.absolute()),
                "topics": [{"name": name.kafka, "partitions": parts} for name, parts in topics.items()],
                "total_bytes": folder.total_bytes,
                "usable_bytes": folder.usable_bytes,
                "is_cordoned": False,
            }
            for folder in host.log_dirs()
        ]
    }


def _wanted(request: Any, host: PartitionHost) -> dict[tuple[TopicName, int], None]:
    """The partitions asked for that are here, each once."""
    served = {topic.name.kafka: topic for topic in host.topics()}
    if request.topics is None:
        wanted = [(topic, index) for topic in served.values() for index in range(len(topic.partitions))]
    else:
        wanted = [
            (served[asked.topic], index)
            for asked in request.topics
            if asked.topic in served
            for index in asked.partitions
            if 0 <= index < len(served[asked.topic].partitions)
        ]
    return {(topic.name, index): None for topic, index in wanted if host.has_replica(topic, index)}


async def _sizes(
    host: PartitionHost, wanted: dict[tuple[TopicName, int], None], threads: Executor
) -> dict[tuple[TopicName, int], int]:
    opened = {(replica.topic, replica.index): replica.size_bytes for replica in host.open_replicas()}
    unopened = [partition for partition in wanted if partition not in opened]
    measured: list[int] = []
    if unopened:
        measured = await asyncio.get_running_loop().run_in_executor(threads, host.stored_bytes, unopened)
    known = opened | dict(zip(unopened, measured, strict=True))
    return {partition: known[partition] for partition in wanted}


def _partition(index: int, size_bytes: int) -> Answer:
    return {"partition_index": index, "partition_size": size_bytes, "offset_lag": 0, "is_future_key": False}
