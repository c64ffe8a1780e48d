"""`anabranch group`: who reads, how far each group has got, and sending one somewhere else.

Lag is what lies between a group's committed offset and the end of a partition.  What brokers say of groups of
consumers is in `group_members`, of share groups in `group_share`.
"""

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from anabranch.base.clock import SystemClock
from anabranch.cli.changes import Set, Unset, changes
from anabranch.cli.client import connected, partitions_of, partitions_there
from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.group_config import alter_group, group_configs
from anabranch.cli.group_members import consumer_groups, find_group
from anabranch.cli.group_reset import Goal, Known, goal
from anabranch.cli.group_share import KIND as SHARE
from anabranch.cli.group_share import find_share, share_groups, shown, start_at, starts
from anabranch.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from anabranch.cli.output import print_json, print_table
from anabranch.client.answers import check
from anabranch.client.cluster import EARLIEST, LATEST, Cluster
from anabranch.client.destinations import GROUPS, Coordinator, TopicPartition
from anabranch.client.group_offsets import commit_offsets, committed_offsets
from anabranch.client.requests import DELETE_GROUPS, Request

app = typer.Typer(help="Look at groups, change them, send them elsewhere, remove them.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="GROUP...", help="Group names.")]
Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]

_SEE_GROUPS = "`anabranch group list` shows the groups"
_NOWHERE = -1  # the offset of a time that no record has


@app.command("list")
def list_(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List groups, their protocols and states."""
    with connected(bootstrap) as cluster:
        states = consumer_groups(cluster)
        states |= {name: (SHARE, state) for name, state in share_groups(cluster).items()}
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
    with connected(bootstrap) as cluster:
        described = [
            (
                _describe(cluster, name)
                if (share := find_share(cluster, name)) is None
                else shown(cluster, share)
            )
            | {"configs": group_configs(cluster, name)}
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
    with connected(bootstrap) as cluster:
        alter_group(cluster, name, told)
    print(f"altered {name}")


def _describe(cluster: Cluster, name: str) -> dict[str, Any]:
    group = find_group(cluster, name)
    if group is None:
        raise CommandError(f"there is no group {name!r} at {cluster.settings.bootstrap}", _SEE_GROUPS)
    owners = {place: member.id for member in group.members for place in member.reads}
    committed = _committed(cluster, name)
    places = sorted({*owners, *committed})
    ends = _offsets(cluster, dict.fromkeys(places, LATEST))
    return {
        "group": name,
        "state": group.state,
        "protocol": group.protocol,
        "assignor": group.assignor,
        "members": [
            {
                "member": member.id,
                "instance": member.instance,
                "client": member.client,
                "host": member.host,
                "reads": [list(place) for place in member.reads],
            }
            for member in sorted(group.members)
        ],
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "committed": committed.get(place),
                "end": ends.get(place),
                "lag": _lag(committed.get(place), ends.get(place)),
                "member": owners.get(place),
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
    with connected(bootstrap) as cluster:
        share = find_share(cluster, name)
        if share is None:
            committed = _resettable(cluster, name, makes_one=bool(topics))
        else:
            _check_empty(name, len(share.members), share.group_state.lower())
            known = starts(cluster, name)
            committed = {place: start.offset for place, start in known.items() if start.offset is not None}
        places = _chosen(cluster, committed, topics or [], partitions or [])
        moves = _moves(cluster, committed, places, wanted)
        if moves and not dry_run and share is None:
            commit_offsets(cluster, name, moves)
        elif moves and not dry_run:
            start_at(cluster, name, moves)
    rows = [
        {"topic": place.topic, "partition": place.partition, "from": committed.get(place), "to": offset}
        for place, offset in moves.items()
    ]
    if as_json:
        print_json({"group": name, "dry_run": dry_run, "partitions": rows})
        return
    print_table(rows)
    print(f"{name} {'would be' if dry_run else 'is'} reset on {len(rows)} partitions")


def _resettable(cluster: Cluster, name: str, *, makes_one: bool) -> dict[TopicPartition, int]:
    """What the group has committed.  CommandError if it is not there, or in use."""
    group = find_group(cluster, name)
    if group is None and not makes_one:
        place = cluster.settings.bootstrap
        raise CommandError(f"there is no group {name!r} at {place}", f"{_SEE_GROUPS}; --topic makes one")
    if group is not None:
        _check_empty(name, len(group.members), group.state)
    return _committed(cluster, name)


def _check_empty(name: str, members: int, state: str) -> None:
    if members or state not in ("empty", "dead"):
        raise CommandError(
            f"group {name!r} is in use: {members} member{'' if members == 1 else 's'}, {state}",
            "stop its members first; `anabranch group describe` shows them",
        )


def _chosen(
    cluster: Cluster, committed: Mapping[TopicPartition, int], topics: list[str], partitions: list[int]
) -> list[TopicPartition]:
    """The partitions that a reset is about."""
    if not topics:
        return sorted(partitions_there(cluster) & committed.keys())
    places = [
        TopicPartition(topic, index)
        for topic in dict.fromkeys(topics)
        for index in partitions_of(cluster, topic)
    ]
    absent = set(partitions) - {place.partition for place in places}
    if absent:
        raise Misuse(f"{topics[0]} has no partition {min(absent)}")
    return [place for place in places if not partitions or place.partition in partitions]


def _moves(
    cluster: Cluster, committed: Mapping[TopicPartition, int], places: list[TopicPartition], wanted: Goal
) -> dict[TopicPartition, int]:
    starts = _offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = _offsets(cluster, dict.fromkeys(places, LATEST))
    times: dict[TopicPartition, int] = {}
    if wanted.time_ms is not None:
        times = _offsets(cluster, dict.fromkeys(places, wanted.time_ms))
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
    with connected(bootstrap) as cluster:
        found = {name: _use(cluster, name) for name in names}
        absent = [name for name, use in found.items() if use is None]
        if absent and not if_exists:
            raise CommandError(f"there is no group {', '.join(absent)}", _SEE_GROUPS)
        doomed = {name: use for name, use in found.items() if use is not None}
        for name, (members, state) in doomed.items():
            _check_empty(name, members, state)
        if doomed and not yes and sys.stdin.isatty():
            typer.confirm(f"delete {', '.join(doomed)} and its offsets?", abort=True)
        for name in doomed:
            answer = cluster.send(Coordinator(GROUPS, name), Request(DELETE_GROUPS, {"groups_names": [name]}))
            check(answer.results[0].error_code, f"group {name!r}")
            print(f"deleted {name}")


def _use(cluster: Cluster, name: str) -> tuple[int, str] | None:
    """How many members a group has, and its state; None if there is no such group."""
    share = find_share(cluster, name)
    if share is not None:
        return len(share.members), share.group_state.lower()
    group = find_group(cluster, name)
    return None if group is None else (len(group.members), group.state)


def _committed(cluster: Cluster, name: str) -> dict[TopicPartition, int]:
    found = committed_offsets(cluster, name, stable=False)
    return {place: one.offset for place, one in found.items()}


def _offsets(cluster: Cluster, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Without the partitions that are not there, nor those without such an offset."""
    there = partitions_there(cluster)
    found = cluster.offsets_at({place: time_ms for place, time_ms in times.items() if place in there})
    return {place: offset for place, offset in found.items() if offset > _NOWHERE}
