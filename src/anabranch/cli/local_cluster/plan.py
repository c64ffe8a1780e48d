"""Plan: the processes of a local cluster, what each is started with and where it keeps things.

    DATA/cluster.json           its brokers, and the ZooKeeper if it is one from elsewhere
    DATA/supervisor.log         what became of the processes
    DATA/ready.json             the addresses, while it serves
    DATA/control.sock           how commands reach the supervisor
    DATA/zookeeper/data         data folder; beside it log.txt, what the process says, and its ready.json
    DATA/broker-1/data          the same of each broker
    DATA/broker-1/broker.properties   settings of that broker alone, if somebody wrote them there

Ports count up from the first broker's; free ones are taken where Kafka's is 0.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from anabranch.base.config_properties import parse_properties
from anabranch.base.errors import Corrupt, Invalid

CLUSTER_FILE = "cluster.json"
SUPERVISOR_LOG = "supervisor.log"
READY_FILE = "ready.json"
OWN_SETTINGS = "broker.properties"
ZOOKEEPER = "zookeeper"
BROKER = "broker"

_KAFKA_PORT, _PULSAR_PORT, _HTTP_PORT, _ZOOKEEPER_PORT = 9092, 6650, 8080, 2181
_NO_PORT = -1
_FACTOR, _MIN_ISR = 3, 2
_INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
_WITH_MIN_ISR = ("transaction.state.log", "share.coordinator.state.topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a person asked for; None where they left it to us."""

    data: Path
    brokers: int | None = None
    zookeeper: str | None = None
    host: str | None = None
    kafka_port: int | None = None
    pulsar_port: int | None = None
    http_port: int | None = None
    config: Path | None = None
    settings: Sequence[str] = ()
    ready_file: Path | None = None


class Planned(NamedTuple):
    """One process."""

    role: str
    id: str
    command: Sequence[str]
    ports: Mapping[str, int]
    place: Path

    @property
    def folder(self) -> Path:
        return self.place / "data"

    @property
    def log(self) -> Path:
        return self.place / "log.txt"

    @property
    def ready(self) -> Path:
        return self.place / READY_FILE


class Founded(NamedTuple):
    """What a folder says of the cluster in it."""

    brokers: Sequence[int]
    zookeeper: str | None
    """None if the cluster has its own."""


def founded(content: bytes | None, wanted: Wanted) -> Founded:
    """The cluster that is to run, of what `cluster.json` says, if there is one.  Invalid if it cannot be."""
    if content is None:
        return Founded(list(range(1, 1 + (wanted.brokers or _FACTOR))), wanted.zookeeper)
    try:
        said = json.loads(content)
        brokers, zookeeper = [int(id) for id in said["brokers"]], said["zookeeper"]
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{wanted.data / CLUSTER_FILE} does not say what cluster it is of") from error
    if wanted.zookeeper not in (None, zookeeper):
        raise Invalid(
            f"the cluster in {wanted.data} is kept by {zookeeper or 'a ZooKeeper of its own'}, not by "
            f"{wanted.zookeeper}; leave out --zookeeper, or choose another folder with --data"
        )
    if wanted.brokers is not None and wanted.brokers < len(brokers):
        raise Invalid(
            f"the cluster in {wanted.data} has {len(brokers)} brokers, {wanted.brokers} are too few"
        )
    for _ in range(len(brokers), wanted.brokers or 0):
        brokers.append(max(brokers) + 1)
    return Founded(brokers, zookeeper)


def replication_defaults(brokers: int) -> dict[str, str]:
    """Settings that keep all topics on three brokers, or on all where there are fewer.

    With three, what is acknowledged by all is on two of them at least.
    """
    factor = min(_FACTOR, brokers)
    told = {"default.replication.factor": str(factor)}
    told |= {f"{topic}.replication.factor": str(factor) for topic in _INTERNAL_TOPICS}
    least = _MIN_ISR if factor == _FACTOR else 1
    told["min.insync.replicas"] = str(least)
    return told | {f"{topic}.min.isr": str(least) for topic in _WITH_MIN_ISR}


def zookeeper_process(wanted: Wanted, free_port: Callable[[], int]) -> Planned:
    port = free_port() if wanted.kafka_port == 0 else _ZOOKEEPER_PORT
    place = wanted.data / ZOOKEEPER
    command = [*_anabranch("zookeeper"), "--port", str(port)]
    return _planned(ZOOKEEPER, ZOOKEEPER, command, {"client": port}, place)


def broker_process(
    number: int,
    wanted: Wanted,
    zookeeper: str,
    host_id: str,
    defaults: Mapping[str, str],
    free_port: Callable[[], int],
) -> Planned:
    """`defaults` are settings that hold where nobody said otherwise, the broker's own file wins."""
    ports = broker_ports(number, wanted, free_port)
    command = [*_anabranch(BROKER), "--id", str(number), "--zookeeper", zookeeper, "--host-id", host_id]
    if wanted.host is not None:
        command += ["--host", wanted.host]
    for protocol, port in ports.items():
        command += [f"--{protocol}-port", str(port)]
    if wanted.config is not None:
        command += ["--config", str(wanted.config.absolute())]
    id = f"{BROKER}-{number}"
    own = own_settings(wanted.data / id)
    usual = [f"{name}={value}" for name, value in defaults.items()]
    for setting in (*usual, *wanted.settings, *(f"{name}={value}" for name, value in own.items())):
        command += ["--set", setting]
    taken = {protocol: port for protocol, port in ports.items() if port != _NO_PORT}
    return _planned(BROKER, id, [*command, "--verbose"], taken, wanted.data / id)


def own_settings(place: Path) -> dict[str, str]:
    """What the file beside a broker's data folder sets for it alone."""
    file = place / OWN_SETTINGS
    return parse_properties(file.read_text(encoding="utf-8")) if file.exists() else {}


def broker_ports(number: int, wanted: Wanted, free_port: Callable[[], int]) -> dict[str, int]:
    """The ports of broker `number`, by protocol; -1 for none."""
    told = {
        "kafka": (wanted.kafka_port, _KAFKA_PORT),
        "pulsar": (wanted.pulsar_port, _PULSAR_PORT),
        "http": (wanted.http_port, _HTTP_PORT),
    }
    ports = {}
    for protocol, (port, usual) in told.items():
        if port is None:
            port = 0 if wanted.kafka_port == 0 else usual
        if port == 0:
            ports[protocol] = free_port()
        else:
            ports[protocol] = port if port == _NO_PORT else port + number - 1
    return ports


def _planned(role: str, id: str, command: list[str], ports: Mapping[str, int], place: Path) -> Planned:
    planned = Planned(role, id, command, ports, place.absolute())
    command += ["--data", str(planned.folder), "--ready-file", str(planned.ready)]
    return planned


def _anabranch(command: str) -> list[str]:
    return [sys.executable, "-m", "anabranch.cli.main", command]
