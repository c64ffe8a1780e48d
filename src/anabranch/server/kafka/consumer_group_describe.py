"""ConsumerGroupDescribe (69): consumer groups, their members, what each has and what it is meant to have.

    v1   whether a member speaks the classic protocol or the consumer protocol

A group that is not there, or is a classic one, is GROUP_ID_NOT_FOUND: clients then ask DescribeGroups.
"""

from typing import Any

from anabranch.groups.consumer_requests import not_a_consumer_group
from anabranch.groups.heartbeats import Refused
from anabranch.groups.shard import GroupShard
from anabranch.server.kafka.described_groups import described_groups
from anabranch.server.kafka.registry import Answer, RequestContext, api


@api(69, versions=(0, 1))
async def consumer_group_describe(request: Any, ctx: RequestContext) -> Answer:
    return await described_groups(
        request, ctx, _describe, lambda group_id: not_a_consumer_group(group_id, exists=False)
    )


def _describe(shard: GroupShard, group_id: str) -> Answer:
    described = shard.consumer.describe(group_id)
    if described.get("error_code"):
        raise Refused(described["error_code"], described["error_message"])
    return described
