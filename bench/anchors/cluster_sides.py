"""The two sides of cluster_differential.py: connections to the brokers of a cluster, and a request of both.

    Ask(label, key, values, at)      values and at are functions of the side: ids and coordinators differ

`led` makes the topics that most sections are about.  Partition 0 of `led` is on brokers 1 and 2, 1 on 2 and
3, 2 on 3 and 1; the first leads.  `moved` was led by 1 and is by 2, in epoch 1.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, NamedTuple

from clusters import BROKERS, Cluster, wait_for
from kio.index import load_request_schema

from tests.compat.clients import raw

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS = 11, 12, 13, 14, 15, 16
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, DELETE_GROUPS, OFFSET_DELETE = 8, 9, 10, 42, 47
ADD_PARTITIONS, ADD_OFFSETS, END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT = 24, 25, 26, 27, 28
ALTER_REPLICA_LOG_DIRS, ELECT_LEADERS, REASSIGN, LIST_REASSIGNMENTS, DESCRIBE_QUORUM = 34, 43, 45, 46, 55
UNREGISTER_BROKER, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 64, 65, 66
CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE, SHARE_HEARTBEAT, SHARE_DESCRIBE = 68, 69, 76, 77
SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
INITIALIZE_STATE, READ_STATE, WRITE_STATE, DELETE_STATE, READ_STATE_SUMMARY = 83, 84, 85, 86, 87
DESCRIBE_SHARE_OFFSETS, ALTER_SHARE_OFFSETS, DELETE_SHARE_OFFSETS = 90, 91, 92

GROUP, TRANSACTION, SHARE = 0, 1, 2
NOBODY = uuid.UUID(int=99)
THROTTLED = ("leader", "follower")
CLOSED = "closed the connection"
LED = [[1, 2], [2, 3], [3, 1]]
_FIRST_BY_ID = {raw.PRODUCE: 13, raw.FETCH: 13}

Values = dict[str, Any]


class Side:
    """One of the clusters: connections to its brokers, and what is its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.addresses = dict(zip(BROKERS, cluster.bootstrap.split(","), strict=True))
        self._ports = {int(address.rpartition(":")[2]): broker for broker, address in self.addresses.items()}
        self._connections: dict[int, raw.Connection] = {}
        self._prefix = f"diff-{uuid.uuid4().hex[:6]}-"
        self._names = {NOBODY: "nobody", uuid.UUID(int=0): "none"}
        self.ids: dict[str, uuid.UUID] = {"none": NOBODY}
        self.session = 0
        """Of the last fetch that had one."""
        advertised = self.call(
            1, raw.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"}
        )
        self._versions = {int(api.api_key): (api.min_version, api.max_version) for api in advertised.api_keys}

    def call(self, broker: int, key: int, version: int, values: Values) -> Any:
        """The answer, or that there was none."""
        check_names(key, values)
        try:
            if broker not in self._connections:
                self._connections[broker] = raw.Connection(self.addresses[broker], 20.0)
            answer = self._connections[broker].call(key, version, values)
            self.session = getattr(answer, "session_id", 0) or self.session
            return answer
        except (ConnectionError, TimeoutError) as error:
            with suppress(KeyError):
                self._connections.pop(broker).close()
            return CLOSED if isinstance(error, ConnectionError) else "no answer"

    def forget(self) -> None:
        """Connections: a broker was killed."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def versions(self, key: int) -> list[int]:
        """Those that it advertises and that can be written here."""
        least, most = self._versions.get(key, (0, 0))
        return [version for version in range(least, most + 1) if is_known(key, version)]

    # --- names

    def topic(self, name: str) -> str:
        return self._prefix + name

    def named(self, id: uuid.UUID) -> str:
        return self._names.get(id, "some id")

    def without_prefix(self, text: str) -> str:
        return text.replace(self._prefix, "")

    def at_port(self, port: int) -> str:
        return f"broker {self._ports[port]}" if port in self._ports else str(port)

    # --- topics

    def create(self, name: str, assignment: list[list[int]], configs: dict[str, str] | None = None) -> None:
        chosen = [{"partition_index": i, "broker_ids": brokers} for i, brokers in enumerate(assignment)]
        settings = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        wanted = {
            "name": self.topic(name),
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": chosen,
            "configs": settings,
        }
        made = self.call(1, raw.CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 30_000})
        assert made.topics[0].error_code == 0, made
        self.ids[name] = made.topics[0].topic_id
        self._names[made.topics[0].topic_id] = name
        self.settle(name, len(assignment))

    def settle(self, name: str, partitions: int) -> None:
        """Until every broker knows it, led and in sync."""
        for address in self.addresses.values():
            wait_for(
                address, lambda view: len(view.leaders) == partitions and view.is_whole, [self.topic(name)]
            )

    def produce(self, broker: int, name: str, data: bytes, partition: int = 0) -> None:
        """Kafka's brokers know from metadata that they lead before they do."""
        part = {"index": partition, "records": data}
        topic = {"name": self.topic(name), "partition_data": [part]}
        for _ in range(100):
            asked = {"acks": -1, "timeout": 10_000, "topic_data": [topic]}
            answer = self.call(broker, raw.PRODUCE, 9, asked)
            found = answer.responses[0].partition_responses[0]
            if not found.error_code:
                return
            time.sleep(0.1)
        raise TimeoutError(f"{name}-{partition} takes nothing: {found}")

    def coordinator(self, key: str, kind: int) -> int:
        """The broker that coordinates `key`, once there is one."""
        for _ in range(200):
            found = self.call(1, FIND_COORDINATOR, 6, {"key_type": kind, "coordinator_keys": [key]})
            if not found.coordinators[0].error_code:
                return int(found.coordinators[0].node_id)
            time.sleep(0.1)
        raise TimeoutError(f"nobody coordinates {key}")


