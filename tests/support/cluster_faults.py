"""Faults of a cluster of processes, and what its brokers say of it meanwhile.

    with FaultyCluster(folder) as cluster:
        faults = Faults(cluster)
        faults.create("orders", partitions=3)
        broker = faults.view().leader("orders", 0)
        faults.kill(broker)                     # -9; the supervisor starts it again
        faults.pause(2); faults.resume(2)       # SIGSTOP, SIGCONT
        faults.expire_session(3)                # ZooKeeper ends it, as if it had not heard of the broker
        faults.until(lambda view: view.is_whole)

Brokers are named by their ids.
"""

import os
import resource
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.clients import raw
from tests.support.faulty_cluster import FaultyCluster
from tests.support.read_only import can_be_read_only, set_read_only
from tests.support.zookeeper import end_session

PATIENCE_S = 90.0
_ANSWER_S = 5.0
_NOT_CONTROLLER = 41


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
    def __init__(self, cluster: FaultyCluster) -> None:
        self._cluster = cluster
        self._addresses: dict[int, str] = {}
        for row in cluster.ready["processes"]:
            self._know(row)
        self.paused: dict[int, int] = {}
        """Pids, by broker."""

    @property
    def brokers(self) -> list[int]:
        return list(self._addresses)

    def add(self) -> int:
        """One more broker."""
        self._cluster.network.connect(self.brokers[-1] + 1)
        (row,) = self._cluster.ask("add")
        self._know(row)
        return self.brokers[-1]

    def forget(self, broker: int) -> None:
        """It is not asked any more."""
        del self._addresses[broker]

    def _know(self, row: dict[str, Any]) -> None:
        self._addresses[int(row["id"].removeprefix("broker-"))] = f"127.0.0.1:{row['ports']['kafka']}"

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
        with raw.Connection(self._addresses[broker], _ANSWER_S) as connection:
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
        self.paused[broker] = self._pid(broker)
        os.kill(self.paused[broker], signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.paused.pop(broker), signal.SIGCONT)

    def expire_session(self, broker: int) -> None:
        end_session(self._cluster.zookeeper.address, f"/brokers/{broker}")

    def fill_disk(self, broker: int) -> Callable[[], None]:
        """Nothing that the broker writes is kept any more, until what is returned is called."""
        pid = self._pid(broker)
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, limits[1]))

        def free() -> None:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)

        return free

    def read_only_disk(self, broker: int) -> Callable[[], None] | None:
        """Nothing on the broker's disk changes any more, until what is returned is called.

        None where that cannot be done (read_only.py).
        """
        folder = self._cluster.data / f"broker-{broker}" / "data"
        if not can_be_read_only(folder):
            return None
        set_read_only(folder, True)
        return lambda: set_read_only(folder, False)

    def wipe(self, broker: int) -> None:
        """It is killed, and comes back with an empty disk."""
        self._cluster.ask("kill", f"broker-{broker}")
        shutil.rmtree(self._cluster.data / f"broker-{broker}" / "data")
        self._cluster.ask("restart", f"broker-{broker}")

    def elect_preferred(self) -> None:
        self.ask_controller(43, 2, election_type=0, topic_partitions=None, timeout=30_000)

    def drain(self, broker: int, other: int) -> None:
        """All that `broker` has a replica of moves to `other`; returns once it has."""
        self.until(lambda view: other in view.brokers)
        moving: dict[str, list[dict[str, object]]] = {}
        for (topic, index), part in self.view().parts.items():
            if broker in part.replicas:
                replicas = [*sorted(part.replicas - {broker}), other]
                moving.setdefault(topic, []).append({"partition_index": index, "replicas": replicas})
        topics = [{"name": topic, "partitions": partitions} for topic, partitions in moving.items()]
        answer = self.ask_controller(45, 0, timeout=60_000, topics=topics)
        codes = {part.error_code for topic in answer.responses for part in topic.partitions}
        assert codes == {0}, answer
        self.until(lambda view: not any(broker in part.replicas for part in view.parts.values()))

    def ask_controller(self, key: int, version: int, **values: object) -> Any:
        """What it answers, whoever it is just now."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            address = self._addresses.get(self.view().controller, "")
            with suppress(OSError, ValueError), raw.Connection(address, PATIENCE_S) as connection:
                answer = connection.call(key, version, values)
                if getattr(answer, "error_code", 0) != _NOT_CONTROLLER:
                    return answer
            assert time.monotonic() < deadline, "nobody is the controller"
            time.sleep(0.05)

    def _pid(self, broker: int) -> int:
        return int(self._cluster.told(f"broker-{broker}")["pid"])
