"""The broker's configuration: put together from layers, swapped as a whole when one of them changes.

    set by                                    wins over
    for this broker, while it runs            everything
    for all brokers, while they run           what the broker was started with
    file, environment, flags at the start     defaults

`Layers` are those mappings of names to strings.  `BrokerConfig` is what they amount to: a section for each
part, checked, immutable.  `DynamicConfig` holds the current one; when the cluster's image brings other
overrides it builds the next and tells whoever asked to be told.

    config.current.sockets.max_connections    what holds now
    config.log_config({"retention.ms": "1"})  a topic's logs, by its own overrides and the broker's options
    config.on_change(callback)                callback(old, new) after every change

Which options may change while the broker runs is Kafka's to say (`Option.dynamic`).  As in Kafka, an override
of a name that is no option is kept and shown but means nothing; one that turns out illegal is passed over.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from anabranch.base.config import Option, options_of, section
from anabranch.base.errors import Invalid, InvalidConfig
from anabranch.cluster.config import ControlConfig
from anabranch.groups.config import GroupConfig
from anabranch.groups.share_config import ShareStateConfig
from anabranch.groups.transaction_config import TransactionConfig
from anabranch.log.config import BROKER_OPTIONS as LOG_OPTIONS
from anabranch.log.config import LogConfig
from anabranch.log.config_broker import CleanerConfig, ProducerStateConfig, UpkeepConfig
from anabranch.meta.image import ImageChange
from anabranch.meta.policy_defaults import PolicyDefaults
from anabranch.meta.policy_upkeep import PolicyUpkeep
from anabranch.partition.config import ReplicationConfig
from anabranch.server.config_pulsar import PulsarConfig
from anabranch.server.config_sections import (
    FetchConfig,
    MetricsConfig,
    NodeConfig,
    SocketConfig,
    TelemetryConfig,
    TopicsConfig,
)
from anabranch.server.config_tables import TablesConfig

_log = logging.getLogger(__name__)

Overrides = Mapping[str, str]
Changed = Callable[["BrokerConfig", "BrokerConfig"], None]

_SECTIONS: dict[str, type[Any]] = {
    "node": NodeConfig,
    "sockets": SocketConfig,
    "topics": TopicsConfig,
    "fetch": FetchConfig,
    "replication": ReplicationConfig,
    "control": ControlConfig,
    "upkeep": UpkeepConfig,
    "cleaner": CleanerConfig,
    "producers": ProducerStateConfig,
    "telemetry": TelemetryConfig,
    "metrics": MetricsConfig,
    "groups": GroupConfig,
    "share_states": ShareStateConfig,
    "transactions": TransactionConfig,
    "pulsar": PulsarConfig,
    "policies": PolicyDefaults,
    "policy_upkeep": PolicyUpkeep,
    "tables": TablesConfig,
}

BROKER_OPTIONS: Mapping[str, Option] = {
    declared.name: declared for part in _SECTIONS.values() for declared in options_of(part).values()
} | dict(LOG_OPTIONS)
"""Every option of a broker by name."""


@dataclass(frozen=True, slots=True)
class Layers:
    """What was set, by who set it.  Only known names in `static`; any in the dynamic ones."""

    static: Overrides
    dynamic_default: Overrides
    dynamic_broker: Overrides

    def merged(self) -> dict[str, str]:
        return {**self.static, **self.dynamic_default, **self.dynamic_broker}


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Everything a broker is told, a section for each part; `log` is what topics get that do not say."""

    node: NodeConfig
    sockets: SocketConfig
    topics: TopicsConfig
    fetch: FetchConfig
    replication: ReplicationConfig
    control: ControlConfig
    upkeep: UpkeepConfig
    cleaner: CleanerConfig
    producers: ProducerStateConfig
    telemetry: TelemetryConfig
    metrics: MetricsConfig
    groups: GroupConfig
    share_states: ShareStateConfig
    transactions: TransactionConfig
    pulsar: PulsarConfig
    policies: PolicyDefaults
    policy_upkeep: PolicyUpkeep
    tables: TablesConfig
    log: LogConfig
    layers: Layers

    @classmethod
    def build(cls, layers: Layers) -> "BrokerConfig":
        """InvalidConfig if a value is illegal, or two do not go together."""
        values = layers.merged()
        sections = {name: section(part, values) for name, part in _SECTIONS.items()}
        return cls(**sections, log=LogConfig.build({}, values), layers=layers)

    @property
    def tables_root(self) -> str:
        """Where tables go that were not told where."""
        return self.tables.root or str(self.node.data_dir.absolute() / "tables")


