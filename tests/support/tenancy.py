"""Namespaces for tests that need more than the default one."""

from anabranch.base.ids import Namespace
from anabranch.cluster.cluster import Cluster
from anabranch.meta.documents import TenantDocument
from anabranch.meta.policies import NamespacePolicies


async def make_namespace(cluster: Cluster, name: str) -> Namespace:
    """`tenant/namespace`, with its tenant, if they are not there."""
    namespace = Namespace.parse(name)
    if namespace.tenant not in cluster.image.tenants:
        await cluster.tenants.create_tenant(namespace.tenant, TenantDocument([], ["standalone"]))
    if namespace not in cluster.image.namespaces:
        await cluster.tenants.create_namespace(namespace, NamespacePolicies())
    return namespace
