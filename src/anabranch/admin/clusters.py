"""Clusters: this one.  Others come with replication between clusters, which is not there yet."""

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.admin.routes import API, delete, get, post, put
from anabranch.base.errors import Exists, NotFound


class ClusterData(msgspec.Struct, rename="camel"):
    service_url: str = ""
    broker_service_url: str = ""
    service_url_tls: str = ""
    broker_service_url_tls: str = ""
    broker_client_tls_enabled: bool = False
    tls_allow_insecure_connection: bool = False
    migrated: bool = False


def _check(call: Call) -> str:
    name = call.path["cluster"]
    if name != call.cluster_name:
        raise NotFound("Cluster does not exist")
    return name


@get(API + "/clusters", answer=list[str])
async def names(call: Call) -> list[str]:
    """The clusters that are known here."""
    return [call.cluster_name]


@get(API + "/clusters/{cluster}", answer=ClusterData)
async def show(call: Call) -> ClusterData:
    """Where a cluster is found."""
    _check(call)
    return ClusterData(call.services.web_url, call.services.pulsar.service_url)


@put(API + "/clusters/{cluster}", body=ClusterData)
async def create(call: Call) -> None:
    """Refused: there is no other cluster than this one."""
    if call.path["cluster"] == call.cluster_name:
        raise Exists("Cluster already exists")
    raise Refused(412, f"this broker knows its own cluster, {call.cluster_name}, and no other")


@post(API + "/clusters/{cluster}", body=ClusterData)
async def update(call: Call) -> None:
    """Refused: where this cluster is found is said by its brokers."""
    _check(call)
    raise Refused(412, "the addresses of this cluster are those its brokers are told: advertisedAddress")


@delete(API + "/clusters/{cluster}")
async def remove(call: Call) -> None:
    """Refused: a cluster does not delete itself."""
    _check(call)
    raise Refused(412, "Cluster not empty")


@get(API + "/clusters/{cluster}/peers", answer=list[str])
async def peers(call: Call) -> list[str]:
    """Clusters that may stand in for a cluster: none."""
    _check(call)
    return []


@get(API + "/clusters/{cluster}/migrate", answer=None)
async def migration(call: Call) -> None:
    """Where a cluster moves to: nowhere."""
    raise NotFound("Cluster does not exist")


@get(API + "/clusters/{cluster}/failureDomains/{name}", answer=None)
async def failure_domain(call: Call) -> None:
    """Brokers that fail together: there are no such groups."""
    raise NotFound(f"Domain {call.path['name'][:100]} for cluster {_check(call)} does not exist")


@get(API + "/clusters/{cluster}/failureDomains", answer=dict[str, str])
async def failure_domains(call: Call) -> dict[str, str]:
    """Groups of brokers that fail together: none."""
    _check(call)
    return {}


_ISOLATION = API + "/clusters/{cluster}/namespaceIsolationPolicies"


@get(_ISOLATION, answer=None)
@get(_ISOLATION + "/{policy}", answer=None)
@get(_ISOLATION + "/brokers/{broker}", answer=None)
async def isolation_policies(call: Call) -> None:
    """Namespaces that keep to some brokers: there are no such rules."""
    raise NotFound(f"NamespaceIsolationPolicies for cluster {_check(call)} does not exist")