class DynamicConfig:
    """The configuration that holds now."""

    def __init__(self, static: BrokerConfig) -> None:
        self.current = static
        self._applied: tuple[Overrides, Overrides] = ({}, {})
        self._changed: list[Changed] = []

    def on_change(self, callback: Changed) -> None:
        """Call `callback(old, new)` whenever another configuration has taken the place of the current one."""
        self._changed.append(callback)

    def log_config(self, topic_overrides: Overrides) -> LogConfig:
        """The configuration of a topic's logs.  InvalidConfig if the overrides are not legal."""
        if not topic_overrides:
            return self.current.log
        return LogConfig.build(topic_overrides, self.current.layers.merged())

    def stored_log_config(self, topic_overrides: Overrides) -> LogConfig:
        """As `log_config`, for overrides that are there already and must be lived with.

        They were legal when they were set, but by another version, or beside other broker options: what is
        illegal by now is passed over, so that a broker still starts and its other topics are served.
        """
        try:
            return self.log_config(topic_overrides)
        except InvalidConfig as error:
            _log.error("an override of a topic is passed over: %s", error)
        legal: dict[str, str] = {}
        for name, text in topic_overrides.items():
            with suppress(InvalidConfig):
                self.log_config(legal | {name: text})
                legal[name] = text
        return self.log_config(legal)

    def image_changed(self, change: ImageChange) -> None:
        """A subscriber of the cluster; call it once with the image there is at the start."""
        new = change.new
        self.apply(new.default_broker_config, new.broker_configs.get(self.current.node.node_id, {}))

    def apply(self, dynamic_default: Overrides, dynamic_broker: Overrides) -> None:
        """The cluster's image holds these overrides now, for all brokers and for this one."""
        if self._applied == (dynamic_default, dynamic_broker):
            return
        self._applied = (dynamic_default, dynamic_broker)
        legal = Layers(self.current.layers.static, _legal(dynamic_default), _legal(dynamic_broker))
        try:
            new = BrokerConfig.build(legal)
        except InvalidConfig:
            _log.exception("broker configuration: stays as it was, the overrides contradict each other")
            return
        old, self.current = self.current, new
        for callback in self._changed:
            callback(old, new)

    def check(self, overrides: Overrides, *, for_all: bool) -> None:
        """Would these overrides, for all brokers or for this one, be legal?

        Invalid (the request is at fault, as Kafka has it) if one is read-only, has an illegal value, or does
        not go together with the rest.
        """
        fixed = sorted(
            name for name in overrides if name in BROKER_OPTIONS and not BROKER_OPTIONS[name].dynamic
        )
        if fixed:
            raise Invalid(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
        layers = self.current.layers
        try:
            for name, text in overrides.items():  # also where this broker has something else
                if name in BROKER_OPTIONS:
                    BROKER_OPTIONS[name].parse(text)
            BrokerConfig.build(
                Layers(layers.static, overrides, layers.dynamic_broker)
                if for_all
                else Layers(layers.static, layers.dynamic_default, overrides)
            )
        except InvalidConfig as error:
            raise Invalid(str(error)) from error


def _legal(overrides: Overrides) -> dict[str, str]:
    """Without what cannot be used; somebody with other options, or none, wrote it."""
    return {name: text for name, text in overrides.items() if _usable(name, text)}


def _usable(name: str, text: str) -> bool:
    declared = BROKER_OPTIONS.get(name)
    if declared is None:
        _log.warning("broker configuration: %s is stored but has no meaning here", name)
        return True
    if not declared.dynamic:
        _log.error("broker configuration: %s cannot be changed while a broker runs, passed over", name)
        return False
    try:
        declared.parse(text)
    except InvalidConfig as error:
        _log.error("broker configuration: an override is passed over: %s", error)
        return False
    return True
