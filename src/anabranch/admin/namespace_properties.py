"""The clusters and the properties of namespaces."""

from typing import Any

import msgspec

from anabranch.admin.call import Call, Text
from anabranch.admin.checks import only_this_cluster
from anabranch.admin.namespace_policies import BASE, alter, set_field
from anabranch.admin.routes import delete, get, put, route

# --- clusters


@get(BASE + "/replication", answer=list[str])
async def clusters(call: Call) -> list[str]:
    """The clusters a namespace is in."""
    return call.policies.replication_clusters or [call.cluster_name]


@get(BASE + "/allowedClusters", answer=list[str])
async def allowed_clusters(call: Call) -> list[str]:
    """The clusters a namespace may be in; all, if none was said."""
    return call.policies.allowed_clusters


@route("POST", BASE + "/allowedClusters", body=list[str])
async def set_allowed_clusters(call: Call) -> None:
    """Say which clusters a namespace may be in: this one."""
    only_this_cluster(call.body, call)
    await set_field(call, "allowed_clusters", list(call.body))


@route("POST", BASE + "/replication", body=list[str])
async def set_clusters(call: Call) -> None:
    """Say which clusters a namespace is in: this one."""
    only_this_cluster(call.body, call)
    await set_field(call, "replication_clusters", list(call.body))


# --- properties


@get(BASE + "/properties", answer=dict[str, str])
async def properties(call: Call) -> dict[str, str]:
    """A namespace's properties."""
    return call.policies.properties


@put(BASE + "/properties", body=dict[str, str])
async def set_properties(call: Call) -> None:
    """Set some of a namespace's properties."""
    added: dict[str, str] = call.body
    await alter(call, lambda p: msgspec.structs.replace(p, properties={**p.properties, **added}))


@delete(BASE + "/properties")
async def clear_properties(call: Call) -> None:
    """Take back all of a namespace's properties."""
    await set_field(call, "properties", {})


@get(BASE + "/property/{key}", answer=None)
async def one_property(call: Call) -> Any:
    """One of a namespace's properties."""
    text = call.policies.properties.get(call.path["key"])
    return None if text is None else Text(text)


@put(BASE + "/property/{key}/{value}")
async def set_property(call: Call) -> None:
    """Set one of a namespace's properties."""
    key, value = call.path["key"], call.path["value"]
    await alter(call, lambda p: msgspec.structs.replace(p, properties={**p.properties, key: value}))


@delete(BASE + "/property/{key}")
async def remove_property(call: Call) -> None:
    """Take back one of a namespace's properties."""
    key = call.path["key"]
    await alter(
        call,
        lambda p: msgspec.structs.replace(
            p, properties={name: text for name, text in p.properties.items() if name != key}
        ),
    )
