"""`anabranch group`: who reads, how far each group has got, and sending one somewhere else.

Lag is what lies between a group's committed offset and the end of a partition.  Share groups, of which the
client library knows nothing, are in `group_share`.
"""

import sys
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Annotated, Any

import typer
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, OffsetSpec

from anabranch.base.clock import SystemClock
from anabranch.cli.changes import Set, Unset, changes
from anabranch.cli.client import (
    ANSWER_SECONDS,
    admin,
    answer_of,
    cluster_metadata,
    failures_in_words,
    in_words,
    topic_metadata,
)
from anabranch.cli.exchange import Exchange
from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.group_config import alter_group, group_configs
from anabranch.cli.group_reset import Goal, Known, Place, goal
from anabranch.cli.group_share import KIND as SHARE
from anabranch.cli.group_share import find_share, share_groups, shown, start_at, starts
from anabranch.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from anabranch.cli.output import print_json, print_table

app = typer.Typer(help="Look at groups, change them, send them elsewhere, remove them.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="GROUP...", help="Group names.")]
Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]

_SEE_GROUPS = "`anabranch group list` shows the groups"
_NOWHERE = -1  # a committed offset that is not there; a time that no record has


@app.command("list")
def list_(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List groups, their protocols and states."""
    client = admin(bootstrap)  # what it was asked dies with it
    listed = answer_of(client.list_consumer_groups(), bootstrap)
    if listed.errors:
        raise in_words(listed.errors[0], bootstrap)
    with Exchange(bootstrap) as exchange:
        shares = share_groups(exchange)
    states = {
        group.group_id: (group.type.name.lower(), _state_name(group.state)) for group in listed.valid
    } | {name: (SHARE, state) for name, state in shares.items()}
    rows = [
        {"group": name, "protocol": protocol, "state": state}
        for name, (protocol, state) in sorted(states.items())
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows)
    else:
        print("no groups", file=sys.stderr)


@app.command("describe")
def describe(names: Names, as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show groups: members, what each reads, lag per partition."""
    client = admin(bootstrap)
    with Exchange(bootstrap) as exchange:
        described = [
            (
                _describe(client, bootstrap, name)
                if (share := find_share(exchange, name)) is None
                else shown(exchange, share)
            )
            | {"configs": group_configs(exchange, name)}
            for name in names
        ]
    if as_json:
        print_json(described)
        return
    for group in described:
        assignor = f", {group['assignor']}" if group["assignor"] else ""
        print(f"{group['group']}  {group['state']}  ({group['protocol']}{assignor})")
        print_table([member | {"reads": _places_text(member["reads"])} for member in group["members"]])
        print_table(group["partitions"])
        for name, value in group["configs"].items():
            print(f"  {name}={value}")


@app.command("alter")
def alter(
    name: Name, config: Set = None, unset: Unset = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
) -> None:
    """Change a group's own settings: session timeouts, where a share group begins, its dead letters."""
    told = changes(config, unset)
    if not told:
        raise Misuse("nothing to change", "give --config NAME=VALUE or --unset NAME")
    with Exchange(bootstrap) as exchange:
        alter_group(exchange, name, told)
    print(f"altered {name}")


def _describe(client: AdminClient, bootstrap: str, name: str) -> dict[str, Any]:
    group = _find(client, bootstrap, name)
    if group is None:
        raise CommandError(f"there is no group {name!r} at {bootstrap}", _SEE_GROUPS)
    owners = {
        Place(at.topic, at.partition): member
        for member in group.members
        for at in member.assignment.topic_partitions
    }
    committed = _committed(client, bootstrap, name)
    places = sorted({*owners, *committed})
    ends = _offsets(client, bootstrap, places, OffsetSpec.latest())
    return {
        "group": name,
        "state": _state_name(group.state),
        "protocol": group.type.name.lower(),
        "assignor": group.partition_assignor,
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.host,
                "reads": sorted([at.topic, at.partition] for at in member.assignment.topic_partitions),
            }
            for member in sorted(group.members, key=lambda member: member.member_id)
        ],
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "committed": committed.get(place),
                "end": ends.get(place),
                "lag": _lag(committed.get(place), ends.get(place)),
                "member": owners[place].member_id if place in owners else None,
            }
            for place in places
        ],
    }


