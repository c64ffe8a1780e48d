"""Broker options: one small frozen class per part of the broker.

The log's own sections are in `log/config_broker.py`; `server/config.py` puts all of them together.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from anabranch.base.config import INT_MAX, Kind, at_least, option
from anabranch.base.errors import InvalidConfig
from anabranch.base.ids import BrokerId

_ENDPOINT = re.compile(r"(?P<name>\w+)://(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[\w.-]*)):(?P<port>\d{1,5})")
_WILDCARDS = ("", "0.0.0.0", "::")
_PORT_MAX = 65535
_PLAINTEXT = "PLAINTEXT"
_SECURE = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL"})


class Endpoint(NamedTuple):
    host: str
    port: int


def _wrong_endpoints(items: tuple[str, ...]) -> str | None:
    named = {match["name"].upper(): match for item in items if (match := _ENDPOINT.fullmatch(item))}
    if (
        not len(named) == len(items) <= 2
        or _PLAINTEXT not in named
        or not _SECURE.isdisjoint(named)
        or any(int(match["port"]) > _PORT_MAX for match in named.values())
    ):
        return (
            "Value must be one listener of the form PLAINTEXT://HOST:PORT, or two of which the other has "
            "a name of its own, such as INTERNAL://HOST:PORT for brokers"
        )
    return None


def _endpoints(items: tuple[str, ...]) -> dict[str, Endpoint]:
    """By the listener's name."""
    matches = [match for item in items if (match := _ENDPOINT.fullmatch(item))]
    return {
        match["name"].upper(): Endpoint(match["v6"] or match["host"], int(match["port"])) for match in matches
    }


