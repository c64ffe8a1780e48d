"""What Pulsar's tools ask about the machinery around topics, of which there is less here: honest answers.

resource quotas    the same for every bundle
bookies            none: messages lie in the broker's own log
resource groups    none
"""

from typing import Any

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.namespace_topics import bundle_names
from anabranch.admin.routes import API, get
from anabranch.base.errors import NotFound


class ResourceQuota(msgspec.Struct, frozen=True, rename="camel"):
    """What a load manager reckons with for a bundle it knows nothing of; Pulsar's numbers."""

    msg_rate_in: float = 40.0
    msg_rate_out: float = 120.0
    bandwidth_in: float = 100_000.0
    bandwidth_out: float = 300_000.0
    memory: float = 80.0
    dynamic: bool = True


@get(API + "/resource-quotas", answer=ResourceQuota)
async def default_quota(call: Call) -> ResourceQuota:
    """What every bundle is taken to need."""
    return ResourceQuota()


@get(API + "/resource-quotas/{tenant}/{namespace}/{bundle}", answer=ResourceQuota)
async def quota(call: Call) -> ResourceQuota:
    """What a bundle is taken to need."""
    bundles = call.policies.bundles
    if bundles is None or call.path["bundle"] not in bundle_names(bundles.boundaries):
        raise NotFound(f"Bundle range {call.path['bundle'][:100]} not found")
    return ResourceQuota()


@get(API + "/bookies/all", answer=dict[str, Any])
async def bookies(call: Call) -> dict[str, Any]:
    """The bookies that keep messages: none."""
    return {"bookies": []}


@get(API + "/bookies/racks-info", answer=dict[str, Any])
async def racks(call: Call) -> dict[str, Any]:
    """Where bookies stand."""
    return {}


@get(API + "/resourcegroups", answer=list[str])
async def resource_groups(call: Call) -> list[str]:
    """Groups of namespaces that share limits: none."""
    return []
