"""The requests of cluster_differential.py: what is asked of which broker, in sections.

    Ask(label, key, values, at)      values and at are functions of the side: ids and coordinators differ

A section makes the topics that it needs on both sides, the same ones with the same replicas, and yields what
both are asked then.  Partition 0 of `led` is on brokers 1 and 2, 1 on 2 and 3, 2 on 3 and 1; the first leads.
"""

import itertools
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
        self.facts: dict[str, Any] = {}
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
            return self._connections[broker].call(key, version, values)
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

    def produce(self, broker: int, name: str, data: bytes, partition: int = 0) -> Any:
        part = {"index": partition, "records": data}
        topic = {"name": self.topic(name), "partition_data": [part]}
        answer = self.call(broker, raw.PRODUCE, 9, {"acks": -1, "timeout": 10_000, "topic_data": [topic]})
        found = answer.responses[0].partition_responses[0]
        assert found.error_code == 0, found
        return found.base_offset

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
    side.facts["producer"] = producer


# --- records


def metadata(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    yield from metadata_of("all there")


def metadata_of(when: str, names: Sequence[str] = ("led", "moved")) -> Iterator[Ask]:
    def mine(answer: Any) -> Any:
        if isinstance(answer, dict):
            answer["topics"] = [
                one for one in answer["topics"] if not (one["name"] or "").startswith(("__", "diff-"))
            ]
        return answer

    def by_name(wanted: Sequence[str]) -> Callable[[Side], Values]:
        return lambda side: {
            "topics": [{"name": side.topic(name)} for name in wanted],
            "allow_auto_topic_creation": False,
        }

    def by_id(wanted: Sequence[str]) -> Callable[[Side], Values]:
        return lambda side: {"topics": [{"topic_id": side.ids[name], "name": None} for name in wanted]}

    yield from each(
        f"metadata of all, {when}", raw.METADATA, always({"topics": None}), shown=mine, versions=range(1, 14)
    )
    yield from each(f"metadata of two, {when}", raw.METADATA, by_name(names))
    yield from each(
        f"metadata of an unknown one, {when}", raw.METADATA, by_name(["none", *names]), versions=range(4, 14)
    )
    yield from each(f"metadata by id, {when}", raw.METADATA, by_id([*names, "none"]), versions=range(12, 14))
    yield from each(f"metadata by id in v10, {when}", raw.METADATA, by_id(names), versions=range(10, 12))
    listed = {"response_partition_limit": 100, "cursor": None}
    yield from each(
        f"describe topic partitions, {when}",
        raw.DESCRIBE_TOPIC_PARTITIONS,
        lambda side: listed | {"topics": [{"name": side.topic(name)} for name in [*names, "none"]]},
    )


def produce(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    data = raw.batch([b"x"])
    for acks in (-1, 1):
        for name, partition in (("led", 0), ("led", 1), ("led", 2), ("led", 9), ("none", 0)):
            yield from each(
                f"produce to {name}-{partition}, acks {acks}",
                raw.PRODUCE,
                _produced(name, partition, data, acks),
            )
    yield from each("produce with acks 2", raw.PRODUCE, _produced("led", 0, data, 2))
    for side in sides:
        side.create("insync", [[1, 2]], {"min.insync.replicas": "3"})
        side.create("insync1", [[1, 2, 3]], {"min.insync.replicas": "3"})
    yield from each(
        "produce with min.insync.replicas above the factor", raw.PRODUCE, _produced("insync", 0, data, -1)
    )


def _produced(name: str, partition: int, data: bytes, acks: int) -> Callable[[Side], Values]:
    def values(side: Side) -> Values:
        part = {"index": partition, "records": data}
        topic = {"name": side.topic(name), "topic_id": side.ids[name], "partition_data": [part]}
        return {"acks": acks, "timeout": 10_000, "topic_data": [topic]}

    return values


def fetch(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    time.sleep(1.0)
    for name, partition in (("led", 0), ("led", 1), ("led", 2), ("led", 9), ("moved", 0), ("none", 0)):
        for epoch in (-1, 0, 1, 2):
            for offset in (0, 4) if epoch < 1 else (0,):
                label = f"fetch {name}-{partition} at {offset}, epoch {epoch}"
                yield from each(label, raw.FETCH, _fetched(name, partition, offset, epoch))
    for offset in (10_000, -1):
        yield from each(f"fetch led-0 at {offset}", raw.FETCH, _fetched("led", 0, offset, -1))
    yield from each("fetch committed", raw.FETCH, _fetched("led", 0, 0, -1, isolation_level=1))
    yield from each(
        "fetch from a rack", raw.FETCH, _fetched("led", 0, 0, -1, rack_id="a"), versions=range(11, 19)
    )
    yield from each(
        "fetch as a debugger", raw.FETCH, _fetched("led", 0, 0, -1, replica_id=-2), versions=range(4, 15)
    )
    yield from each(
        "fetch of a diverging epoch", raw.FETCH, _fetched("moved", 0, 5, -1, last=0), versions=range(12, 19)
    )
    yield from each(
        "fetch of an unknown session",
        raw.FETCH,
        _fetched("led", 0, 0, -1, session_id=4711, session_epoch=5),
        versions=range(7, 19),
    )
    yield from each(
        "a session begins", raw.FETCH, _fetched("led", 0, 0, -1, session_epoch=0), versions=range(7, 19)
    )
    yield from each(
        "wait at the end", raw.FETCH, _fetched("led", 1, 10_000, -1, max_wait=50), versions=range(10, 19)
    )


def _fetched(
    name: str, partition: int, offset: int, epoch: int, last: int = -1, **options: Any
) -> Callable[[Side], Values]:
    def values(side: Side) -> Values:
        part = {
            "partition": partition,
            "fetch_offset": offset,
            "current_leader_epoch": epoch,
            "last_fetched_epoch": last,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        topic = {"topic": side.topic(name), "topic_id": side.ids[name], "partitions": [part]}
        asked = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
        return asked | {"topics": [topic]} | options

    return values


def list_offsets(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    for name, partition in (("led", 0), ("led", 1), ("moved", 0), ("led", 9), ("none", 0)):
        for replica, isolation in ((-1, 0), (-1, 1), (-2, 0)):
            for at in (-1, -2, -3, -4, -5, -6, -7, 0, raw.BASE_MS, 1 << 60):
                for epoch in (-1, 0, 1, 2) if at in (-1, 0) else (-1,):
                    label = (
                        f"offset of {name}-{partition} at {at}, epoch {epoch}, replica {replica}/{isolation}"
                    )
                    yield from each(
                        label, raw.LIST_OFFSETS, _listed(name, partition, at, epoch, replica, isolation)
                    )


def _listed(
    name: str, partition: int, at: int, epoch: int, replica: int, isolation: int
) -> Callable[[Side], Values]:
    part = {"partition_index": partition, "timestamp": at, "current_leader_epoch": epoch}
    options = {"replica_id": replica, "isolation_level": isolation, "timeout": 5000}
    return lambda side: options | {"topics": [{"name": side.topic(name), "partitions": [part]}]}


def epochs(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    for name, partition in (("led", 0), ("moved", 0), ("led", 9), ("none", 0)):
        for current, epoch in itertools.product((-1, 0, 1, 2), (-1, 0, 1, 2, 9)):
            part = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
            yield from each(
                f"end of epoch {epoch} of {name}-{partition}, current {current}",
                raw.OFFSET_FOR_LEADER_EPOCH,
                lambda side, name=name, part=part: {
                    "replica_id": -1,
                    "topics": [{"topic": side.topic(name), "partitions": [part]}],
                },
            )


def delete_records(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    for side in sides:
        side.coordinator("any", GROUP)  # makes the topic
    for name, partition, offset in (
        ("led", 0, 0),
        ("led", 1, -1),
        ("led", 2, 99_999),
        ("led", 9, 0),
        ("none", 0, 0),
    ):
        part = {"partition_index": partition, "offset": offset}
        yield from each(
            f"delete records of {name}-{partition} before {offset}",
            raw.DELETE_RECORDS,
            lambda side, name=name, part=part: {
                "timeout": 10_000,
                "topics": [{"name": side.topic(name), "partitions": [part]}],
            },
        )
    internal = {
        "timeout": 1000,
        "topics": [{"name": "__consumer_offsets", "partitions": [{"partition_index": 0, "offset": 0}]}],
    }
    yield from each("delete records of an internal topic", raw.DELETE_RECORDS, always(internal), versions=[2])


def producers(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    for side in sides:
        side.produce(
            1,
            "led",
            raw.batch([b"numbered"], producer=(raw.new_producer(raw.Connection(side.addresses[1])), 0, 0)),
        )
    time.sleep(1)
    for name, index in (("led", 0), ("led", 1), ("led", 9), ("none", 0)):
        yield from each(
            f"producers of {name}-{index}",
            raw.DESCRIBE_PRODUCERS,
            lambda side, name=name, index=index: {
                "topics": [{"name": side.topic(name), "partition_indexes": [index]}]
            },
        )
    for name, index in (("led", 0), ("led", 1), ("led", 9), ("none", 0)):
        yield from each(
            f"a marker of nobody's transaction to {name}-{index}",
            WRITE_TXN_MARKERS,
            lambda side, name=name, index=index: {
                "markers": [
                    {
                        "producer_id": 123_456_789,
                        "producer_epoch": 0,
                        "transaction_result": False,
                        "topics": [{"name": side.topic(name), "partition_indexes": [index]}],
                        "coordinator_epoch": 0,
                        "transaction_version": 0,
                    }
                ]
            },
        )


# --- coordinators


def at_coordinator(kind: int, key: str) -> dict[str, Callable[[Side], int]]:
    """Who coordinates it, and the two that do not."""

    def other(number: int) -> Callable[[Side], int]:
        return lambda side: [id for id in BROKERS if id != side.coordinator(side.topic(key), kind)][number]

    return {
        "coordinator": lambda side: side.coordinator(side.topic(key), kind),
        "another": other(0),
        "a third": other(1),
    }


def find_coordinator(sides: list[Side]) -> Iterator[Ask]:
    def shown(answer: Any) -> Any:
        for one in answer.get("coordinators", [answer]):
            one["key"] = str(one.get("key")).partition(":")[0]
            for field in ("node_id", "port"):
                one[field] = "a broker" if one[field] not in (-1, "-1") else one[field]
        return answer

    led(sides)
    for side in sides:
        for kind in (GROUP, TRANSACTION):
            side.coordinator("any", kind)
        side.coordinator(f"any:{id_text(side.ids['led'])}:0", SHARE)
    for kind in (GROUP, TRANSACTION, SHARE, 3, -1):
        for key in ("any", "", "g:x:0", "share"):
            yield from each(
                f"find coordinator {kind} of {key!r}",
                FIND_COORDINATOR,
                lambda side, kind=kind, key=key: {
                    "key_type": kind,
                    "coordinator_keys": [f"any:{id_text(side.ids['led'])}:0" if key == "share" else key],
                    "key": key,
                },
                shown=shown,
            )


def id_text(id: uuid.UUID) -> str:
    import base64

    return base64.urlsafe_b64encode(id.bytes).decode().rstrip("=")


def groups(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    places = at_coordinator(GROUP, "group")

    def of_group(values: Values) -> Callable[[Side], Values]:
        return lambda side: {"group_id": side.topic("group")} | values

    def topics(side: Side, **part: Any) -> list[Values]:
        return [
            {
                "name": side.topic("led"),
                "topic_id": side.ids["led"],
                "partitions": [{"partition_index": 0, **part}],
            }
        ]

    commit = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    member = {"generation_id": 1, "member_id": "m", "group_instance_id": None}
    joining = {
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "m",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "group_instance_id": None,
        "reason": None,
    }
    asked: list[tuple[str, int, Callable[[Side], Values]]] = [
        ("join", JOIN_GROUP, of_group(joining)),
        (
            "sync",
            SYNC_GROUP,
            of_group(member | {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}),
        ),
        ("heartbeat", HEARTBEAT, of_group(member)),
        (
            "leave",
            LEAVE_GROUP,
            of_group({"member_id": "m", "members": [{"member_id": "m", "group_instance_id": None}]}),
        ),
        (
            "commit",
            OFFSET_COMMIT,
            lambda side: {
                "group_id": side.topic("group"),
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": topics(side, **commit),
            },
        ),
        ("fetch offsets", OFFSET_FETCH, _offsets_fetched),
        ("describe", DESCRIBE_GROUPS, lambda side: {"groups": [side.topic("group")]}),
        ("delete", DELETE_GROUPS, lambda side: {"groups_names": [side.topic("group")]}),
        (
            "delete offsets",
            OFFSET_DELETE,
            lambda side: {"group_id": side.topic("group"), "topics": topics(side)},
        ),
        (
            "consumer heartbeat",
            CONSUMER_HEARTBEAT,
            of_group({"member_id": "AAAAAAAAAAAAAAAAAAAAAA", "member_epoch": 5}),
        ),
        ("consumer describe", CONSUMER_DESCRIBE, lambda side: {"group_ids": [side.topic("group")]}),
        (
            "share heartbeat",
            SHARE_HEARTBEAT,
            of_group({"member_id": "AAAAAAAAAAAAAAAAAAAAAA", "member_epoch": 5}),
        ),
        ("share describe", SHARE_DESCRIBE, lambda side: {"group_ids": [side.topic("group")]}),
        (
            "share offsets",
            DESCRIBE_SHARE_OFFSETS,
            lambda side: {
                "groups": [
                    {
                        "group_id": side.topic("group"),
                        "topics": [{"topic_name": side.topic("led"), "partitions": [0]}],
                    }
                ]
            },
        ),
        (
            "alter share offsets",
            ALTER_SHARE_OFFSETS,
            lambda side: {
                "group_id": side.topic("group"),
                "topics": [
                    {
                        "topic_name": side.topic("led"),
                        "partitions": [{"partition_index": 0, "start_offset": 0}],
                    }
                ],
            },
        ),
        (
            "delete share offsets",
            DELETE_SHARE_OFFSETS,
            lambda side: {"group_id": side.topic("group"), "topics": [{"topic_name": side.topic("led")}]},
        ),
    ]
    for label, key, values in asked:
        for where, at in places.items():
            yield Ask(f"{label} at {where}", key, values, at)


def _offsets_fetched(side: Side) -> Values:
    topic = {"name": side.topic("led"), "topic_id": side.ids["led"], "partition_indexes": [0]}
    group = {"group_id": side.topic("group"), "member_id": None, "member_epoch": -1, "topics": [topic]}
    return {"group_id": side.topic("group"), "topics": [topic], "groups": [group]}


def transactions(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    places = at_coordinator(TRANSACTION, "txn")

    def named(side: Side) -> Values:
        return {"transactional_id": side.topic("txn"), "producer_id": 4711, "producer_epoch": 0}

    def adding(side: Side) -> Values:
        topics = [{"name": side.topic("led"), "partitions": [0]}]
        older = {f"v3_and_below_{field}": value for field, value in named(side).items()}
        newer = named(side) | {"verify_only": False, "topics": topics}
        return older | {"v3_and_below_topics": topics, "transactions": [newer]}

    committed = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    asked: list[tuple[str, int, Callable[[Side], Values]]] = [
        ("add partitions", ADD_PARTITIONS, adding),
        ("add offsets", ADD_OFFSETS, lambda side: named(side) | {"group_id": "g"}),
        ("end", END_TXN, lambda side: named(side) | {"committed": True}),
        ("describe", DESCRIBE_TRANSACTIONS, lambda side: {"transactional_ids": [side.topic("txn"), ""]}),
        (
            "init",
            raw.INIT_PRODUCER_ID,
            lambda side: {
                "transactional_id": side.topic("txn"),
                "transaction_timeout": 60_000,
                "producer_id": -1,
                "producer_epoch": -1,
            },
        ),
    ]
    for label, key, values in asked:
        for where, at in places.items():
            yield Ask(f"{label} at {where}", key, values, at)
    for where, at in at_coordinator(GROUP, "txn-group").items():
        yield Ask(
            f"commit offsets in a transaction at {where} of the group",
            TXN_OFFSET_COMMIT,
            lambda side: (
                named(side)
                | {
                    "group_id": side.topic("txn-group"),
                    "generation_id": -1,
                    "member_id": "",
                    "group_instance_id": None,
                    "topics": [{"name": side.topic("led"), "partitions": [committed]}],
                }
            ),
            at,
        )
    for where, at in at_coordinator(TRANSACTION, "transactional").items():
        listed = {"state_filters": ["Ongoing", "Wrong"], "producer_id_filters": [], "duration_filter": -1}
        yield Ask(f"list at {where}", LIST_TRANSACTIONS, always(listed), at, shown=_listed_open)
        yield Ask(
            f"describe the open one at {where}",
            DESCRIBE_TRANSACTIONS,
            lambda side: {"transactional_ids": [side.topic("transactional")]},
            at,
        )


def _listed_open(answer: Any) -> Any:
    states = answer["transaction_states"]
    answer["transaction_states"] = [one for one in states if one["transactional_id"] == "transactional"]
    return answer


# --- the controller's


def create_topics(sides: list[Side]) -> Iterator[Ask]:
    yield from creations("all there")


def creations(when: str) -> Iterator[Ask]:
    def placed(*replicas: list[int], first: int = 0) -> Values:
        chosen = [{"partition_index": first + i, "broker_ids": ids} for i, ids in enumerate(replicas)]
        return {"num_partitions": -1, "replication_factor": -1, "assignments": chosen}

    wrong = {
        "the same broker twice": placed([1, 1]),
        "an unknown broker": placed([1, 9]),
        "a negative broker": placed([-1]),
        "no brokers": placed([]),
        "a hole": {
            **placed([1]),
            "assignments": [
                {"partition_index": 0, "broker_ids": [1]},
                {"partition_index": 2, "broker_ids": [1]},
            ],
        },
        "not from 0": placed([1], first=1),
        "a partition twice": {
            **placed([1]),
            "assignments": [
                {"partition_index": 0, "broker_ids": [1]},
                {"partition_index": 0, "broker_ids": [2]},
            ],
        },
        "factors that differ": placed([1, 2], [1]),
        "both": {**placed([1, 2]), "num_partitions": 1},
        "both, factor": {**placed([1, 2]), "replication_factor": 2},
        "broker 3": placed([3]),
        "brokers 1 and 3": placed([1, 3], [3, 2]),
        "negative partition": placed([1], first=-1),
        "factor 0": {"num_partitions": 1, "replication_factor": 0},
        "factor 2": {"num_partitions": 1, "replication_factor": 2},
        "factor 3": {"num_partitions": 4, "replication_factor": 3},
        "factor 4": {"num_partitions": 1, "replication_factor": 4},
        "factor -2": {"num_partitions": 1, "replication_factor": -2},
        "no partitions": {"num_partitions": 0, "replication_factor": 1},
        "-2 partitions": {"num_partitions": -2, "replication_factor": 1},
        "both wrong": {"num_partitions": 0, "replication_factor": 0},
        "defaults": {"num_partitions": -1, "replication_factor": -1},
        "a bad option": {
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "no.such", "value": "1"}],
        },
        "a null option": {
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "retention.ms", "value": None}],
        },
        "throttles": {
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "leader.replication.throttled.replicas", "value": "0:x"}],
        },
        "more in sync than replicas": {
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "min.insync.replicas", "value": "5"}],
        },
    }

    def shown(answer: Any) -> Any:
        for topic in answer["topics"]:
            topic.pop("configs", None)
            topic.pop("topic_config_error_code", None)
        return answer

    for label, topic in wrong.items():
        for id in BROKERS:
            for only_check in (True, False):
                name = f"{'v' if only_check else 'made'}-{label}-{when}-{id}".replace(" ", "-").replace(
                    ",", ""
                )
                yield Ask(
                    f"create with {label}{', only check' if only_check else ''}, {when}, broker {id}",
                    raw.CREATE_TOPICS,
                    lambda side, name=name, topic=topic, only_check=only_check: {
                        "topics": [{"name": side.topic(name)} | topic],
                        "timeout": 10_000,
                        "validate_only": only_check,
                    },
                    broker(id),
                    range(2, 8) if only_check else [7],
                    shown,
                )
    yield from each(
        "create one that is there, " + when,
        raw.CREATE_TOPICS,
        lambda side: {
            "topics": [
                {
                    "name": side.topic(f"made-defaults-{when}-1".replace(" ", "-")),
                    "num_partitions": 1,
                    "replication_factor": 1,
                }
            ],
            "timeout": 5000,
        },
        shown=shown,
    )


def create_partitions(sides: list[Side]) -> Iterator[Ask]:
    for side in sides:
        side.create("grown", [[1, 2], [2, 3]])
    yield from growths("all there")


def growths(when: str) -> Iterator[Ask]:
    wrong: dict[str, Values] = {
        "the same number": {"count": 2},
        "fewer": {"count": 1},
        "0": {"count": 0},
        "-1": {"count": -1},
        "one more": {"count": 3},
        "too few assignments": {"count": 4, "assignments": [{"broker_ids": [1, 2]}]},
        "another factor": {"count": 3, "assignments": [{"broker_ids": [1]}]},
        "the same broker twice": {"count": 3, "assignments": [{"broker_ids": [1, 1]}]},
        "an unknown broker": {"count": 3, "assignments": [{"broker_ids": [1, 9]}]},
        "no brokers": {"count": 3, "assignments": [{"broker_ids": []}]},
        "no assignments": {"count": 3, "assignments": []},
        "brokers": {"count": 3, "assignments": [{"broker_ids": [3, 1]}]},
    }
    for label, topic in wrong.items():
        yield from each(
            f"grow to {label}, {when}",
            raw.CREATE_PARTITIONS,
            lambda side, topic=topic: {
                "topics": [{"name": side.topic("grown"), "assignments": None} | topic],
                "timeout": 10_000,
                "validate_only": True,
            },
        )
    yield from each(
        f"grow what is not there, {when}",
        raw.CREATE_PARTITIONS,
        lambda side: {
            "topics": [{"name": side.topic("none"), "count": 3, "assignments": None}],
            "timeout": 10_000,
        },
    )


def reassign(sides: list[Side]) -> Iterator[Ask]:
    for side in sides:
        side.create("moving", [[1, 2]])
    wrong: dict[str, Values] = {
        "nothing": {"replicas": []},
        "a broker twice": {"replicas": [1, 1]},
        "an unknown broker": {"replicas": [1, 9]},
        "a negative broker": {"replicas": [1, -3]},
        "what it has": {"replicas": [1, 2]},
        "null": {"replicas": None},
        "more": {"replicas": [1, 2, 3]},
        "fewer": {"replicas": [1]},
    }
    for label, part in wrong.items():
        if label in ("more", "fewer"):
            continue
        yield from each(f"reassign to {label}", REASSIGN, _reassigned("moving", 0, part))
    for label in ("more", "fewer"):
        values = _reassigned("moving", 0, wrong[label], allow_replication_factor_change=False)
        yield from each(f"reassign to {label}, which is not allowed", REASSIGN, values, versions=[1])
    yield from each("reassign an unknown partition", REASSIGN, _reassigned("moving", 7, {"replicas": [1, 2]}))
    yield from each("reassign an unknown topic", REASSIGN, _reassigned("none", 0, {"replicas": [1, 2]}))
    yield from each("reassign without topics", REASSIGN, always({"topics": [], "timeout": 5000}))
    yield from each(
        "list reassignments of none",
        LIST_REASSIGNMENTS,
        lambda side: {"topics": [{"name": side.topic("none"), "partition_indexes": [0]}], "timeout": 5000},
    )
    yield from each(
        "list reassignments of one",
        LIST_REASSIGNMENTS,
        lambda side: {
            "topics": [{"name": side.topic("moving"), "partition_indexes": [0, 7]}],
            "timeout": 5000,
        },
    )
    yield from each("list all reassignments", LIST_REASSIGNMENTS, always({"topics": None, "timeout": 5000}))
    yield from each("list no reassignments", LIST_REASSIGNMENTS, always({"topics": [], "timeout": 5000}))


def slow_reassignments(sides: list[Side]) -> Iterator[Ask]:
    """Of a partition that is not moved for a while, since its replicas are throttled."""
    for side in sides:
        side.create("slow", [[1, 2]], {f"{who}.replication.throttled.replicas": "*" for who in THROTTLED})
        for _ in range(8):
            side.produce(1, "slow", raw.batch([bytes(500_000)]))
        throttle(side, "1000")
    time.sleep(2)
    one = _reassigned("slow", 0, {"replicas": [1, 3]})
    listed = {"timeout": 5000, "topics": None}

    def mine(answer: Any) -> Any:
        answer["topics"] = [topic for topic in answer["topics"] if topic["name"] == "slow"]
        return answer

    yield Ask("begin a reassignment", REASSIGN, one, broker(2), [1])
    yield from each("list what is under way", LIST_REASSIGNMENTS, always(listed), shown=mine)
    yield from metadata_of("under way", ("slow",))
    for label, replicas in {"fewer": [1], "more": [1, 2, 3]}.items():
        values = _reassigned("slow", 0, {"replicas": replicas}, allow_replication_factor_change=False)
        yield from each(f"change it to {label}, which is not allowed", REASSIGN, values, versions=[1])
    yield Ask("elect while under way", ELECT_LEADERS, _elected("slow", 0, 0), broker(3), [2])
    another = _reassigned("slow", 0, {"replicas": [3, 2]})
    yield Ask("begin another in its place", REASSIGN, another, broker(3), [1])
    yield from each("list the other", LIST_REASSIGNMENTS, always(listed), shown=mine)
    yield Ask("elect who is not in sync", ELECT_LEADERS, _elected("slow", 0, 0), broker(1), [2])
    cancelled = _reassigned("slow", 0, {"replicas": None})
    yield Ask("call it off", REASSIGN, cancelled, broker(1), [1])
    yield Ask("call it off again", REASSIGN, cancelled, broker(1), [1])
    yield from each("list what was called off", LIST_REASSIGNMENTS, always(listed), shown=mine)
    yield from metadata_of("called off", ("slow",))
    for side in sides:
        throttle(side, None)


def throttle(side: Side, rate: str | None) -> None:
    """What brokers let through of throttled replicas; None is everything."""
    operation = 1 if rate is None else 0
    changes = [
        {"name": f"{who}.replication.throttled.rate", "config_operation": operation, "value": rate}
        for who in THROTTLED
    ]
    for id in BROKERS:
        resource = {"resource_type": 4, "resource_name": str(id), "configs": changes}
        side.call(id, raw.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})


def _reassigned(name: str, index: int, part: Values, **options: Any) -> Callable[[Side], Values]:
    return lambda side: (
        {
            "timeout": 10_000,
            "allow_replication_factor_change": True,
            "topics": [{"name": side.topic(name), "partitions": [{"partition_index": index} | part]}],
        }
        | options
    )


def elections(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    yield from elections_of("all there")


def elections_of(when: str) -> Iterator[Ask]:
    for kind in (0, 1, 7):
        for name, index in (("led", 0), ("led", 2), ("led", 9), ("none", 0)):
            yield from each(
                f"elect {name}-{index}, type {kind}, {when}", ELECT_LEADERS, _elected(name, index, kind)
            )
        empty = {"election_type": kind, "timeout": 10_000, "topic_partitions": []}
        yield from each(f"elect nothing, type {kind}, {when}", ELECT_LEADERS, always(empty))

    def mine(answer: Any) -> Any:
        results = answer["replica_election_results"]
        answer["replica_election_results"] = [
            one for one in results if one["topic"] in ("led", "moved", "grown")
        ]
        return answer

    everything = {"election_type": 0, "timeout": 10_000, "topic_partitions": None}
    yield from each(f"elect all, {when}", ELECT_LEADERS, always(everything), shown=mine)


def _elected(name: str, index: int, kind: int) -> Callable[[Side], Values]:
    return lambda side: {
        "election_type": kind,
        "timeout": 10_000,
        "topic_partitions": [{"topic": side.topic(name), "partitions": [index]}],
    }


# --- the cluster


def cluster(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    yield from cluster_of("all there")
    yield from each("unregister broker 99", UNREGISTER_BROKER, always({"broker_id": 99}))
    yield from each("unregister broker -1", UNREGISTER_BROKER, always({"broker_id": -1}))
    for where, name, index in (
        ("here", "led", 0),
        ("here", "led", 1),
        ("here", "led", 9),
        ("here", "none", 0),
        ("/nowhere", "led", 0),
        ("relative", "led", 0),
    ):
        for id in BROKERS:
            yield Ask(
                f"alter log dir of {name}-{index} to {where}, broker {id}",
                ALTER_REPLICA_LOG_DIRS,
                lambda side, where=where, name=name, index=index, id=id: {
                    "dirs": [
                        {
                            "path": log_dir(side, id) if where == "here" else where,
                            "topics": [{"name": side.topic(name), "partitions": [index]}],
                        }
                    ]
                },
                broker(id),
            )


def log_dir(side: Side, id: int) -> str:
    return str(side.call(id, raw.DESCRIBE_LOG_DIRS, 4, {"topics": []}).results[0].log_dir)


def cluster_of(when: str) -> Iterator[Ask]:
    for kind, fenced in itertools.product((1, 2, 3), (False, True)):
        asked = {
            "endpoint_type": kind,
            "include_fenced_brokers": fenced,
            "include_cluster_authorized_operations": True,
        }
        yield from each(
            f"describe cluster {kind}, fenced {fenced}, {when}", raw.DESCRIBE_CLUSTER, always(asked)
        )
    for name, index in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("other", 0)):
        asked = {"topics": [{"topic_name": name, "partitions": [{"partition_index": index}]}]}
        yield from each(f"describe quorum {name}-{index}, {when}", DESCRIBE_QUORUM, always(asked))

    def mine(answer: Any) -> Any:
        for folder in answer["results"]:
            folder["topics"] = [one for one in folder["topics"] if one["name"] in ("led", "moved", "alone")]
        return answer

    yield from each(f"log dirs of all, {when}", raw.DESCRIBE_LOG_DIRS, always({"topics": None}), shown=mine)
    yield from each(
        f"log dirs of some, {when}",
        raw.DESCRIBE_LOG_DIRS,
        lambda side: {
            "topics": [
                {"topic": side.topic("led"), "partitions": [0, 1, 2, 9]},
                {"topic": side.topic("none"), "partitions": [0]},
            ]
        },
    )


def configs(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    keys = ["log.cleaner.threads", "leader.replication.throttled.rate"]
    for name in ("1", "2", "9", "", "x", "-1"):
        for kind in (4, 8):
            resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            asked = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
            yield from each(f"describe configs {kind} {name!r}", raw.DESCRIBE_CONFIGS, always(asked))
            for only_check in (True, False):
                change = {
                    "name": "leader.replication.throttled.rate",
                    "config_operation": 0,
                    "value": "1000000",
                }
                asked = {
                    "resources": [{"resource_type": kind, "resource_name": name, "configs": [change]}],
                    "validate_only": only_check,
                }
                yield from each(
                    f"alter configs {kind} {name!r} {only_check=}",
                    raw.INCREMENTAL_ALTER_CONFIGS,
                    always(asked),
                )
        time.sleep(0.3)
    yield from each(
        "describe configs of the cluster afterwards",
        raw.DESCRIBE_CONFIGS,
        always(
            {
                "resources": [{"resource_type": 4, "resource_name": "", "configuration_keys": keys}],
                "include_synonyms": True,
            }
        ),
    )
    for option in ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"):
        for value in ("*", "0:1,1:2", "0:1", "0", "none", "x:y", "", "0:1,*"):
            for operation in (0, 2, 3):
                change = {"name": option, "config_operation": operation, "value": value}
                yield from each(
                    f"alter {option} {operation} {value!r}",
                    raw.INCREMENTAL_ALTER_CONFIGS,
                    lambda side, change=change: {
                        "resources": [
                            {"resource_type": 2, "resource_name": side.topic("led"), "configs": [change]}
                        ],
                        "validate_only": True,
                    },
                    versions=[1],
                )
    for rate in ("0", "-1", "many", "9223372036854775808"):
        change = {"name": "leader.replication.throttled.rate", "config_operation": 0, "value": rate}
        asked = {
            "resources": [{"resource_type": 4, "resource_name": "", "configs": [change]}],
            "validate_only": True,
        }
        yield from each(
            f"alter the throttle to {rate}", raw.INCREMENTAL_ALTER_CONFIGS, always(asked), versions=[1]
        )


# --- the protocol itself


def api_versions(sides: list[Side]) -> Iterator[Ask]:
    told = {"client_software_name": "a", "client_software_version": "1"}

    def shown(answer: Any) -> Any:
        told = {api["api_key"]: (api["min_version"], api["max_version"]) for api in answer["api_keys"]}
        return {f"API {key}": told.get(key) for key in range(100)}

    yield from each("api versions", raw.API_VERSIONS, always(told), shown=shown)


def between_brokers(sides: list[Side]) -> Iterator[Ask]:
    """What only brokers and controllers have to say to each other."""
    for key in (4, 5, 6, 7, 52, 53, 54, 56, 57, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82):
        for version in range(8):
            if is_known(key, version):
                yield Ask(f"API {key}", key, always({}), broker(1), [version])


def one_down(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    for side in sides:
        side.create("alone", [[1], [2], [3]])
        side.create("pair", [[3, 1], [1, 3]], {"min.insync.replicas": "2"})
        side.produce(3, "alone", raw.batch([b"x"]), 2)
        side.cluster.kill(3)
    for side in sides:
        for id in (1, 2):
            wait_for(
                side.addresses[id], lambda view: view.brokers == {1, 2} and 3 not in view.leaders.values()
            )
    time.sleep(1)
    try:
        for ask in _with_one_down():
            if not ask.label.endswith("broker 3"):
                yield ask
    finally:
        for side in sides:
            side.forget()
            side.cluster.restart(3)
            wait_for(side.addresses[1], lambda view: view.brokers == set(BROKERS) and view.is_whole)


def _with_one_down() -> Iterator[Ask]:
    when = "one down"
    yield from metadata_of(when, ("led", "alone", "pair"))
    yield from cluster_of(when)
    data = raw.batch([b"x"])
    for name, partition in (("alone", 0), ("alone", 2), ("pair", 0), ("led", 2)):
        for acks in (-1, 1):
            yield from each(
                f"produce to {name}-{partition}, acks {acks}, {when}",
                raw.PRODUCE,
                _produced(name, partition, data, acks),
            )
        yield from each(f"fetch {name}-{partition}, {when}", raw.FETCH, _fetched(name, partition, 0, -1))
        for at in (-1, -2):
            yield from each(
                f"offset of {name}-{partition} at {at}, {when}",
                raw.LIST_OFFSETS,
                _listed(name, partition, at, -1, -1, 0),
            )
    yield from creations(when)
    yield from elections_of(when)
    for name, index in (("alone", 2), ("pair", 0), ("alone", 0)):
        for kind in (0, 1):
            label = f"elect {name}-{index}, type {kind}, {when}"
            yield from each(label, ELECT_LEADERS, _elected(name, index, kind))
    listed = {"timeout": 5000, "topics": None}
    for replicas in ([1, 3], None, [3], None):
        values = _reassigned("alone", 0, {"replicas": replicas})
        yield Ask(f"reassign to {replicas}, {when}", REASSIGN, values, broker(1), [1])
        yield from each(f"list it, {when}", LIST_REASSIGNMENTS, always(listed), shown=_of_alone)


def _of_alone(answer: Any) -> Any:
    answer["topics"] = [topic for topic in answer["topics"] if topic["name"] == "alone"]
    return answer


SECTIONS: dict[str, Section] = {
    "api versions": api_versions,
    "between brokers": between_brokers,
    "metadata": metadata,
    "produce": produce,
    "fetch": fetch,
    "list offsets": list_offsets,
    "epochs": epochs,
    "delete records": delete_records,
    "producers": producers,
    "find coordinator": find_coordinator,
    "groups": groups,
    "transactions": transactions,
    "create topics": create_topics,
    "create partitions": create_partitions,
    "reassign": reassign,
    "slow reassignments": slow_reassignments,
    "elections": elections,
    "cluster": cluster,
    "configs": configs,
    "one down": one_down,
}