class Ask(NamedTuple):
    label: str
    key: int
    values: Callable[[Side], Values]
    at: Callable[[Side], int]
    versions: Sequence[int] = ()
    """All, unless it says which."""
    shown: Callable[[Any], Any] = lambda answer: answer
    """The part of the plain answer that is compared."""


Section = Callable[[list[Side]], Iterator[Ask]]


def is_known(key: int, version: int) -> bool:
    try:
        load_request_schema(key, version)
    except Exception:  # noqa: BLE001  the index has several
        return False
    return True


def check_names(key: int, values: Values) -> None:
    """A field that no version has would be left out without a word."""
    known = {
        field.name
        for version in range(30)
        if is_known(key, version)
        for field in fields(load_request_schema(key, version))
    }
    assert values.keys() <= known, f"API {key} has no {values.keys() - known}"


def broker(id: int) -> Callable[[Side], int]:
    return lambda _: id


def always(values: Values) -> Callable[[Side], Values]:
    return lambda _: values


def each(label: str, key: int, values: Callable[[Side], Values], **options: Any) -> Iterator[Ask]:
    """The same of every broker."""
    for id in BROKERS:
        yield Ask(f"{label}, broker {id}", key, values, broker(id), **options)


def led(sides: list[Side]) -> None:
    """The topic `led`, with some records, which has moved nowhere; `moved`, led by 2 in epoch 1; once."""
    for side in sides:
        if "led" in side.ids:
            continue
        for address in side.addresses.values():
            with raw.Connection(address) as connection:
                raw.new_producer(connection)  # Kafka needs a moment after its start to have ids
        side.create("led", LED)
        for partition, replicas in enumerate(LED):
            side.produce(replicas[0], "led", raw.batch([b"one", b"two"]), partition)
        side.create("moved", [[1, 2, 3]])
        side.produce(1, "moved", raw.batch([b"a", b"b", b"c"]))
        part = {"partition_index": 0, "replicas": [2, 1, 3]}
        everywhere(side, REASSIGN, 0, {"topics": [{"name": side.topic("moved"), "partitions": [part]}]})
        place = {"topic": side.topic("moved"), "partitions": [0]}
        everywhere(
            side, ELECT_LEADERS, 1, {"election_type": 0, "topic_partitions": [place], "timeout": 10_000}
        )
        wait_for(side.addresses[2], lambda view: set(view.leaders.values()) == {2}, [side.topic("moved")])
        side.settle("moved", 1)
        side.produce(2, "moved", raw.batch([b"d", b"e"]))
        transactions_on(side, "led", 0)
    time.sleep(1.5)  # followers have heard of the high watermark


def everywhere(side: Side, key: int, version: int, values: Values) -> None:
    """To each broker, since ours has one that takes it."""
    for id in BROKERS:
        side.call(id, key, version, {"timeout": 10_000} | values)


def transactions_on(side: Side, name: str, partition: int) -> None:
    """One that committed, one that aborted, one that is open."""
    id = side.topic("transactional")
    coordinator = side.coordinator(id, TRANSACTION)
    begun = {"transactional_id": id, "transaction_timeout": 600_000, "producer_id": -1, "producer_epoch": -1}
    for committed in (True, False, None):
        for _ in range(100):
            told = side.call(coordinator, raw.INIT_PRODUCER_ID, 4, begun)
            if not told.error_code:
                break
            time.sleep(0.1)
        leader = LED[partition][0]
        producer = (told.producer_id, told.producer_epoch)
        named = {"transactional_id": id, "producer_id": producer[0], "producer_epoch": producer[1]}
        older = {f"v3_and_below_{field}": value for field, value in named.items()}
        topics = [{"name": side.topic(name), "partitions": [partition]}]
        for _ in range(100):
            added = side.call(coordinator, ADD_PARTITIONS, 3, older | {"v3_and_below_topics": topics})
            if not added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code:
                break
            time.sleep(0.1)
        data = raw.batch([b"in", b"it"], producer=(*producer, 0), attributes=0x10)
        part = {"index": partition, "records": data}
        topic = {"name": side.topic(name), "partition_data": [part]}
        values = {"transactional_id": id, "acks": -1, "timeout": 10_000, "topic_data": [topic]}
        side.call(leader, raw.PRODUCE, 9, values)
        if committed is not None:
            side.call(coordinator, END_TXN, 3, named | {"committed": committed})
            time.sleep(0.5)
