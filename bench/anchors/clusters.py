"""The two clusters of three brokers that are compared: real Apache Kafka, and ours on a ZooKeeper of its own.

Both have `bootstrap`, `pids` (of every process that serves, ZooKeeper's, too), `pid_of` a broker, `kill` (-9,
and it stays away) and `restart`.  Brokers have the ids 1, 2, 3 on both sides.  New topics have three replicas
and `min.insync.replicas` of 2.
"""

import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from servers import Kafka, Ours

from tests.compat.clients import raw
from tests.support.local_cluster import LocalCluster

BROKERS = (1, 2, 3)
DEFAULTS = {"default.replication.factor": "3", "min.insync.replicas": "2"}
"""What `anabranch cluster up` chooses, and Kafka must be told."""
PATIENCE_S = 120.0
_BLOCKS = range(20_000, 32_000, 16)


class Cluster(Protocol):
    name: str

    @property
    def bootstrap(self) -> str: ...

    @property
    def pids(self) -> list[int]: ...

    def pid_of(self, broker: int) -> int: ...

    def kill(self, broker: int) -> None: ...

    def restart(self, broker: int) -> None: ...


class OurCluster(LocalCluster):
    name = Ours.name

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, len(BROKERS), settings)

    @property
    def pids(self) -> list[int]:
        return [*(self.pid_of(broker) for broker in BROKERS), *self._others()]

    def pid_of(self, broker: int) -> int:
        return int(self.told(f"broker-{broker}")["pid"])

    def kill(self, broker: int) -> None:
        self.ask("kill", f"broker-{broker}")

    def restart(self, broker: int) -> None:
        self.ask("restart", f"broker-{broker}")


class KafkaCluster(Kafka):
    """Each node is broker and controller, as the shared scripts set it up."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, DEFAULTS | dict(settings or {}))
        self._ports = free_block(), free_block()
        self.bootstrap = ",".join(f"127.0.0.1:{self._ports[0] + index}" for index in range(len(BROKERS)))

    def start(self, keep: bool = False) -> float:
        self._run("start-kafka.sh", str(len(BROKERS)), KEEP="1" if keep else "0")
        launched = time.monotonic()
        wait_for(self.bootstrap, lambda view: view.brokers == set(BROKERS))
        return time.monotonic() - launched

    @property
    def pids(self) -> list[int]:
        return [self.pid_of(broker) for broker in BROKERS]

    def pid_of(self, broker: int) -> int:
        return int((self._anchors / "kafka-data" / f"node{broker}" / "pid").read_text())

    def kill(self, broker: int) -> None:
        os.kill(self.pid_of(broker), signal.SIGKILL)

    def restart(self, broker: int) -> None:
        self._run("start-kafka.sh", str(len(BROKERS)), NODE=str(broker))


class View(NamedTuple):
    """The cluster as the first broker that answers knows it."""

    controller: int
    brokers: set[int]
    leaders: dict[tuple[str, int], int]
    is_whole: bool
    """Every partition has a leader, and all its replicas are in sync."""


def look(bootstrap: str, topics: Iterable[str] | None = None) -> View:
    """What the first broker that answers within a second says of these topics, or of all."""
    asked = None if topics is None else [{"name": topic} for topic in topics]
    for address in bootstrap.split(","):
        try:
            with raw.Connection(address, 1.0) as connection:
                answer = connection.call(raw.METADATA, 12, {"topics": asked})
        except OSError:
            continue
        parts = {
            (topic.name, part.partition_index): part for topic in answer.topics for part in topic.partitions
        }
        return View(
            answer.controller_id,
            {int(broker.node_id) for broker in answer.brokers},
            {key: int(part.leader_id) for key, part in parts.items()},
            all(p.leader_id >= 0 and set(p.isr_nodes) == set(p.replica_nodes) for p in parts.values()),
        )
    raise OSError(f"none of {bootstrap} answers")


def wait_for(bootstrap: str, holds: Callable[[View], bool], topics: Iterable[str] | None = None) -> View:
    """The view, once it is so."""
    deadline = time.monotonic() + PATIENCE_S
    view: View | None = None
    while time.monotonic() < deadline:
        with suppress(OSError):
            if holds(view := look(bootstrap, topics)):
                return view
        time.sleep(0.02)
    raise TimeoutError(f"after {PATIENCE_S:.0f} s the cluster is {view}")


def free_block() -> int:
    """The first of as many ports in a row as there are brokers, all of them free."""
    for first in random.sample(_BLOCKS, 100):
        with ExitStack() as held:
            try:
                for index in range(len(BROKERS)):
                    probe = held.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", first + index))
            except OSError:
                continue
            return first
    raise OSError("no free ports")
