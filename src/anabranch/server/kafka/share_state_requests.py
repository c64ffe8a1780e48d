"""Share state requests: what the five APIs over states of share partitions have in common.

Brokers ask each other by them (`groups/share_states_anywhere`), and so do tools.  Each takes share partitions
of a group by topic, and answers partition by partition.  Requests of a connection do not wait for each other:
a share partition's leader has one on its way, and a broker leads many.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.groups.share_state import ShareKey
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.group_topics import NOT_HOSTED, by_id, has_partition
from anabranch.server.kafka.registry import Answer, RequestContext
from anabranch.wire.kafka.schema import ErrorCode

Asked = Any
"""A partition of the request, as the decoder reads it."""


async def for_each(
    request: Any,
    ctx: RequestContext,
    answer: Callable[[ShareKey, Asked], Awaitable[Answer]],
    nothing: Answer | None = None,
) -> Answer:
    """What `answer` has to say about each share partition; what it raises stands beside `nothing`."""
    ctx.begun()
    image = ctx.services.cluster.image
    results = []
    for topic in request.topics:
        found = by_id(image, topic.topic_id)
        partitions = []
        for asked in topic.partitions:
            code, message = ErrorCode.none, None
            told = nothing or {}
            if found is None or not has_partition(found, asked.partition):
                code, message = ErrorCode.unknown_topic_or_partition, NOT_HOSTED
            else:
                try:
                    told = await answer(ShareKey(request.group_id, found.id, asked.partition), asked)
                except AnabranchError as error:
                    code, message = code_of(error), message_of(error)
            partitions.append(
                {"partition": asked.partition, "error_code": code, "error_message": message, **told}
            )
        results.append({"topic_id": topic.topic_id, "partitions": partitions})
    return {"results": results}