def _wrong_protocols(items: tuple[str, ...]) -> str | None:
    wrong = [item for item in items if not item.upper().endswith(f":{_PLAINTEXT}")]
    return f"Every listener must be NAME:{_PLAINTEXT}, {wrong[0]} is not" if wrong else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Who this broker is and where it lives."""

    node_id: BrokerId = option(  # noqa: RUF009
        "node.id", Kind.INT, 1, at_least(0), "The broker's id in the cluster."
    )
    rack: str | None = option(
        "broker.rack", Kind.STRING, None, None, "The rack or zone the broker stands in."
    )
    host_id: str | None = option(
        "host.id",
        Kind.STRING,
        None,
        None,
        "The machine the broker is on: replicas on brokers of one machine fail together.",
    )
    zookeeper_connect: str | None = option(
        "zookeeper.connect",
        Kind.STRING,
        None,
        None,
        "The ZooKeeper that keeps the cluster, HOST:PORT,HOST:PORT/chroot; unset, the broker is alone and "
        "keeps its metadata itself.",
    )
    broker_session_timeout_ms: int = option(
        "broker.session.timeout.ms",
        Kind.INT,
        9_000,
        at_least(1),
        "A broker that ZooKeeper has not heard of for this long is taken for dead.",
    )
    zookeeper_session_timeout_ms: int | None = option(
        "zookeeper.session.timeout.ms",
        Kind.INT,
        None,
        at_least(1),
        "The same by its older name; the one above holds if this is unset.",
    )
    log_dirs: tuple[str, ...] = option(
        "log.dirs",
        Kind.LIST,
        ("anabranch-data",),
        lambda dirs: None if len(dirs) == 1 else "Exactly one folder is supported",
        "The folder that holds the data.",
    )
    max_open_files: int = option(
        "anabranch.max.open.files",
        Kind.INT,
        4096,
        at_least(64),
        "Log and index files kept open at the same time; the least recently used is closed first.",
    )

    @property
    def session_timeout_ms(self) -> int:
        return self.zookeeper_session_timeout_ms or self.broker_session_timeout_ms

    @property
    def data_dir(self) -> Path:
        return Path(self.log_dirs[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketConfig:
    """Where clients come in, and how much of this machine they may use."""

    listeners: tuple[str, ...] = option(
        "listeners",
        Kind.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        _wrong_endpoints,
        "Where the broker listens, PLAINTEXT://HOST:PORT; port 0 takes any that is free. A second one, "
        "INTERNAL://HOST:PORT, may be for brokers alone (inter.broker.listener.name).",
    )
    advertised_listeners: tuple[str, ...] | None = option(
        "advertised.listeners",
        Kind.LIST,
        None,
        _wrong_endpoints,
        "The addresses clients and brokers are told to connect to, if they are not those of listeners.",
    )
    inter_broker_listener: str | None = option(
        "inter.broker.listener.name",
        Kind.STRING,
        None,
        None,
        "Which of two listeners other brokers are told to connect to.",
    )
    security_protocols: tuple[str, ...] | None = option(
        "listener.security.protocol.map",
        Kind.LIST,
        None,
        _wrong_protocols,
        "The protocol of each listener, NAME:PLAINTEXT; there is no other yet.",
    )
    request_max_bytes: int = option(
        "socket.request.max.bytes",
        Kind.INT,
        100 << 20,
        at_least(1),
        "Largest request that is read from a socket.",
    )
    # Kafka's default is no limit, its memory is what the heap allows.  Ours is bounded from the start: room
    # for two requests of the largest size, or some thousand ordinary ones; beyond it sockets wait.
    queued_max_request_bytes: int = option(
        "queued.max.request.bytes",
        Kind.LONG,
        256 << 20,
        None,
        "Bytes of requests in the works before no more is read from sockets; -1 sets no limit.",
    )
    connections_max_idle_ms: int = option(
        "connections.max.idle.ms",
        Kind.LONG,
        600_000,
        None,
        "A connection idle for this long is closed; -1 never.",
    )
    max_connections: int = option(
        "max.connections",
        Kind.INT,
        INT_MAX,
        at_least(1),
        "Connections the broker accepts in all.",
        dynamic=True,
    )
    max_connections_per_ip: int = option(
        "max.connections.per.ip",
        Kind.INT,
        INT_MAX,
        at_least(1),
        "Connections the broker accepts from one address.",
        dynamic=True,
    )
    send_buffer_bytes: int = option(
        "socket.send.buffer.bytes",
        Kind.INT,
        102_400,
        at_least(-1),
        "SO_SNDBUF of a connection; -1 leaves it to the operating system.",
    )
    receive_buffer_bytes: int = option(
        "socket.receive.buffer.bytes",
        Kind.INT,
        102_400,
        at_least(-1),
        "SO_RCVBUF of a connection; -1 leaves it to the operating system.",
    )
    listen_backlog_size: int = option(
        "socket.listen.backlog.size", Kind.INT, 50, at_least(1), "Connections that wait to be accepted."
    )

    def __post_init__(self) -> None:
        if 0 < self.queued_max_request_bytes < self.request_max_bytes:
            raise InvalidConfig(
                f"queued.max.request.bytes ({self.queued_max_request_bytes}) must be at least "
                f"socket.request.max.bytes ({self.request_max_bytes})"
            )
        self._check_listeners()

    def _check_listeners(self) -> None:
        opened, told = _endpoints(self.listeners), _endpoints(self.advertised_listeners or ())
        internal = (self.inter_broker_listener or "").upper()
        if (len(opened) > 1 or internal) and internal not in opened:
            raise InvalidConfig(
                f"inter.broker.listener.name must say which of the listeners brokers use: {', '.join(opened)}"
            )
        if stray := sorted(told.keys() - opened.keys()):
            raise InvalidConfig(f"advertised.listeners has {stray[0]}, which listeners has not")
        for name, at in (opened | told).items():
            if at.host in _WILDCARDS:
                raise InvalidConfig(
                    "clients cannot connect to every address of this machine: listeners names no single "
                    f"host, so set advertised.listeners={name}://HOST:PORT to one they can reach"
                )

    @property
    def bind(self) -> Endpoint:
        """Where clients come in."""
        return _endpoints(self.listeners)[self._for_clients]

    @property
    def advertised(self) -> Endpoint | None:
        """What clients are told; None: the address of `bind` with the port it got.  Port 0: that port."""
        return _endpoints(self.advertised_listeners or ()).get(self._for_clients)

    @property
    def internal_bind(self) -> Endpoint | None:
        """Where brokers come in, if they have a listener of their own."""
        return _endpoints(self.listeners)[self._for_brokers] if len(self.listeners) > 1 else None

    @property
    def internal_advertised(self) -> Endpoint | None:
        """What brokers are told; None: as `advertised`."""
        return _endpoints(self.advertised_listeners or ()).get(self._for_brokers)

    @property
    def _for_brokers(self) -> str:
        return (self.inter_broker_listener or _PLAINTEXT).upper()

    @property
    def _for_clients(self) -> str:
        names = list(_endpoints(self.listeners))
        return next((name for name in names if name != self._for_brokers), names[0])

    def listeners_with(self, host: str | None, port: int | None) -> str:
        """`listeners` with another host or port for clients."""
        at = _endpoints(self.listeners)
        was = at[self._for_clients]
        at[self._for_clients] = Endpoint(host or was.host, was.port if port is None else port)
        return ",".join(
            f"{name}://{f'[{one.host}]' if ':' in one.host else one.host}:{one.port}"
            for name, one in at.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsConfig:
    """How topics come and go."""

    num_partitions: int = option(
        "num.partitions", Kind.INT, 1, at_least(1), "Partitions of a topic whose creator does not say."
    )
    default_replication_factor: int = option(
        "default.replication.factor",
        Kind.INT,
        1,
        at_least(1),
        "Replicas of a topic whose creator does not say.",
    )
    auto_create_enable: bool = option(
        "auto.create.topics.enable", Kind.BOOLEAN, True, None, "Whether asking for a topic creates it."
    )
    delete_enable: bool = option(
        "delete.topic.enable", Kind.BOOLEAN, True, None, "Whether topics can be deleted."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    max_session_slots: int = option(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1000,
        at_least(0),
        "Incremental fetch sessions kept at the same time.",
    )
    max_bytes: int = option(
        "fetch.max.bytes", Kind.INT, 55 << 20, at_least(1024), "Most bytes in the answer to one fetch."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    max_topics: int = option(
        "anabranch.metrics.max.topics",
        Kind.INT,
        0,
        at_least(0),
        "Topics that /metrics tells of one by one: those with most traffic, and no more than this.",
        dynamic=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    max_bytes: int = option(
        "telemetry.max.bytes",
        Kind.INT,
        1 << 20,
        at_least(1),
        "Largest push of metrics that a client may send.",
    )