def _lag(committed: int | None, end: int | None) -> int | None:
    return None if committed is None or end is None else max(0, end - committed)


def _places_text(places: list[tuple[str, int]]) -> str:
    """`orders:0,1 payments:3`"""
    topics: dict[str, list[str]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}:{','.join(partitions)}" for topic, partitions in topics.items()) or "-"


@app.command("reset")
def reset(
    name: Name,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, an offset, a time (2026-01-31T12:00, @MILLISECONDS) "
            "or how long ago (15m, 2h).",
        ),
    ] = None,
    by: Annotated[
        int | None, typer.Option("--by", metavar="N", help="So many records on, or back: -N.")
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Only this one; repeatable. Otherwise all that it has read."),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", help="Only this one of the topic; repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show what would be done.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Make a group that is not running go on somewhere else."""
    wanted = goal(to, by, SystemClock().now_ms())
    if partitions and len(topics or []) != 1:
        raise Misuse("--partition needs one --topic")
    client = admin(bootstrap)
    with Exchange(bootstrap) as exchange:
        share = find_share(exchange, name)
        if share is None:
            committed = _resettable(client, bootstrap, name, makes_one=bool(topics))
        else:
            _check_empty(name, len(share.members), share.group_state.lower())
            known = starts(exchange, name)
            committed = {place: start.offset for place, start in known.items() if start.offset is not None}
        places = _chosen(client, bootstrap, committed, topics or [], partitions or [])
        moves = _moves(client, bootstrap, committed, places, wanted)
        if moves and not dry_run and share is None:
            _commit(client, bootstrap, name, moves)
        elif moves and not dry_run:
            start_at(exchange, name, moves)
    rows = [
        {"topic": place.topic, "partition": place.partition, "from": committed.get(place), "to": offset}
        for place, offset in moves.items()
    ]
    if as_json:
        print_json({"group": name, "dry_run": dry_run, "partitions": rows})
        return
    print_table(rows)
    print(f"{name} {'would be' if dry_run else 'is'} reset on {len(rows)} partitions")


def _resettable(client: AdminClient, bootstrap: str, name: str, *, makes_one: bool) -> dict[Place, int]:
    """What the group has committed.  CommandError if it is not there, or in use."""
    group = _find(client, bootstrap, name)
    if group is None and not makes_one:
        raise CommandError(f"there is no group {name!r} at {bootstrap}", f"{_SEE_GROUPS}; --topic makes one")
    if group is not None:
        _check_empty(name, len(group.members), _state_name(group.state))
    return _committed(client, bootstrap, name)


def _commit(client: AdminClient, bootstrap: str, name: str, moves: dict[Place, int]) -> None:
    asked = ConsumerGroupTopicPartitions(name, [At(*place, offset) for place, offset in moves.items()])
    for at in answer_of(client.alter_consumer_group_offsets([asked])[name], bootstrap).topic_partitions:
        if at.error is not None:
            raise in_words(at.error, bootstrap)


def _check_empty(name: str, members: int, state: str) -> None:
    if members or state not in ("empty", "dead"):
        raise CommandError(
            f"group {name!r} is in use: {members} member{'' if members == 1 else 's'}, {state}",
            "stop its members first; `anabranch group describe` shows them",
        )


def _chosen(
    client: AdminClient,
    bootstrap: str,
    committed: dict[Place, int],
    topics: list[str],
    partitions: list[int],
) -> list[Place]:
    """The partitions that a reset is about."""
    if not topics:
        there = cluster_metadata(client, bootstrap).topics
        return [p for p in sorted(committed) if p.topic in there and p.partition in there[p.topic].partitions]
    places = [
        Place(topic, index)
        for topic in dict.fromkeys(topics)
        for index in sorted(topic_metadata(client, bootstrap, topic).partitions)
    ]
    absent = set(partitions) - {place.partition for place in places}
    if absent:
        raise Misuse(f"{topics[0]} has no partition {min(absent)}")
    return [place for place in places if not partitions or place.partition in partitions]


def _moves(
    client: AdminClient, bootstrap: str, committed: dict[Place, int], places: list[Place], wanted: Goal
) -> dict[Place, int]:
    starts = _offsets(client, bootstrap, places, OffsetSpec.earliest())
    ends = _offsets(client, bootstrap, places, OffsetSpec.latest())
    times: dict[Place, int] = {}
    if wanted.time_ms is not None:
        times = _offsets(client, bootstrap, places, OffsetSpec.for_timestamp(wanted.time_ms))
    return {
        place: wanted.offset_in(
            place, Known(committed.get(place), starts[place], ends[place], times.get(place))
        )
        for place in places
        if place in starts and place in ends
    }


@app.command("delete")
def delete(
    names: Names,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A group that is not there is fine.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove groups that are not running, and how far they had got."""
    client = admin(bootstrap)
    found = {name: _use(client, bootstrap, name) for name in names}
    absent = [name for name, use in found.items() if use is None]
    if absent and not if_exists:
        raise CommandError(f"there is no group {', '.join(absent)}", _SEE_GROUPS)
    doomed = {name: use for name, use in found.items() if use is not None}
    for name, (members, state) in doomed.items():
        _check_empty(name, members, state)
    if doomed and not yes and sys.stdin.isatty():
        typer.confirm(f"delete {', '.join(doomed)} and its offsets?", abort=True)
    for name, future in (client.delete_consumer_groups(list(doomed)) if doomed else {}).items():
        answer_of(future, bootstrap)
        print(f"deleted {name}")


def _use(client: AdminClient, bootstrap: str, name: str) -> tuple[int, str] | None:
    """How many members a group has, and its state; None if there is no such group."""
    with Exchange(bootstrap) as exchange:
        share = find_share(exchange, name)
    if share is not None:
        return len(share.members), share.group_state.lower()
    group = _find(client, bootstrap, name)
    return None if group is None else (len(group.members), _state_name(group.state))


def _find(client: AdminClient, bootstrap: str, name: str) -> ConsumerGroupDescription | None:
    """The group, None if there is none."""
    try:
        with failures_in_words(bootstrap):
            return _described(client, name)
    except FutureTimeout as error:
        raise CommandError(f"{bootstrap} gave no answer within {ANSWER_SECONDS:g} s") from error


def _described(client: AdminClient, name: str) -> ConsumerGroupDescription | None:
    try:
        group = client.describe_consumer_groups([name])[name].result(ANSWER_SECONDS)
    except KafkaException as exception:
        if exception.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise
    return None if group.state is ConsumerGroupState.DEAD else group


def _committed(client: AdminClient, bootstrap: str, name: str) -> dict[Place, int]:
    asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
    return {
        Place(at.topic, at.partition): at.offset
        for at in answer_of(asked[name], bootstrap).topic_partitions
        if at.offset > _NOWHERE
    }


def _offsets(client: AdminClient, bootstrap: str, places: list[Place], which: OffsetSpec) -> dict[Place, int]:
    """Without the partitions that are not there, nor those without such an offset."""
    there = cluster_metadata(client, bootstrap).topics
    asked = {
        At(*place): which
        for place in places
        if place.topic in there and place.partition in there[place.topic].partitions
    }
    found = {
        Place(at.topic, at.partition): answer_of(future, bootstrap).offset
        for at, future in (client.list_offsets(asked) if asked else {}).items()
    }
    return {place: offset for place, offset in found.items() if offset > _NOWHERE}


def _state_name(state: ConsumerGroupState) -> str:
    if state is ConsumerGroupState.UNKNOWN:
        return "rebalancing"  # librdkafka has no names for the consumer protocol's Assigning and Reconciling
    return str(state.name).lower().replace("_", " ")
