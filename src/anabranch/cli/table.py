"""`anabranch table`: keep topics as tables, look at them, and run the process that maintains them.

What that needs is loaded by the commands themselves: most runs of `anabranch` are of others.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.base.errors import AnabranchError
from anabranch.cli.client import (
    BROKER,
    TOPIC,
    alter_configs,
    connected,
    describe_configs,
    partitions_of,
    reach,
)
from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, duration_ms
from anabranch.cli.output import print_json, print_table
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import ANY, Broker
from anabranch.log.config_table import ENABLE, LOCATION, RETENTION
from anabranch.server.config_tables import MAINTAIN, ROOT, ROOTS

app = typer.Typer(help="Keep topics as tables, and look at them.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]


@app.command("enable")
def enable(
    topic: Topic,
    location: Annotated[
        Path | None,
        typer.Option("--location", metavar="DIR", help="Its folder; by default in the broker's data."),
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option("--retention", metavar="TIME", help="Keep files so long, such as 90d; else for good."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Keep a topic's history as a table, from what its log has now on."""
    from anabranch.cli import table_view

    kept_ms = duration_ms(retention) if retention is not None else None
    if retention is not None and kept_ms is None:
        raise Misuse(f"--retention {retention!r} is no time; write 12h or 90d")
    with connected(bootstrap) as cluster:
        partitions_of(cluster, topic)
        present = _present_place(cluster, topic)
        if location is None:
            place = present or _usual_place(cluster, topic)
        else:
            place = location.absolute()
            table_view.check_move(topic, present, place)
        changes: dict[str, str | None] = {ENABLE.name: "true", LOCATION.name: str(place)}
        if kept_ms is not None:
            changes[RETENTION.name] = str(kept_ms)
        alter_configs(cluster, ANY, TOPIC, topic, changes)
        is_maintained = location is None or _is_maintained(place, _told_by_broker(cluster))
    print(f"{topic} is kept as a table in {place}")
    if not is_maintained:
        print(
            "anabranch: the broker does not maintain tables there\n"
            "  allow it with the broker's option anabranch.table.roots, or run `anabranch table run --root`",
            file=sys.stderr,
        )


def _present_place(cluster: Cluster, topic: str) -> Path | None:
    """Where the topic's table is, or was before it was disabled."""
    told = {one.name: one.value for one in describe_configs(cluster, ANY, TOPIC, topic)}
    value = told.get(LOCATION.name)
    return Path(value) if value else None


def _usual_place(cluster: Cluster, topic: str) -> Path:
    from anabranch.cli import table_view

    root = _told_by_broker(cluster).get(ROOT)
    if not root:
        raise CommandError("the broker does not say where tables go", "name a folder with --location DIR")
    return table_view.place_in(Path(root), topic, cluster)


def _told_by_broker(cluster: Cluster) -> dict[str, str]:
    """The options of a broker that are about tables."""
    id = cluster.brokers()[0]
    told = describe_configs(cluster, Broker(id), BROKER, str(id))
    return {one.name: one.value or "" for one in told if one.name.startswith("anabranch.table.")}


def _is_maintained(place: Path, told: dict[str, str]) -> bool:
    is_allowed = any(root in place.parents for root in _roots(told))
    return is_allowed and told.get(MAINTAIN) == "true"


def _roots(told: dict[str, str]) -> list[Path]:
    """Where the broker allows tables."""
    return [Path(root) for root in (told.get(ROOT, ""), *told.get(ROOTS, "").split(",")) if root]


@app.command("disable")
def disable(topic: Topic, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Keep a topic as a table no longer.  Its files stay, and count again if it is enabled in time."""
    with connected(bootstrap) as cluster:
        partitions_of(cluster, topic)
        alter_configs(cluster, ANY, TOPIC, topic, {ENABLE.name: "false"})
    print(f"{topic} is not kept as a table any more; its files stay where they are")


@app.command("list")
def list_(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List topics that are kept as tables."""
    from anabranch.cli import table_view

    with connected(bootstrap) as cluster:
        rows = table_view.summaries(cluster)
    if as_json:
        print_json(rows)
    else:
        print_table(rows)


@app.command("describe")
def describe(
    topic: Topic,
    files: Annotated[bool, typer.Option("--files", help="List the files instead.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a table: what it covers, partition by partition, and how far it is behind."""
    from anabranch.cli import table_view

    with connected(bootstrap) as cluster:
        partitions_of(cluster, topic)
        whole, partitions, its_files = table_view.description(topic, cluster)
    if as_json:
        print_json(its_files if files else {**whole, "partitions": partitions})
    elif files:
        print_table(its_files)
    else:
        for name, value in whole.items():
            print(f"{name}: {value}")
        print_table(partitions)


@app.command("run")
def run(
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="The Spark that does it: local, or a cluster.")
    ] = "local[2]",
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="How often tables are looked at.")
    ] = 60.0,
    registry: Annotated[
        str,
        typer.Option(
            "--schema-registry", metavar="URL", help="Where schemas are; files get a column by them."
        ),
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Only until they are up to date.")] = False,
    roots: Annotated[
        list[Path] | None,
        typer.Option(
            "--root", metavar="DIR", help="Tables in such folders; else where the broker allows them."
        ),
    ] = None,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Maintain all tables, in the foreground.  The broker does this itself, unless told not to."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        from anabranch.pipelines.tables import run as running
    except ImportError as error:
        raise CommandError(f"this needs: pip install 'anabranch[spark]' ({error})") from error
    reach(bootstrap)
    if with_parent:
        running.end_with_parent()
    # Whoever may change a topic's options must not choose where whoever runs this writes.
    allowed = roots or _allowed(bootstrap)
    with _in_words():
        running.run(running.Wanted(bootstrap, registry, master, interval, once, allowed), _tell)


def _allowed(bootstrap: str) -> list[Path]:
    with connected(bootstrap) as cluster:
        return _roots(_told_by_broker(cluster))


def _tell(done: Any) -> None:
    if done.rows:
        print(f"{done.rows} records copied, {done.tables} tables", flush=True)


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except AnabranchError as error:
        raise CommandError(str(error)) from error
