"""DeleteRecords (21): a partition forgets what is below an offset; -1 stands for its high watermark.

The answer is the low watermark, which never moves back: where the log starts on whichever replica it starts
first, of those that are there.  Followers are waited for, who move their starts with their next fetch; one
that takes longer than the request's time is REQUEST_TIMED_OUT, and the records go all the same.  A topic that
is only compacted is refused, and so is an internal one.  If a partition comes twice the last counts.
"""

import asyncio
from typing import Any, NamedTuple

from anabranch.base.errors import AnabranchError, InvalidTopicName, PolicyViolation, TimedOut
from anabranch.cluster.topics import is_internal
from anabranch.partition.host import PartitionHost
from anabranch.partition.partition import Partition
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api

_HIGH_WATERMARK = -1
_TRIMMED_A_TURN = 16  # logs that may have to be opened for it, and write down their epochs


class _Trimmed(NamedTuple):
    """A partition that starts at `start` here."""

    partition: Partition
    start: int


@api(21, versions=(0, 2))
async def delete_records(request: Any, ctx: RequestContext) -> Answer:
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = {part.partition_index: part.offset for part in topic.partitions}
        wanted.setdefault(topic.name, {}).update(offsets)
    host, timeout_s = ctx.services.partitions, max(0, request.timeout) / 1000
    trimmed: dict[str, list[_Trimmed | Exception]] = {topic: [] for topic in wanted}
    count = 0
    for topic, offsets in wanted.items():
        for index, offset in offsets.items():
            trimmed[topic].append(_trim(host, topic, index, offset))
            count += 1
            if count % _TRIMMED_A_TURN == 0:
                await asyncio.sleep(0)
    ctx.begun()
    return {
        "topics": [
            {
                "name": topic,
                "partitions": await asyncio.gather(
                    *(
                        _answer(index, partition, timeout_s)
                        for index, partition in zip(wanted[topic], partitions, strict=True)
                    )
                ),
            }
            for topic, partitions in trimmed.items()
        ]
    }


def _trim(host: PartitionHost, topic: str, index: int, offset: int) -> _Trimmed | Exception:
    try:
        served = host.topic(topic)
        if is_internal(served.name) and 0 <= index < len(served.partitions):
            raise InvalidTopicName(f"records of the internal topic {topic} cannot be deleted")
        partition = host.partition_of(served, index)
        if partition.config.cleanup_policy == {"compact"}:
            raise PolicyViolation(f"cleanup.policy of topic {topic} does not allow records to be deleted")
        end = partition.high_watermark if offset == _HIGH_WATERMARK else offset
        return _Trimmed(partition, partition.trim(end))
    except (AnabranchError, OSError) as error:
        return error


async def _answer(index: int, trimmed: _Trimmed | Exception, timeout_s: float) -> Answer:
    answer = {"partition_index": index, "low_watermark": -1}
    if isinstance(trimmed, Exception):
        return answer | {"error_code": code_of(trimmed)}
    partition, start = trimmed
    if partition.low_watermark < start:
        try:
            await asyncio.wait_for(partition.started_at(start), timeout_s)
        except TimeoutError:
            late = TimedOut("not all replicas have deleted the records")
            return answer | {"error_code": code_of(late), "low_watermark": partition.low_watermark}
        except AnabranchError as error:
            return answer | {"error_code": code_of(error)}
    return answer | {"low_watermark": partition.low_watermark}
