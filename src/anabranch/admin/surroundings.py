"""Bookies, quotas, resource groups, filters: honest answers to Pulsar's tools about what is not here.

resource quotas    the same for every bundle
bookies            none: messages lie in the broker's own log
resource groups    none
"""

from typing import Any

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.admin.namespace_policies import BASE
from anabranch.admin.parts import part_names, whole_topic
from anabranch.admin.routes import API, get, post
from anabranch.admin.subscriptions import ONE
from anabranch.admin.topics import TOPIC
from anabranch.base.errors import NotFound
from anabranch.cluster.bundles import bundle_names


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


@get(API + "/resourcegroups/{group}", answer=None)
async def resource_group(call: Call) -> None:
    """One of them."""
    raise NotFound("ResourceGroup does not exist")


@get(BASE + "/resourcegroup", answer=None)
@get(BASE + "/persistence/bookieAffinity", answer=None)
@get(BASE + "/allowedTopicPropertyKeysForMetrics", answer=None)
async def nothing_of_namespace(call: Call) -> None:
    """What a namespace cannot have here."""
    call.services.pulsar.catalog.policies(call.namespace)


class EntryFilters(msgspec.Struct, rename="camel"):
    entry_filter_names: str = ""


@get(BASE + "/entryFilters", answer=None)
async def filters_of_namespace(call: Call) -> None:
    """What keeps messages of a namespace from consumers: nothing."""
    call.services.pulsar.catalog.policies(call.namespace)


@get(TOPIC + "/entryFilters", answer=EntryFilters, query=("applied",))
async def filters_of_topic(call: Call) -> EntryFilters:
    """What keeps messages of a topic from consumers: nothing."""
    whole_topic(call)
    return EntryFilters()


@post(BASE + "/entryFilters", body=EntryFilters)
@post(TOPIC + "/entryFilters", body=EntryFilters)
async def set_filters(call: Call) -> None:
    """Refused: there are none to choose from."""
    raise Refused(400, f"Entry filter '{call.body.entry_filter_names[:100]}' not found")


@get(TOPIC + "/shadowTopics", answer=None)
async def shadows(call: Call) -> None:
    """Topics that show the messages of this one: none."""
    whole_topic(call)


@get(ONE + "/replicatedSubscriptionStatus", answer=dict[str, bool])
async def replicated(call: Call) -> dict[str, bool]:
    """Whether other clusters know how far a subscription has got, by partition: no."""
    return {name.pulsar: False for name in part_names(call)}
