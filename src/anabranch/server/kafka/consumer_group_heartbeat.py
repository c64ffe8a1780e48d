"""ConsumerGroupHeartbeat (68): all that a member of a consumer group says to its coordinator (KIP-848).

    v1   topics may be subscribed to by a regular expression (RE2's language); members choose their own id

A request says only what has changed since the member's last one.  What is decided, and the codes of what
is refused, is in `groups/consumer_heartbeat`.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from anabranch.base.errors import AnabranchError
from anabranch.groups.consumer_member import Partitions
from anabranch.groups.consumer_requests import Heartbeat
from anabranch.groups.heartbeats import Refused
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext, api


@api(68, versions=(0, 1))
async def consumer_group_heartbeat(request: Any, ctx: RequestContext) -> Answer:
    names = request.subscribed_topic_names
    asked = Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout,
        topic_names=None if names is None else frozenset(names),
        topic_regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.peer.address or ''}",
        version=ctx.version,
    )
    try:
        return await ctx.services.groups.submit(
            asked.group_id,
            lambda shard, token, now_ms: shard.consumer.heartbeat(asked, token, now_ms),
            ctx.begun,
        )
    except AnabranchError as error:
        return Refused(code_of(error), message_of(error) or "").answer


def _owned(topics: Iterable[Any] | None) -> Partitions | None:
    """What the member says it owns; a topic that it names without an id is none."""
    if topics is None:
        return None
    owned: dict[UUID, set[int]] = {}  # a topic may come again and again
    for topic in topics:
        if topic.topic_id is not None:
            owned.setdefault(topic.topic_id, set()).update(topic.partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
