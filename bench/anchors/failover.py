"""Failover: how long clients wait when a broker that leads and coordinates for them dies or stands still.

Three clients at once, all of them served by the same broker: a producer with `acks=all`, a group that
commits, a producer with transactions.  Then the broker is hurt, and for each of them this is the time until
something that was begun after that has been done.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import confluent_kafka as ck
from clusters import BROKERS, Cluster, View, look, wait_for
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.clients import raw

KILL, PAUSE = "kill -9", "SIGSTOP"
FIND_COORDINATOR, GROUP, TRANSACTION = 10, 0, 1
FIGURES = ("ack_s", "commit_s", "transaction_s")
PATIENCE_S = 90.0
_BEFORE_S = 3.0
_PAUSE_S = 0.02
_CLIENT: dict[str, Any] = {"log_level": 0}
_IMPATIENT = {"socket.timeout.ms": 1_000, "message.timeout.ms": 2_000}
"""For a broker that stands still: by default a client hears nothing for a minute, then looks elsewhere."""

Seconds = dict[str, float]


def measure(cluster: Cluster, how: str, *, is_controller: bool) -> Seconds:
    """Seconds until each of them goes on; `how` the broker is hurt, which is the controller, or is not."""
    prefer(cluster.bootstrap)
    view = wait_for(cluster.bootstrap, is_at_rest)
    controller = controller_of(cluster, view)
    victim = controller if is_controller else controller % len(BROKERS) + 1
    topic = f"failover-{time.time_ns()}"
    create(cluster.bootstrap, topic, [[victim, *(one for one in BROKERS if one != victim)]])
    options = {"bootstrap.servers": cluster.bootstrap, **_CLIENT, **(_IMPATIENT if how == PAUSE else {})}
    group, name = (coordinated(cluster, kind, victim) for kind in (GROUP, TRANSACTION))
    clients = [
        Client(partial(produce, options, topic)),
        Client(partial(commit, options | {"group.id": group}, topic)),
        Client(partial(transact, options | {"transactional.id": name}, topic)),
    ]
    for client in clients:
        client.start()
        client.wait_for(lambda _: True)
    time.sleep(_BEFORE_S)
    pid = cluster.pid_of(victim)
    hurt_s = time.monotonic()
    if how == KILL:
        cluster.kill(victim)
    else:
        os.kill(pid, signal.SIGSTOP)
    try:
        return {
            name: round(client.wait_for(lambda began_s: began_s > hurt_s) - hurt_s, 3)
            for name, client in zip(FIGURES, clients, strict=True)
        }
    finally:
        if how == KILL:
            cluster.restart(victim)
        else:
            os.kill(pid, signal.SIGCONT)
        for client in clients:
            client.stop()
        wait_for(cluster.bootstrap, is_at_rest)
        delete(cluster.bootstrap, topic)


def is_at_rest(view: View) -> bool:
    return view.controller >= 0 and view.brokers == set(BROKERS) and view.is_whole


def controller_of(cluster: Cluster, view: View) -> int:
    """Brokers of Kafka on KRaft name any of them in metadata; who it is, DescribeQuorum says."""
    with raw.Connection(cluster.bootstrap.split(",")[0], 10) as connection:
        asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        answer = connection.call(55, 1, {"topics": asked})
    leaders = [int(part.leader_id) for topic in answer.topics for part in topic.partitions]
    return leaders[0] if leaders and leaders[0] > 0 else view.controller


def prefer(bootstrap: str) -> None:
    """Have every broker lead and coordinate its share again."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **_CLIENT})
    admin.elect_leaders(ElectionType.PREFERRED).result(60)


def create(bootstrap: str, topic: str, assignment: list[list[int]]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **_CLIENT})
    new = NewTopic(topic, len(assignment), replica_assignment=assignment)
    admin.create_topics([new])[topic].result(60)
    for address in bootstrap.split(","):
        wait_for(address, lambda view: len(view.leaders) == len(assignment) and view.is_whole, [topic])


def delete(bootstrap: str, topic: str) -> None:
    with suppress(ck.KafkaException):
        AdminClient({"bootstrap.servers": bootstrap, **_CLIENT}).delete_topics([topic])[topic].result(60)


