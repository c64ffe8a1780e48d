"""Tenants and their namespaces: every change to them.

    tenant  public            who may administer it, which clusters it may use
      namespace  public/default      policies of its topics

A topic is made only in a namespace that is there, and a namespace is deleted only when nothing is in it:
topics that are being made count (`made_in`), and none is begun while the namespace is being deleted.

`public/default` and `pulsar/system` are always there: they are made at the start if they are not, and so are
the namespaces of topics from before there were any.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from anabranch.base.errors import (
    Conflict,
    Exists,
    InvalidNamespace,
    NotEmpty,
    UnknownNamespace,
    UnknownTenant,
)
from anabranch.base.ids import DEFAULT_NAMESPACE, Namespace, is_entity_name
from anabranch.base.turns import Turns
from anabranch.cluster import change_lines
from anabranch.cluster.bundles import equal_bundles
from anabranch.cluster.image_watcher import ImageWatcher
from anabranch.meta import paths
from anabranch.meta.documents import TenantDocument, decode, encode
from anabranch.meta.image import ClusterImage
from anabranch.meta.policies import NamespacePolicies
from anabranch.meta.store import MUST_NOT_EXIST, MetadataStore

log = logging.getLogger(__name__)

SYSTEM_NAMESPACE = Namespace("pulsar", "system")
_DEFAULT_BUNDLES = 4

ChangeNamespace = Callable[[NamespacePolicies], NamespacePolicies]


class Tenants:
    def __init__(self, store: MetadataStore, watcher: ImageWatcher, turns: Turns) -> None:
        self._store = store
        self._watcher = watcher
        self._turns = turns
        self._making: Counter[Namespace] = Counter()  # topics on their way into a namespace
        self._going: set[Namespace] = set()

    @property
    def _image(self) -> ClusterImage:
        return self._watcher.image

    # --- tenants

    async def create_tenant(self, name: str, info: TenantDocument) -> None:
        if not is_entity_name(name):
            raise InvalidNamespace(
                f"tenant name {name[:249]!r} is illegal: ASCII alphanumerics and -_=:. only"
            )
        async with self._turns.of(paths.tenant(name)):
            if name in self._image.tenants:
                raise Exists(f"tenant '{name}' already exists")
            await self._put(paths.tenant(name), encode(info), MUST_NOT_EXIST)
            log.info("tenant %s: created", name)

    async def update_tenant(self, name: str, info: TenantDocument) -> None:
        async with self._turns.of(paths.tenant(name)):
            self._check_tenant(name)
            await self._put(paths.tenant(name), encode(info))
            log.info("tenant %s: changed, clusters %s", name, ", ".join(info.allowed_clusters))

    async def delete_tenant(self, name: str) -> None:
        """NotEmpty while it has namespaces."""
        async with self._turns.of(paths.tenant(name)):
            self._check_tenant(name)
            namespaces = self.namespaces_of(name)
            if namespaces:
                raise NotEmpty(
                    f"tenant '{name}' has namespaces, '{namespaces[0]}' for one; delete them first"
                )
            await self._delete(paths.tenant(name))
            log.info("tenant %s: deleted", name)

    def namespaces_of(self, tenant: str) -> list[Namespace]:
        return sorted(namespace for namespace in self._image.namespaces if namespace.tenant == tenant)

    # --- namespaces

    async def create_namespace(self, namespace: Namespace, policies: NamespacePolicies) -> None:
        async with self._turns.of(paths.tenant(namespace.tenant)):
            self._check_tenant(namespace.tenant)
            if namespace in self._image.namespaces:
                raise Exists(f"namespace '{namespace}' already exists")
            await self._put(paths.namespace(namespace), encode(policies), MUST_NOT_EXIST)
            log.info("namespace %s: created", namespace)

    async def alter_namespace(self, namespace: Namespace, change: ChangeNamespace) -> NamespacePolicies:
        """Replace a namespace's policies by what `change` makes of them, with nobody in between."""
        path = paths.namespace(namespace)
        async with self._turns.of(path):
            value = await self._store.get(path)
            if value is None:
                raise UnknownNamespace(f"there is no namespace '{namespace}'")
            before = decode(value.data, NamespacePolicies, path)
            policies = change(before)
            await self._put(path, encode(policies), value.version)
            if policies != before:
                log.info(
                    "namespace %s: policies changed: %s", namespace, change_lines.fields(before, policies)
                )
            return policies

    async def delete_namespace(self, namespace: Namespace) -> None:
        """NotEmpty while it has topics."""
        path = paths.namespace(namespace)
        async with self._turns.of(path):
            if namespace not in self._image.namespaces:
                raise UnknownNamespace(f"there is no namespace '{namespace}'")
            topics = self._image.topics_in(namespace)
            if topics or self._making[namespace]:
                example = f", '{topics[0].name.pulsar}' for one" if topics else ""
                raise NotEmpty(f"namespace '{namespace}' has topics{example}; delete them first")
            self._going.add(namespace)
            try:
                await self._delete(path)
                log.info("namespace %s: deleted", namespace)
            finally:
                self._going.discard(namespace)

    @asynccontextmanager
    async def made_in(self, namespace: Namespace) -> AsyncIterator[None]:
        """While a topic is being made in a namespace."""
        if namespace in self._going:
            raise Conflict(f"namespace '{namespace}' is being deleted")
        self._making[namespace] += 1
        try:
            yield
        finally:
            self._making[namespace] -= 1
            if not self._making[namespace]:
                del self._making[namespace]

    # --- how it is done

    def _check_tenant(self, name: str) -> None:
        if name not in self._image.tenants:
            raise UnknownTenant(f"there is no tenant '{name}'")

    async def _put(self, path: str, data: bytes, expected_version: int | None = None) -> None:
        await self._store.put(path, data, expected_version)
        await self._watcher.refresh(path)

    async def _delete(self, path: str) -> None:
        await self._store.delete(path)
        await self._watcher.refresh(path)


async def found_namespaces(store: MetadataStore, watcher: ImageWatcher, cluster: str) -> None:
    """Make the namespaces that are always there, and those that topics are in, if they are not there."""
    image = watcher.image
    needed = {DEFAULT_NAMESPACE, SYSTEM_NAMESPACE, *(name.in_namespace for name in image.topics)}
    missing = needed - image.namespaces.keys()
    tenants = {namespace.tenant for namespace in missing} - image.tenants.keys()
    policies = NamespacePolicies(
        replication_clusters=[cluster],
        bundles=equal_bundles(_DEFAULT_BUNDLES),
        schema_validation_enforced=False,
    )
    documents = {paths.tenant(name): encode(TenantDocument([], [cluster])) for name in tenants}
    documents |= {paths.namespace(name): encode(policies) for name in missing}

    async def make(path: str, data: bytes) -> None:
        try:
            await store.put(path, data, MUST_NOT_EXIST)
        except Exists:
            return  # another node was first
        finally:
            await watcher.refresh(path)

    await asyncio.gather(*(make(path, data) for path, data in documents.items()))
