"""`anabranch topic`: make topics, look at them, change them, remove them."""

import sys
from typing import Annotated, Any

import typer

from anabranch.base.ids import id_text
from anabranch.cli.changes import Set, Unset, changes
from anabranch.cli.client import (
    ANSWER_S,
    TOPIC,
    alter_configs,
    connected,
    describe_configs,
    partitions_of,
)
from anabranch.cli.cluster_status import out_of_sync
from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.log_ends import LogEnds, lag_cells, topics_and_ends
from anabranch.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, name_values
from anabranch.cli.output import print_json, print_table
from anabranch.client.answers import check, check_told
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import ANY, CONTROLLER, TopicPartition
from anabranch.client.requests import CREATE_PARTITIONS, DELETE_TOPICS, Request

app = typer.Typer(help="Make, look at, change and remove topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Topic names.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]

_BROKER_DECIDES = -1
_SET_ON_TOPIC = 1  # DescribeConfigs: the source DYNAMIC_TOPIC_CONFIG


@app.command("create")
def create(
    names: Names,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; -1 is the broker's num.partitions.")
    ] = _BROKER_DECIDES,
    replication: Annotated[
        int, typer.Option("--replication-factor", "-r", help="Copies; -1 is the broker's default.")
    ] = _BROKER_DECIDES,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting; repeatable."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that is there is fine.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Make topics."""
    settings = name_values(config or [], "--config")
    with connected(bootstrap) as cluster:
        there = _names(cluster) if if_not_exists else set()
        new = [name for name in names if name not in there]
        for name in new:
            cluster.create_topic(name, partitions, replication, settings)
            if not as_json:
                print(f"created {name}")
    if as_json:
        print_json([{"name": name, "created": name in new} for name in names])


def _names(cluster: Cluster) -> set[str]:
    return {topic.name for topic in cluster.metadata(None).topics}


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics as well.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List topics and their partition counts."""
    with connected(bootstrap) as cluster:
        topics = {topic.name: len(topic.partitions) for topic in cluster.metadata(None).topics}
    rows = [
        {"name": name, "partitions": partitions}
        for name, partitions in sorted(topics.items())
        if internal or not name.startswith("__")
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows)
    else:
        print("no topics", file=sys.stderr)


@app.command("describe")
def describe(
    names: Names,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Every setting, not only those set on the topic.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show topics: partitions, replicas, how far each of them is, settings.

    replicas (AR), isr and osr: all of them, those in sync, those that are not. lw: the log's start. hw: the
    high watermark, up to which consumers read. leo: the end of the leader's log. lag: how many offsets each
    replica is behind that. A broker that does not answer within 3 s shows as ?, a partition without a
    leader as -.
    """
    with connected(bootstrap) as cluster:
        described = _describe(cluster, names, all_configs)
    if as_json:
        print_json(described)
        return
    for topic in described:
        print(f"{topic['name']}  id {topic['id']}")
        print_table([_shown(row) for row in topic["partitions"]])
        for name, value in topic["configs"].items():
            print(f"  {name}={value}")


def _describe(cluster: Cluster, names: list[str], all_configs: bool) -> list[dict[str, Any]]:
    for name in names:
        partitions_of(cluster, name)  # or it is not there
    topics, ends = topics_and_ends(cluster, list(dict.fromkeys(names)))
    found = {}
    for topic in topics:
        check(topic.error_code, f"topic {topic.name!r}")
        settings = describe_configs(cluster, ANY, TOPIC, topic.name)
        found[topic.name] = {
            "name": topic.name,
            "id": id_text(topic.topic_id) if topic.topic_id else None,
            "partitions": [
                _row(topic.name, one, ends)
                for one in sorted(topic.partitions, key=lambda one: int(one.partition_index))
            ],
            "configs": {
                setting.name: setting.value
                for setting in sorted(settings, key=lambda setting: str(setting.name))
                if all_configs or setting.config_source == _SET_ON_TOPIC
            },
        }
    return [found[name] for name in names]


def _row(topic: str, part: Any, ends: LogEnds) -> dict[str, Any]:
    partition, leader = TopicPartition(topic, part.partition_index), part.leader_id
    start, high_watermark = ends.starts.get(partition), ends.high_watermarks.get(partition)
    return {
        "partition": part.partition_index,
        "leader": leader if leader >= 0 else None,
        "replicas": part.replica_nodes,
        "isr": part.isr_nodes,
        "osr": out_of_sync(part.replica_nodes, part.isr_nodes),
        "start": start,
        "end": high_watermark,
        "lw": start,
        "hw": high_watermark,
        "leo": ends.ends.get(leader, {}).get(partition),
        "lag": {str(broker): ends.lag(partition, leader, broker) for broker in part.replica_nodes},
    }


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row for people, in whose table a log has one name for each of its ends."""
    unknown = "-" if row["leader"] is None else "?"
    shown = {name: value for name, value in row.items() if name not in ("start", "end")}
    shown |= {name: unknown for name in ("lw", "hw", "leo") if row[name] is None}
    shown["lag"] = lag_cells(row["lag"], unknown)
    return shown


@app.command("alter")
def alter(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The new number; it can only grow.")
    ] = None,
    config: Set = None,
    unset: Unset = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change a topic's settings or add partitions."""
    told = changes(config, unset)
    if not told and partitions is None:
        raise Misuse("nothing to change", "give --partitions, --config NAME=VALUE or --unset NAME")
    with connected(bootstrap) as cluster:
        if told:
            alter_configs(cluster, ANY, TOPIC, name, told)
        if partitions is not None:
            _add_partitions(cluster, name, partitions)
    print(f"altered {name}")


def _add_partitions(cluster: Cluster, name: str, count: int) -> None:
    topics = [{"name": name, "count": count, "assignments": None}]
    values = {"topics": topics, "timeout": round(ANSWER_S * 1000), "validate_only": False}
    (result,) = cluster.send(CONTROLLER, Request(CREATE_PARTITIONS, values)).results
    check_told(result.error_code, result.error_message, f"topic {name!r}")


@app.command("delete")
def delete(
    names: Names,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A topic that is not there is fine.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove topics and everything in them."""
    with connected(bootstrap) as cluster:
        there = _names(cluster)
        absent = [name for name in names if name not in there]
        if absent and not if_exists:
            raise CommandError(
                f"there is no topic {', '.join(absent)}", "`anabranch topic list` shows the topics"
            )
        doomed = [name for name in names if name in there]
        if doomed and not yes and sys.stdin.isatty():
            typer.confirm(f"delete {', '.join(doomed)} and all records in it?", abort=True)
        for name in doomed:
            _delete(cluster, name)
            print(f"deleted {name}")


def _delete(cluster: Cluster, name: str) -> None:
    timeout_ms = round(ANSWER_S * 1000)
    values = {"topics": [{"name": name}], "topic_names": [name], "timeout": timeout_ms}
    (result,) = cluster.send(CONTROLLER, Request(DELETE_TOPICS, values)).responses
    check_told(result.error_code, result.error_message, f"topic {name!r}")
