"""Namespaces: made, listed, deleted, and what is done to all of their topics."""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.admin.routes import API, delete, get, put
from anabranch.base.errors import NotEmpty, PolicyViolation, UnknownNamespace, UnknownTenant, UnknownTopic
from anabranch.base.ids import Namespace
from anabranch.cluster.bundles import equal_bundles
from anabranch.meta.policies import Bundles, NamespacePolicies

_BOUNDARY_MAX = 0xFFFFFFFF
_ROUNDS = 20
_AGAIN_S = 0.02


@get(API + "/namespaces/{tenant}", answer=list[str])
async def names(call: Call) -> list[str]:
    """The namespaces of a tenant."""
    tenant = call.path["tenant"]
    if tenant not in call.image.tenants:
        raise UnknownTenant("Tenant not found")
    return [str(name) for name in call.services.pulsar.cluster.tenants.namespaces_of(tenant)]


@get(API + "/namespaces/{tenant}/{namespace}", answer=NamespacePolicies)
async def show(call: Call) -> NamespacePolicies:
    """All policies of a namespace."""
    return call.policies


@put(API + "/namespaces/{tenant}/{namespace}", body=NamespacePolicies | None)
async def create(call: Call) -> None:
    """Make a namespace, with policies if they are given."""
    namespace = call.namespace
    config = call.services.pulsar.config.current.pulsar
    tenants = call.services.pulsar.cluster.tenants
    if namespace.tenant not in call.image.tenants:
        raise UnknownTenant("Tenant does not exist")
    most = config.max_namespaces_per_tenant
    if most and len(tenants.namespaces_of(namespace.tenant)) >= most:
        raise PolicyViolation(f"Exceed the maximum number of namespace in tenant :{namespace.tenant}")
    await tenants.create_namespace(namespace, _completed(call, call.body or NamespacePolicies()))


def _completed(call: Call, policies: NamespacePolicies) -> NamespacePolicies:
    """Policies with the cluster and bundles that their giver left out.  Refused if they cannot be."""
    clusters = policies.replication_clusters or [call.cluster_name]
    if set(clusters) != {call.cluster_name}:
        raise Refused(403, f"Invalid cluster id: {sorted(set(clusters) - {call.cluster_name})[0][:200]}")
    bundles = policies.bundles
    if bundles is None or not bundles.boundaries:
        wanted = bundles.num_bundles if bundles is not None and bundles.num_bundles else None
        default = call.services.pulsar.config.current.pulsar.namespace_bundles
        bundles = equal_bundles(default if wanted is None else wanted)
    else:
        bundles = _checked(bundles)
    return msgspec.structs.replace(policies, replication_clusters=clusters, bundles=bundles)


def _checked(bundles: Bundles) -> Bundles:
    """Boundaries in order, from the first to the last there is."""
    try:
        numbers = [int(text, 16) for text in bundles.boundaries]
    except ValueError:
        raise Refused(412, "boundaries of bundles are hexadecimal numbers") from None
    if numbers != sorted(set(numbers)) or (numbers[0], numbers[-1]) != (0, _BOUNDARY_MAX):
        raise Refused(412, "boundaries of bundles go up from 0x00000000 to 0xffffffff")
    return Bundles([f"0x{number:08x}" for number in numbers], len(numbers) - 1)


@delete(API + "/namespaces/{tenant}/{namespace}", query=("force",))
async def remove(call: Call) -> None:
    """Delete a namespace without topics, or with them all if forced."""
    namespace = call.namespace
    if call.flag("force"):
        if not call.services.pulsar.config.current.pulsar.force_delete_namespaces:
            raise Refused(405, "Broker doesn't allow forced deletion of namespaces")
        await delete_with_topics(call, namespace)
        return
    if namespace not in call.image.namespaces:
        raise UnknownNamespace(f"Namespace {namespace} does not exist.")
    await call.services.pulsar.cluster.tenants.delete_namespace(namespace)


async def delete_with_topics(call: Call, namespace: Namespace) -> None:
    """Delete a namespace and everything in it, whoever uses it.

    Those who do come back at once and make their topics again: then those go too, a few times over.
    """
    pulsar = call.services.pulsar
    for left in reversed(range(_ROUNDS)):
        if namespace not in call.image.namespaces:
            raise UnknownNamespace(f"Namespace {namespace} does not exist.")
        for topic in call.image.topics_in(namespace):
            with suppress(UnknownTopic):  # somebody else was faster
                await pulsar.topics.delete(topic.name, force=True)
        try:
            await pulsar.cluster.tenants.delete_namespace(namespace)
        except NotEmpty:
            if not left:
                raise
            await asyncio.sleep(_AGAIN_S)  # one may be on its way to be made
        else:
            return


@get(API + "/namespaces/{tenant}/{namespace}/bundles", answer=Bundles)
async def bundles(call: Call) -> Any:
    """The bundles that a namespace is cut into."""
    return call.policies.bundles
