"""`anabranch topic`: make topics, look at them, change them, remove them."""

import sys
from typing import Annotated, Any

import typer
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from anabranch.cli.changes import Set, Unset, changes
from anabranch.cli.client import admin, answer_of, cluster_metadata, topic_metadata
from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, name_values
from anabranch.cli.output import print_json, print_table

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
    client = admin(bootstrap)
    wanted = [NewTopic(name, partitions, replication, config=settings) for name in names]
    there = cluster_metadata(client, bootstrap).topics if if_not_exists else {}
    new = [topic for topic in wanted if topic.topic not in there]
    for name, future in (client.create_topics(new) if new else {}).items():
        answer_of(future, bootstrap)
        if not as_json:
            print(f"created {name}")
    if as_json:
        made = {topic.topic for topic in new}
        print_json([{"name": name, "created": name in made} for name in names])


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics as well.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List topics and their partition counts."""
    topics = cluster_metadata(admin(bootstrap), bootstrap).topics
    rows = [
        {"name": name, "partitions": len(topic.partitions)}
        for name, topic in sorted(topics.items())
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
    """Show topics: partitions, leaders, replicas, offsets, settings."""
    client = admin(bootstrap)
    described = [_describe(client, bootstrap, name, all_configs) for name in names]
    if as_json:
        print_json(described)
        return
    for topic in described:
        print(f"{topic['name']}  id {topic['id']}")
        print_table(topic["partitions"])
        for name, value in topic["configs"].items():
            print(f"  {name}={value}")


def _describe(client: AdminClient, bootstrap: str, name: str, all_configs: bool) -> dict[str, Any]:
    topic_metadata(client, bootstrap, name)  # its error names the topic
    topic = answer_of(client.describe_topics(TopicCollection([name]))[name], bootstrap)
    resource = ConfigResource(ResourceType.TOPIC, name)
    settings = answer_of(client.describe_configs([resource])[resource], bootstrap)
    ids = [partition.id for partition in topic.partitions]
    starts = _offsets(client, bootstrap, name, ids, OffsetSpec.earliest())
    ends = _offsets(client, bootstrap, name, ids, OffsetSpec.latest())
    return {
        "name": name,
        "id": str(topic.topic_id),
        "partitions": [
            {
                "partition": partition.id,
                "leader": partition.leader.id if partition.leader else None,
                "replicas": [node.id for node in partition.replicas],
                "isr": [node.id for node in partition.isr],
                "start": starts[partition.id],
                "end": ends[partition.id],
            }
            for partition in topic.partitions
        ],
        "configs": {
            setting.name: setting.value
            for setting in sorted(settings.values(), key=lambda setting: setting.name)
            if all_configs or setting.source == _SET_ON_TOPIC
        },
    }


def _offsets(
    client: AdminClient, bootstrap: str, name: str, partitions: list[int], which: OffsetSpec
) -> dict[int, int]:
    asked = client.list_offsets({TopicPartition(name, partition): which for partition in partitions})
    return {place.partition: answer_of(future, bootstrap).offset for place, future in asked.items()}


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
    client = admin(bootstrap)
    if told:
        entries = [_change(key, value) for key, value in told.items()]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        answer_of(client.incremental_alter_configs([resource])[resource], bootstrap)
    if partitions is not None:
        answer_of(client.create_partitions([NewPartitions(name, partitions)])[name], bootstrap)
    print(f"altered {name}")


def _change(name: str, value: str | None) -> ConfigEntry:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(name, value or "", incremental_operation=operation)


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
    client = admin(bootstrap)
    there = cluster_metadata(client, bootstrap).topics
    absent = [name for name in names if name not in there]
    if absent and not if_exists:
        raise CommandError(
            f"there is no topic {', '.join(absent)}", "`anabranch topic list` shows the topics"
        )
    doomed = [name for name in names if name in there]
    if doomed and not yes and sys.stdin.isatty():
        typer.confirm(f"delete {', '.join(doomed)} and all records in it?", abort=True)
    for name, future in (client.delete_topics(doomed) if doomed else {}).items():
        answer_of(future, bootstrap)
        print(f"deleted {name}")
