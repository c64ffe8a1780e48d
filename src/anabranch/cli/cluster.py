"""`anabranch cluster`: a whole cluster on this machine, a process for each of its parts.

`up` runs the supervisor; the other commands tell it what to do, by the data folder that it was started with.
"""

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.cli.options import Json
from anabranch.cli.output import print_json, print_table

app = typer.Typer(
    help="A local cluster: ZooKeeper and brokers, each in a process of its own, under one supervisor.\n\n"
    "A process that dies by itself, or by an outside kill -9, is started again, after a pause that grows "
    "with each death. One that was killed by `cluster kill` stays down until `cluster restart`.",
    no_args_is_help=True,
)

Data = Annotated[
    Path, typer.Option("--data", metavar="DIR", envvar="ANABRANCH_CLUSTER", help="The cluster's folder.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="broker-1, broker-2, ..., zookeeper")]

_DATA = Path("anabranch-cluster")


@app.command("up")
def up(
    data: Data = _DATA,
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", "-n", help="How many; by default those the folder has, or 3.", min=1),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT[/chroot]", help="One that runs already, instead of our own."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; by default 127.0.0.1.")] = None,
    kafka_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="The first broker's (9092), others count up; 0: any free ones."),
    ] = None,
    pulsar_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="The same for Pulsar clients (6650); -1: none.")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="The same for HTTP (8080); -1: none.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings of all brokers, .properties or .toml.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of all brokers; repeatable."),
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Written, as JSON, once all of it serves.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Leave it running in the background.")
    ] = False,
) -> None:
    """Start a cluster, and keep it running until Ctrl-C, SIGTERM or `cluster down`.

    Topics of the cluster's own have three replicas where there are three brokers.
    """
    from anabranch.cli.local_cluster.plan import Wanted
    from anabranch.cli.local_cluster.up import run_cluster

    started = time.monotonic()
    wanted = Wanted(
        data=data,
        brokers=brokers,
        zookeeper=zookeeper,
        host=host,
        kafka_port=kafka_port,
        pulsar_port=pulsar_port,
        http_port=http_port,
        config=config,
        settings=tuple(settings or ()),
        ready_file=ready_file,
    )
    raise typer.Exit(run_cluster(wanted, started, detach=detach))


@app.command("status")
def status(
    data: Data = _DATA,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Ask the brokers instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the processes of a local cluster: role, id, process id, state, ports, folder.

    With --bootstrap, of any cluster: its brokers and controller, partitions that are under-replicated,
    under-min-ISR or offline, and reassignments.
    """
    if bootstrap is None:
        _show(_ask(data, "status"), as_json)
        return
    from anabranch.cli.client import connected
    from anabranch.cli.cluster_status import cluster_status, print_status

    with connected(bootstrap) as cluster:
        found = cluster_status(cluster)
    if as_json:
        print_json(found)
    else:
        print_status(found)


@app.command("kill")
def kill(id: Id, data: Data = _DATA, as_json: Json = False) -> None:
    """kill -9 a process; it stays down until `cluster restart`."""
    _show(_ask(data, "kill", id), as_json)


@app.command("pause")
def pause(id: Id, data: Data = _DATA, as_json: Json = False) -> None:
    """Let a process stand still (SIGSTOP), as a machine does that hangs."""
    _show(_ask(data, "pause", id), as_json)


@app.command("resume")
def resume(id: Id, data: Data = _DATA, as_json: Json = False) -> None:
    """Let a process go on that stands still."""
    _show(_ask(data, "resume", id), as_json)


@app.command("restart")
def restart(id: Id, data: Data = _DATA, as_json: Json = False) -> None:
    """Stop a process if it is there, and start it; returns when it serves."""
    _show(_ask(data, "restart", id), as_json)


@app.command("add")
def add(data: Data = _DATA, as_json: Json = False) -> None:
    """Start one more broker, with the settings that `up` was given; returns when it serves.

    How many replicas topics have by default, and how many must be in sync, changes with the next `up`.
    """
    rows = _ask(data, "add")
    if not as_json and (note := rows[0].pop("note")):
        print(note, file=sys.stderr)
    _show(rows, as_json)


@app.command("down")
def down(data: Data = _DATA) -> None:
    """Stop all of it cleanly; returns when it has stopped.  The data stays."""
    _ask(data, "down")


@app.command("adopt")
def adopt(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The data folder of `anabranch standalone`.")],
    zookeeper: Annotated[
        str, typer.Option(metavar="HOST:PORT[/chroot]", help="Where the cluster is to be kept; empty yet.")
    ],
) -> None:
    """Make the broker of a standalone data folder the first broker of a cluster.

    Its metadata is copied to ZooKeeper; cluster, broker and topics keep their ids. Stop the broker before.
    """
    from anabranch.cli.local_cluster.adopt import adopt

    print(f"the folder is a broker of a cluster now; start it with:\n  {adopt(data, zookeeper)}")


def _ask(data: Path, verb: str, id: str | None = None) -> list[dict[str, Any]]:
    from anabranch.cli.local_cluster.control import ask

    return ask(data, verb, id)


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row["ports"] = [f"{protocol} {port}" for protocol, port in row["ports"].items()]
        del row["log"]
    print_table(rows)
