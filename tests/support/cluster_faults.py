"""Faults of a cluster of processes, and what its brokers say of it meanwhile.

    with LocalCluster(folder) as cluster:
        faults = Faults(cluster)
        faults.create("orders", partitions=3)
        broker = faults.view().leader("orders", 0)
        faults.kill(broker)                     # -9; the supervisor starts it again
        faults.pause(2); faults.resume(2)       # SIGSTOP, SIGCONT
        faults.expire_session(3)                # ZooKeeper ends it, as if it had not heard of the broker
        faults.kill_zookeeper()                 # the same; `cluster.tell("kill", "zookeeper")` leaves it down
        faults.until(lambda view: view.is_whole)

Brokers are named by their ids.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.clients import raw
from tests.support.local_cluster import LocalCluster
from tests.support.zookeeper import end_session

PATIENCE_S = 90.0
_ANSWER_S = 5.0


class Part(NamedTuple):
    leader: int
    """-1 for none."""
    epoch: int
    replicas: frozenset[int]
    in_sync: frozenset[int]


class View(NamedTuple):
    """The cluster as one broker knows it."""

    controller: int
    brokers: frozenset[int]
    parts: dict[tuple[str, int], Part]

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.parts[topic, partition].leader

    def followers(self, topic: str, partition: int = 0) -> list[int]:
        part = self.parts[topic, partition]
        return sorted(part.replicas - {part.leader})

    def in_sync(self, topic: str, partition: int = 0) -> frozenset[int]:
        return self.parts[topic, partition].in_sync

    @property
    def is_whole(self) -> bool:
        """There is a controller, and every replica of every partition is in sync."""
        return self.controller >= 0 and all(
            part.leader >= 0 and part.in_sync == part.replicas for part in self.parts.values()
        )


class Faults:
    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        ids = (id for id in cluster.rows() if id.startswith("broker-"))
        self.brokers = [int(id.removeprefix("broker-")) for id in ids]
        self.paused: set[int] = set()

    # --- what is so

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """With three replicas, known to all brokers; a setting's dots are underscores."""
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        config = {name.replace("_", "."): value for name, value in settings.items()}
        admin.create_topics([NewTopic(topic, partitions, 3, config=config)])[topic].result(60)
        self.until(lambda view: (topic, 0) in view.parts and view.is_whole)

    def view(self, broker: int | None = None) -> View:
        """What `broker` says, or the first that answers."""
        asked = [broker] if broker is not None else [id for id in self.brokers if id not in self.paused]
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for id in asked:
                with suppress(OSError):
                    return self._ask(id)
            time.sleep(0.05)
        raise AssertionError(f"none of the brokers {asked} answers")

    def until(self, holds: Callable[[View], bool], *brokers: int) -> None:
        """Wait until each of `brokers` (or all that are not paused) sees the cluster so."""
        deadline = time.monotonic() + PATIENCE_S
        for broker in brokers or [id for id in self.brokers if id not in self.paused]:
            while not holds(view := self.view(broker)):
                assert time.monotonic() < deadline, f"broker {broker} sees {view}"
                time.sleep(0.05)

    def _ask(self, broker: int) -> View:
        address = str(self._cluster.told(f"broker-{broker}")["kafka"])
        with raw.Connection(address, _ANSWER_S) as connection:
            answer = connection.call(raw.METADATA, 12, {"topics": None})
        return View(
            answer.controller_id,
            frozenset(int(one.node_id) for one in answer.brokers),
            {
                (topic.name, part.partition_index): Part(
                    part.leader_id,
                    part.leader_epoch,
                    frozenset(part.replica_nodes),
                    frozenset(part.isr_nodes),
                )
                for topic in answer.topics
                for part in topic.partitions
            },
        )

    # --- what happens to it

    def kill(self, broker: int) -> None:
        os.kill(self._pid(broker), signal.SIGKILL)

    def pause(self, broker: int) -> None:
        os.kill(self._pid(broker), signal.SIGSTOP)
        self.paused.add(broker)

    def resume(self, broker: int) -> None:
        os.kill(self._pid(broker), signal.SIGCONT)
        self.paused.discard(broker)

    def expire_session(self, broker: int) -> None:
        end_session(self._cluster.ready["zookeeper"], f"/brokers/{broker}")

    def kill_zookeeper(self) -> None:
        os.kill(self._cluster.told("zookeeper")["server_pid"], signal.SIGKILL)

    def _pid(self, broker: int) -> int:
        return int(self._cluster.told(f"broker-{broker}")["pid"])
