"""Pulsar listener options: addresses, and what connections may do, by Pulsar's names and defaults.

A host that is not set is that of Kafka's listener, so that it is enough to set one.
"""

from dataclasses import dataclass

from anabranch.base.config import Kind, at_least, between, option
from anabranch.base.errors import InvalidConfig
from anabranch.base.ids import is_entity_name

NO_PORT = -1
_WILDCARDS = ("", "0.0.0.0", "::")
_PORT_MAX = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarConfig:
    broker_service_port: int = option(
        "brokerServicePort",
        Kind.INT,
        6650,
        between(NO_PORT, _PORT_MAX),
        "Port for Pulsar clients; 0 takes any that is free, -1 opens none.",
    )
    web_service_port: int = option(
        "webServicePort",
        Kind.INT,
        8080,
        between(NO_PORT, _PORT_MAX),
        "Port for HTTP: administration and look-up; 0 takes any that is free, -1 opens none.",
    )
    bind_address: str | None = option(
        "bindAddress",
        Kind.STRING,
        None,
        None,
        "Address that those two ports are opened on; unset, the one in `listeners`.",
    )
    advertised_address: str | None = option(
        "advertisedAddress",
        Kind.STRING,
        None,
        None,
        "Host that Pulsar clients are told to connect to; unset, the one Kafka clients are told.",
    )
    cluster_name: str = option(
        "clusterName",
        Kind.STRING,
        "standalone",
        lambda name: None if is_entity_name(name) else "String must have letters, digits and -_=:. only",
        "What Pulsar clients know the cluster by.",
    )
    keep_alive_interval_s: int = option(
        "keepAliveIntervalSeconds",
        Kind.INT,
        30,
        at_least(1),
        "A Pulsar connection that is silent for this long is asked for a sign, and closed if none comes.",
    )
    max_pending_publishes: int = option(
        "maxPendingPublishRequestsPerConnection",
        Kind.INT,
        1000,
        at_least(1),
        "Messages of a Pulsar connection in the works before no more is read from it.",
    )
    enable_persistent: bool = option(
        "enablePersistentTopics",
        Kind.BOOLEAN,
        True,
        None,
        "Whether Pulsar clients may use persistent topics.",
    )
    enable_non_persistent: bool = option(
        "enableNonPersistentTopics", Kind.BOOLEAN, True, None, "Whether they may use non-persistent topics."
    )
    max_tenants: int = option(
        "maxTenants", Kind.INT, 0, at_least(0), "Tenants of the cluster; 0 sets no limit.", dynamic=True
    )
    max_namespaces_per_tenant: int = option(
        "maxNamespacesPerTenant",
        Kind.INT,
        0,
        at_least(0),
        "Namespaces of a tenant; 0 sets no limit.",
        dynamic=True,
    )
    namespace_bundles: int = option(
        "defaultNumberOfNamespaceBundles",
        Kind.INT,
        4,
        at_least(1),
        "Bundles that a namespace is cut into if its creator does not say.",
        dynamic=True,
    )
    force_delete_tenants: bool = option(
        "forceDeleteTenantAllowed",
        Kind.BOOLEAN,
        False,
        None,
        "Whether a tenant can be deleted with all its namespaces.",
        dynamic=True,
    )
    force_delete_namespaces: bool = option(
        "forceDeleteNamespaceAllowed",
        Kind.BOOLEAN,
        False,
        None,
        "Whether a namespace can be deleted with all its topics.",
        dynamic=True,
    )

    transactions: bool = option(
        "transactionCoordinatorEnabled",
        Kind.BOOLEAN,
        False,
        None,
        "Whether Pulsar clients may use transactions; Kafka's always may.",
    )
    max_transactions: int = option(
        "maxActiveTransactionsPerCoordinator",
        Kind.INT,
        0,
        at_least(0),
        "Transactions of Pulsar clients that each of the 16 coordinators may have open; 0 sets no limit.",
        dynamic=True,
    )

    def __post_init__(self) -> None:
        if self.bind_address in _WILDCARDS and not self.advertised_address:
            raise InvalidConfig(
                "Pulsar clients cannot connect to every address of this machine: bindAddress names no single "
                "host, so set advertisedAddress to one they can reach"
            )