def coordinated(cluster: Cluster, kind: int, broker: int) -> str:
    """A name of a group, or of a transactional producer, for which `broker` is the coordinator."""
    stamp = time.time_ns()
    names = [f"name-{stamp}-{number}" for number in range(60)]
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with raw.Connection(cluster.bootstrap.split(",")[0], 10) as connection:
            answer = connection.call(FIND_COORDINATOR, 4, {"key_type": kind, "coordinator_keys": names})
        for found in answer.coordinators:
            if not found.error_code and found.node_id == broker:
                return str(found.key)
        time.sleep(0.2)
    raise TimeoutError(f"broker {broker} coordinates nothing")


class Client:
    """Does one thing after the other in a thread, and knows when each began and ended."""

    def __init__(self, work: Callable[[threading.Event, "Did"], None]) -> None:
        self._over = threading.Event()
        self._changed = threading.Condition()
        self._done: list[tuple[float, float]] = []
        self._work = work
        self._failed: ck.KafkaException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        try:
            self._work(self._over, self._did)
        except ck.KafkaException as error:
            with self._changed:
                self._failed = error
                self._changed.notify_all()

    def _did(self, began_s: float) -> None:
        with self._changed:
            self._done.append((began_s, time.monotonic()))
            self._changed.notify_all()

    def wait_for(self, holds: Callable[[float], bool]) -> float:
        """When the first thing ended of whose beginning that is so."""

        def ended() -> float | None:
            return next((end_s for began_s, end_s in self._done if holds(began_s)), None)

        with self._changed:
            self._changed.wait_for(lambda: self._failed or ended() is not None, PATIENCE_S)
            if self._failed:
                raise RuntimeError(f"a client failed: {self._failed}")
            if (end_s := ended()) is not None:
                return end_s
        raise TimeoutError(f"a client does nothing for {PATIENCE_S:.0f} s")


Did = Callable[[float], None]


Options = dict[str, Any]


def produce(options: Options, topic: str, over: threading.Event, did: Did) -> None:
    """A record every 5 ms, whatever became of those before."""
    producer = ck.Producer({"acks": "all", "linger.ms": 0, **options})

    def told(began_s: float, error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is None:
            did(began_s)

    while not over.wait(0.005):
        began_s = time.monotonic()
        producer.produce(topic, b"x", on_delivery=partial(told, began_s))
        producer.poll(0)
    producer.flush(PATIENCE_S)


def commit(options: Options, topic: str, over: threading.Event, did: Did) -> None:
    consumer = ck.Consumer({k: v for k, v in options.items() if k != "message.timeout.ms"})
    offset = 0
    while not over.wait(_PAUSE_S):
        offset += 1
        began_s = time.monotonic()
        with suppress(ck.KafkaException):
            consumer.commit(offsets=[ck.TopicPartition(topic, 0, offset)], asynchronous=False)
            did(began_s)
    consumer.close()


def transact(options: Options, topic: str, over: threading.Event, did: Did) -> None:
    # librdkafka 2.16 forgets a broker that is away; a transaction may then wait for it for ever.
    producer = ck.Producer({"linger.ms": 0, "metadata.recovery.strategy": "none", **options})
    insist(lambda: producer.init_transactions(PATIENCE_S))
    while not over.wait(_PAUSE_S):
        producer.begin_transaction()
        try:
            producer.produce(topic, b"x")
            producer.flush(PATIENCE_S)
            began_s = time.monotonic()
            insist(lambda: producer.commit_transaction(PATIENCE_S))
        except ck.KafkaException:
            insist(lambda: producer.abort_transaction(PATIENCE_S))
        else:
            did(began_s)


def insist(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
        except ck.KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def leaders_moved_s(cluster: Cluster, topics: list[str], victim: int) -> float:
    """Kill a broker; the time until somebody else leads every partition that it led, as the others say."""
    addresses = cluster.bootstrap.split(",")
    witness = addresses[victim % len(BROKERS)]
    before = look(witness, topics)
    led = [key for key, leader in before.leaders.items() if leader == victim]
    if not led:
        raise RuntimeError(f"broker {victim} leads nothing")
    killed_s = time.monotonic()
    cluster.kill(victim)
    try:
        wait_for(witness, lambda view: all(view.leaders[key] not in (victim, -1) for key in led), topics)
        return round(time.monotonic() - killed_s, 3)
    finally:
        cluster.restart(victim)
        wait_for(cluster.bootstrap, is_at_rest)
