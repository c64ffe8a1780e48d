"""Tenants: who has namespaces here."""

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.admin.namespaces import delete_with_topics
from anabranch.admin.routes import API, delete, get, post, put
from anabranch.base.errors import PolicyViolation, UnknownTenant
from anabranch.meta.documents import TenantDocument


def _info(call: Call) -> TenantDocument:
    """What the request says of a tenant.  Refused if it cannot be."""
    info: TenantDocument | None = call.body
    if info is None:
        raise Refused(412, "TenantInfo is null")
    if not info.allowed_clusters or not all(name.strip() for name in info.allowed_clusters):
        raise Refused(412, "Clusters cannot be empty or blank")
    if set(info.allowed_clusters) != {call.cluster_name}:
        raise Refused(412, "Clusters do not exist")
    if any(role != role.strip() for role in info.admin_roles):
        raise Refused(412, "AdminRoles contains whitespace in the beginning or end.")
    return info


@get(API + "/tenants", answer=list[str])
async def names(call: Call) -> list[str]:
    """The tenants there are."""
    return sorted(call.image.tenants)


@get(API + "/tenants/{tenant}", answer=TenantDocument)
async def show(call: Call) -> TenantDocument:
    """Who may administer a tenant, and where it may be."""
    found = call.image.tenants.get(call.path["tenant"])
    if found is None:
        raise UnknownTenant("Tenant does not exist")
    return found


@put(API + "/tenants/{tenant}", body=TenantDocument | None)
async def create(call: Call) -> None:
    """Make a tenant."""
    info = _info(call)
    most = call.services.pulsar.config.current.pulsar.max_tenants
    if most and len(call.image.tenants) >= most and call.path["tenant"] not in call.image.tenants:
        raise PolicyViolation("Exceed the maximum number of tenants")
    await call.services.pulsar.cluster.tenants.create_tenant(call.path["tenant"], info)


@post(API + "/tenants/{tenant}", body=TenantDocument | None)
async def update(call: Call) -> None:
    """Say anew who may administer a tenant."""
    await call.services.pulsar.cluster.tenants.update_tenant(call.path["tenant"], _info(call))


@delete(API + "/tenants/{tenant}", query=("force",))
async def remove(call: Call) -> None:
    """Delete a tenant without namespaces, or with them all if forced."""
    tenants, name = call.services.pulsar.cluster.tenants, call.path["tenant"]
    if call.flag("force"):
        if not call.services.pulsar.config.current.pulsar.force_delete_tenants:
            raise Refused(405, "Broker doesn't allow forced deletion of tenants")
        for namespace in tenants.namespaces_of(name):
            await delete_with_topics(call, namespace)
    await tenants.delete_tenant(name)
