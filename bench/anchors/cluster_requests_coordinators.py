"""Requests of cluster_differential.py: groups and transactions, at coordinators and elsewhere."""

import base64
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from cluster_sides import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    ALTER_SHARE_OFFSETS,
    CONSUMER_DESCRIBE,
    CONSUMER_HEARTBEAT,
    DELETE_GROUPS,
    DELETE_SHARE_OFFSETS,
    DELETE_STATE,
    DESCRIBE_GROUPS,
    DESCRIBE_SHARE_OFFSETS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    GROUP,
    HEARTBEAT,
    INITIALIZE_STATE,
    JOIN_GROUP,
    LEAVE_GROUP,
    LED,
    LIST_GROUPS,
    LIST_TRANSACTIONS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    READ_STATE,
    READ_STATE_SUMMARY,
    SHARE,
    SHARE_ACKNOWLEDGE,
    SHARE_DESCRIBE,
    SHARE_FETCH,
    SHARE_HEARTBEAT,
    SYNC_GROUP,
    TRANSACTION,
    TXN_OFFSET_COMMIT,
    WRITE_STATE,
    Ask,
    Side,
    Values,
    always,
    broker,
    each,
    led,
)
from clusters import BROKERS

from tests.compat.clients import raw


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


def share_groups(sides: list[Side]) -> Iterator[Ask]:
    """A member's requests to leaders and others, and those of brokers about its state."""
    led(sides)
    member = {"member_id": "AAAAAAAAAAAAAAAAAAAAAA"}
    for side in sides:
        side.create("shared", LED)
        for index, replicas in enumerate(LED):
            side.produce(replicas[0], "shared", raw.batch([b"a", b"b"]), index)
        _share(side, member)

    def of_group(values: Callable[[Side], Values]) -> Callable[[Side], Values]:
        return lambda side: {"group_id": side.topic("group")} | values(side)

    def topics(**part: Any) -> Callable[[Side], Values]:
        return lambda side: {"topics": [{"topic_id": side.ids["shared"], "partitions": [part]}]}

    for side in sides:
        side.coordinator(f"{side.topic('group')}:{id_text(side.ids['shared'])}:0", SHARE)
    for version, wait_ms in ((1, 5000), (2, 300)):  # at first the state has to be read
        for id in BROKERS:
            yield from _share_session(id, version, wait_ms)

    def at(which: int) -> Callable[[Side], int]:
        def found(side: Side) -> int:
            coordinator = side.coordinator(f"{side.topic('group')}:{id_text(side.ids['shared'])}:0", SHARE)
            return ([coordinator] + [id for id in BROKERS if id != coordinator])[which]

        return found

    states: list[tuple[str, int, Values]] = [
        ("read", READ_STATE, {"leader_epoch": 0}),
        ("read summary of", READ_STATE_SUMMARY, {"leader_epoch": 0}),
        ("write", WRITE_STATE, {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "state_batches": []}),
        ("initialize", INITIALIZE_STATE, {"state_epoch": 0, "start_offset": 0}),
        ("read again", READ_STATE, {"leader_epoch": 0}),
        ("delete", DELETE_STATE, {}),
    ]
    for which, where in ((1, "another"), (2, "a third"), (0, "the coordinator")):
        for label, key, part in states:
            yield Ask(
                f"{label} a share state at {where}", key, of_group(topics(partition=0, **part)), at(which)
            )


def _share_session(id: int, version: int, wait_ms: int) -> Iterator[Ask]:
    """Fetch, acknowledge and close, of partitions that a broker leads and others."""
    member = f"member-of-broker-{id}-v{version}"
    sizes = {"max_wait": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100, "batch_size": 100}
    acks = [{"first_offset": 0, "last_offset": 1, "acknowledge_types": [1]}]
    for number, (key, epoch, given, options) in enumerate(
        [
            (SHARE_FETCH, 5, [], sizes),
            (SHARE_FETCH, 0, [], sizes),
            (SHARE_ACKNOWLEDGE, 1, acks, {}),
            (SHARE_ACKNOWLEDGE, 9, acks, {}),
            (SHARE_FETCH, 2, [], sizes | {"max_wait": 300}),
            (SHARE_ACKNOWLEDGE, 0, acks, {}),
            (SHARE_ACKNOWLEDGE, -1, [], {}),
        ]
    ):

        def values(side: Side, epoch: int = epoch, given: Any = given, options: Any = options) -> Values:
            parts = [{"partition_index": index, "acknowledgement_batches": given} for index in (0, 1, 2, 9)]
            topics = [{"topic_id": side.ids["shared"], "partitions": parts}] if epoch >= 0 else []
            who = {"group_id": side.topic("group"), "member_id": member, "share_session_epoch": epoch}
            return who | {"topics": topics} | options

        yield Ask(f"request {number} of a share session, broker {id}", key, values, broker(id), [version])


def _share(side: Side, member: Values) -> None:
    """Have the group share the topic, from its beginning."""
    group = side.topic("group")
    change = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": group, "configs": [change]}
    side.call(1, raw.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    time.sleep(1)
    beat = {"group_id": group, "subscribed_topic_names": [side.topic("shared")]} | member
    epoch = 0
    for _ in range(100):
        told = side.call(side.coordinator(group, GROUP), SHARE_HEARTBEAT, 1, beat | {"member_epoch": epoch})
        epoch = told.member_epoch
        assignment = getattr(told, "assignment", None)
        if assignment and sum(len(topic.partitions) for topic in assignment.topic_partitions) == len(LED):
            return
        time.sleep(0.1)
    raise TimeoutError(f"the group is given nothing: {told}")


def group_lists(sides: list[Side]) -> Iterator[Ask]:
    """A group is listed by its coordinator alone."""
    led(sides)

    def mine(answer: Any) -> Any:
        answer["groups"] = [one for one in answer["groups"] if one["group_id"] == "listed"]
        return answer

    for side in sides:
        part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        topics = [{"name": side.topic("led"), "partitions": [part]}]
        group = {"group_id": side.topic("listed"), "generation_id_or_member_epoch": -1, "member_id": ""}
        side.call(side.coordinator(side.topic("listed"), GROUP), OFFSET_COMMIT, 8, group | {"topics": topics})
    for where, at in at_coordinator(GROUP, "listed").items():
        for states in ([], ["Empty"], ["Stable"], ["Wrong"]):
            asked = {"states_filter": states, "types_filter": []}
            yield Ask(f"list groups in {states} at {where}", LIST_GROUPS, always(asked), at, shown=mine)


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

    def verifying(side: Side) -> Values:
        asked = adding(side)
        return asked | {"transactions": [asked["transactions"][0] | {"verify_only": True}]}

    asked: list[tuple[str, int, Callable[[Side], Values]]] = [
        ("add partitions", ADD_PARTITIONS, adding),
        ("verify partitions", ADD_PARTITIONS, verifying),
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
