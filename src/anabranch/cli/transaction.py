"""`anabranch transaction`: what is open, since when, and ending what hangs.

An open transaction holds back every reader of committed records on its partitions.  Two kinds hang:

  * a producer died or forgot; its coordinator knows the transaction and would abort it at its timeout.
    `abort ID` does so now, and fences the producer, by introducing another instance of it.
  * a partition has an open transaction that no coordinator knows of.  Nobody would ever end it.
    `list --topic NAME` shows it without an id, `abort --topic NAME --partition N --producer-id ID`
    has the abort marker written there.
"""

import sys
from typing import Annotated, Any

import typer

from anabranch.cli.client import connected
from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, show_moment
from anabranch.cli.output import print_json, print_table
from anabranch.client.answers import check
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import TRANSACTIONS, Broker, Coordinator, Leader, TopicPartition
from anabranch.client.requests import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
    Request,
)
from anabranch.wire.kafka.schema import ErrorCode

app = typer.Typer(help="Look at transactions, abort those that hang.", no_args_is_help=True)

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Transactional ids.")]
Topic = Annotated[str | None, typer.Option("--topic", "-t", help="A topic.")]

_SEE_TRANSACTIONS = "`anabranch transaction list` shows the transactional ids"
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")


@app.command("list")
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only these: Ongoing, CompleteCommit, Empty, ...; repeatable."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="What is open on this topic's partitions instead.")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List transactional ids, or the open transactions of a topic."""
    if state and topic:
        raise Misuse("--state and --topic exclude each other")
    with connected(bootstrap) as cluster:
        rows = _listed(cluster, state or []) if topic is None else _open_on(cluster, topic)
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows)
    else:
        print("no transactions" if topic is None else f"nothing is open on {topic}", file=sys.stderr)


