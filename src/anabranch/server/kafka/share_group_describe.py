"""ShareGroupDescribe (77): share groups, their members, and what each reads.

A group that is not there, or of another protocol, is GROUP_ID_NOT_FOUND.
"""

from typing import Any

from anabranch.groups.share_requests import not_a_share_group
from anabranch.server.kafka.described_groups import described_groups
from anabranch.server.kafka.registry import Answer, RequestContext, api


@api(77, versions=(1, 1))
async def share_group_describe(request: Any, ctx: RequestContext) -> Answer:
    return await described_groups(
        request,
        ctx,
        lambda shard, group_id: shard.share.describe(group_id),
        lambda group_id: not_a_share_group(group_id, exists=False),
    )
