"""Adoption: the folder of a broker that was alone becomes the first broker of a cluster.

    /adopting  the cluster's id          what is there may be half of it
    ...        every document, as it was
    /cluster   and /adopting gone        in one step: from now on it is a cluster
    the folder's own metadata set aside

Cluster id, broker id and all topics stay as they are.  It may be killed at any moment and done again: until
the last step the folder is as it was, and what was copied is known by the cluster's id.
"""

import asyncio
from pathlib import Path

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import AnabranchError, Invalid
from anabranch.cli.failure import CommandError
from anabranch.meta import paths
from anabranch.meta.documents import ClusterDocument, decode
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.moved import METADATA, check_not_moved, set_aside
from anabranch.meta.store import Create, Delete, MetadataStore
from anabranch.partition.folders import DataFolderLock
from anabranch.partition.meta_properties import read_meta_properties

_ADOPTING = "/adopting"
_SESSION_MS = 10_000


def adopt(data: Path, zookeeper: str) -> str:
    """Make it so; the command that starts the broker.  CommandError if it cannot be."""
    disk = DirectDisk()
    try:
        mine = read_meta_properties(disk, data)
        if mine is None:
            raise Invalid(f"{data} is not the data folder of a broker")
        check_not_moved(disk, data)
        if not disk.exists(data / METADATA):
            raise Invalid(f"{data} has no metadata of its own; it is a broker of a cluster already")
        lock = DataFolderLock(DirectDisk(), data)
        try:
            asyncio.run(_copy(data, zookeeper, mine.cluster_id))
            command = f"anabranch broker --id {mine.node_id} --zookeeper {zookeeper} --data {data.absolute()}"
            set_aside(disk, data, command)
        finally:
            lock.release()
    except AnabranchError as error:
        raise CommandError(str(error)) from error
    return command


async def _copy(data: Path, zookeeper: str, cluster_id: str) -> None:
    from anabranch.meta.zookeeper import ZooKeeperStore  # its library takes long to load

    source = EmbeddedStore.open(data / METADATA, DirectDisk())
    try:
        target = await ZooKeeperStore.connect(zookeeper, _SESSION_MS)
        try:
            await copy_cluster(source, target, cluster_id, zookeeper)
        finally:
            await target.close()
    finally:
        await source.close()


async def copy_cluster(source: MetadataStore, target: MetadataStore, cluster_id: str, name: str) -> None:
    """All documents of `source`.  Invalid if `target`, which people know as `name`, has others."""
    there = await target.get(paths.CLUSTER)
    if there is not None:
        found = decode(there.data, ClusterDocument, paths.CLUSTER).cluster_id
        if found == cluster_id:
            return  # it was copied before, and not set aside
        raise Invalid(f"{name} keeps cluster {found}; choose another chroot: HOST:PORT/NAME")
    begun = await target.get(_ADOPTING)
    if begun is None:
        if names := await target.children("/"):
            raise Invalid(f"{name} is not empty, it has {names[0]}; choose another chroot: HOST:PORT/NAME")
        await target.create(_ADOPTING, cluster_id.encode())
    elif begun.data != cluster_id.encode():
        raise Invalid(f"{name} is where another folder is being copied to; choose another chroot")
    documents = dict(await source.scan("/"))
    cluster = documents.pop(paths.CLUSTER)
    for path, value in documents.items():
        if not value.owner:
            await target.put(path, value.data)
    await target.multi([Create(paths.CLUSTER, cluster.data), Delete(_ADOPTING)])