def _listed(cluster: Cluster, states: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    filters = {"state_filters": states, "producer_id_filters": []}
    for broker in cluster.brokers():
        answer = cluster.send(Broker(broker), Request(LIST_TRANSACTIONS, filters))
        check(answer.error_code, "the transactions")
        if answer.unknown_state_filters:
            raise Misuse(f"there is no state {answer.unknown_state_filters[0]!r}")
        rows += (
            {"id": one.transactional_id, "producer_id": one.producer_id, "state": one.transaction_state}
            for one in answer.transaction_states
        )
    return sorted(rows, key=lambda row: str(row["id"]))


def _open_on(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    partitions = [one.partition for one in cluster.partitions([topic])]
    ids = {row["producer_id"]: row["id"] for row in _listed(cluster, list(_OPEN))}
    return [
        {
            "partition": partition,
            "producer_id": producer.producer_id,
            "epoch": producer.producer_epoch,
            "first_offset": producer.current_txn_start_offset,
            "last_write": show_moment(producer.last_timestamp),
            "id": ids.get(producer.producer_id),
        }
        for partition in partitions
        for producer in _producers(cluster, topic, partition)
        if producer.current_txn_start_offset >= 0
    ]


def _producers(cluster: Cluster, topic: str, partition: int) -> list[Any]:
    asked = {"topics": [{"name": topic, "partition_indexes": [partition]}]}
    leader = Leader(TopicPartition(topic, partition))
    answer = cluster.send(leader, Request(DESCRIBE_PRODUCERS, asked)).topics[0].partitions[0]
    check(answer.error_code, f"{topic} partition {partition}")
    return list(answer.active_producers)


@app.command("describe")
def describe(ids: Ids, as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show transactions: producer, age, partitions and where each began there."""
    with connected(bootstrap) as cluster:
        described = [_describe(cluster, id) for id in ids]
    if as_json:
        print_json(described)
        return
    for one in described:
        print(f"{one['id']}  {one['state']}")
        print(f"  producer {one['producer_id']} epoch {one['epoch']}, timeout {one['timeout_ms']} ms")
        if one["started"]:
            print(f"  open since {one['started']}")
        print_table(one["partitions"])


def _describe(cluster: Cluster, id: str) -> dict[str, Any]:
    found = _find(cluster, id)
    return {
        "id": id,
        "state": found.transaction_state,
        "producer_id": found.producer_id,
        "epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout,
        "started": show_moment(found.transaction_start_time) if _is_open(found) else None,
        "partitions": [
            {
                "topic": topic.topic,
                "partition": partition,
                "first_offset": _first_offset(cluster, topic.topic, partition, found.producer_id),
            }
            for topic in sorted(found.topics, key=lambda topic: str(topic.topic))
            for partition in sorted(topic.partitions)
        ],
    }


def _find(cluster: Cluster, id: str) -> Any:
    asked = {"transactional_ids": [id]}
    to = Coordinator(TRANSACTIONS, id)
    found = cluster.send(to, Request(DESCRIBE_TRANSACTIONS, asked)).transaction_states[0]
    if found.error_code == ErrorCode.transactional_id_not_found:
        raise CommandError(f"there is no transactional id {id!r}", _SEE_TRANSACTIONS)
    check(found.error_code, id)
    return found


def _is_open(found: Any) -> bool:
    return found.transaction_state in _OPEN


def _first_offset(cluster: Cluster, topic: str, partition: int, producer_id: int) -> int | None:
    """Where the producer's transaction begins on a partition; None if it has written nothing there."""
    for producer in _producers(cluster, topic, partition):
        if producer.producer_id == producer_id and producer.current_txn_start_offset >= 0:
            return int(producer.current_txn_start_offset)
    return None


@app.command("abort")
def abort(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A transactional id.")] = None,
    topic: Topic = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="A partition of the topic.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", help="Whose transaction on the partition.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Abort an open transaction: by its id, or the one that hangs on a partition."""
    place = (topic, partition, producer_id)
    if (id is None) == (place == (None, None, None)):
        raise Misuse("which: give an ID, or --topic, --partition and --producer-id")
    with connected(bootstrap) as cluster:
        if id is not None:
            _confirm(f"abort the transaction of {id} and fence its producer?", yes)
            _abort_known(cluster, id)
            print(f"aborted the transaction of {id}")
            return
        if topic is None or partition is None or producer_id is None:
            raise Misuse("--topic, --partition and --producer-id are needed together")
        _confirm(f"abort the transaction of producer {producer_id} on {topic} partition {partition}?", yes)
        _abort_on(cluster, topic, partition, producer_id)
        print(f"aborted the transaction of producer {producer_id} on {topic} partition {partition}")


def _confirm(question: str, yes: bool) -> None:
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def _abort_known(cluster: Cluster, id: str) -> None:
    found = _find(cluster, id)
    if not _is_open(found):
        raise CommandError(f"{id!r} has no open transaction: {found.transaction_state}")
    instance = {
        "transactional_id": id,
        "transaction_timeout": found.transaction_timeout,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    answer = cluster.send(Coordinator(TRANSACTIONS, id), Request(INIT_PRODUCER_ID, instance))
    check(answer.error_code, id)


def _abort_on(cluster: Cluster, topic: str, partition: int, producer_id: int) -> None:
    where = f"{topic} partition {partition}"
    mine = [one for one in _producers(cluster, topic, partition) if one.producer_id == producer_id]
    if not mine or mine[0].current_txn_start_offset < 0:
        raise CommandError(
            f"producer {producer_id} has nothing open on {where}",
            f"`anabranch transaction list --topic {topic}` shows what is",
        )
    for known in _listed(cluster, list(_OPEN)):
        if known["producer_id"] == producer_id:
            raise CommandError(
                f"the transaction is not lost: it is that of {known['id']!r}",
                f"`anabranch transaction abort {known['id']}` ends it everywhere",
            )
    marker = {
        "producer_id": producer_id,
        "producer_epoch": mine[0].producer_epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [partition]}],
        # A producer that has ended nothing here has no epoch of its coordinator yet.
        "coordinator_epoch": max(0, mine[0].coordinator_epoch),
    }
    leader = Leader(TopicPartition(topic, partition))
    answer = cluster.send(leader, Request(WRITE_TXN_MARKERS, {"markers": [marker]}))
    check(answer.markers[0].topics[0].partitions[0].error_code, where)
