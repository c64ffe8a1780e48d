"""The sections of cluster_differential.py: what is asked of both sides, in order."""

import time
from collections.abc import Iterator
from typing import Any

from cluster_requests_brokers import cluster, cluster_of, configs
from cluster_requests_coordinators import find_coordinator, group_lists, groups, share_groups, transactions
from cluster_requests_records import (
    delete_records,
    epochs,
    fetch,
    fetch_sessions,
    fetched,
    list_offsets,
    listed_at,
    metadata,
    metadata_of,
    produce,
    produced,
    producers,
    replica_fetches,
    transactional_produce,
)
from cluster_requests_topics import (
    create_partitions,
    create_topics,
    creations,
    delete_topics,
    elected,
    elections,
    elections_of,
    impatient,
    reassign,
    reassigned,
    slow_reassignments,
)
from cluster_sides import (
    ELECT_LEADERS,
    LIST_REASSIGNMENTS,
    REASSIGN,
    UNREGISTER_BROKER,
    Ask,
    Section,
    Side,
    always,
    broker,
    each,
    is_known,
    led,
)
from clusters import BROKERS, wait_for

from tests.compat.clients import raw


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
                time.sleep(2 if ask.label.startswith("unregister it,") else 0)
                yield ask
    finally:
        for side in sides:
            side.forget()
            side.cluster.restart(3)
            wait_for(side.addresses[1], lambda view: view.brokers == set(BROKERS) and view.is_whole)
    time.sleep(2)
    yield from _back_again()


def _back_again() -> Iterator[Ask]:
    when = "back again"
    yield from metadata_of(when, ("led", "alone", "pair"))
    yield from cluster_of(when)
    for name, partition in (("alone", 2), ("pair", 0), ("led", 2)):
        for epoch in (-1, 0, 1, 2):
            label = f"fetch {name}-{partition}, epoch {epoch}, {when}"
            yield from each(
                label, raw.FETCH, fetched(name, partition, 0, epoch), versions=[10, 11, 12, 13, 18]
            )
            for at in (-1, -2, -3):
                label = f"offset of {name}-{partition} at {at}, epoch {epoch}, {when}"
                yield from each(
                    label, raw.LIST_OFFSETS, listed_at(name, partition, at, epoch, -1, 0), versions=[7, 11]
                )
    yield from elections_of(when)
    yield from metadata_of(f"{when}, elected", ("led", "alone", "pair"))


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
                produced(name, partition, data, acks),
            )
        yield from each(f"fetch {name}-{partition}, {when}", raw.FETCH, fetched(name, partition, 0, -1))
        for at in (-1, -2):
            yield from each(
                f"offset of {name}-{partition} at {at}, {when}",
                raw.LIST_OFFSETS,
                listed_at(name, partition, at, -1, -1, 0),
            )
    yield from creations(when)
    yield from elections_of(when)
    for name, index in (("alone", 2), ("pair", 0), ("alone", 0)):
        for kind in (0, 1):
            label = f"elect {name}-{index}, type {kind}, {when}"
            yield from each(label, ELECT_LEADERS, elected(name, index, kind))
    listed = {"timeout": 5000, "topics": None}
    for replicas in ([1, 3], None, [3], None):
        values = reassigned("alone", 0, {"replicas": replicas})
        yield Ask(f"reassign to {replicas}, {when}", REASSIGN, values, broker(1), [1])
        yield from each(f"list it, {when}", LIST_REASSIGNMENTS, always(listed), shown=_of_alone)
    yield Ask(f"unregister it, {when}", UNREGISTER_BROKER, always({"broker_id": 3}), broker(2))
    yield Ask(f"unregister it again, {when}", UNREGISTER_BROKER, always({"broker_id": 3}), broker(1))
    yield from creations("unregistered")
    yield from metadata_of("unregistered", ("led", "alone", "pair"))


def _of_alone(answer: Any) -> Any:
    answer["topics"] = [topic for topic in answer["topics"] if topic["name"] == "alone"]
    return answer


SECTIONS: dict[str, Section] = {
    "api versions": api_versions,
    "between brokers": between_brokers,
    "metadata": metadata,
    "produce": produce,
    "fetch": fetch,
    "sessions": fetch_sessions,
    "replicas": replica_fetches,
    "transactional produce": transactional_produce,
    "list offsets": list_offsets,
    "epochs": epochs,
    "delete records": delete_records,
    "producers": producers,
    "find coordinator": find_coordinator,
    "groups": groups,
    "group lists": group_lists,
    "share groups": share_groups,
    "transactions": transactions,
    "create topics": create_topics,
    "create partitions": create_partitions,
    "delete topics": delete_topics,
    "impatient": impatient,
    "reassign": reassign,
    "slow reassignments": slow_reassignments,
    "elections": elections,
    "cluster": cluster,
    "configs": configs,
    "one down": one_down,
}
