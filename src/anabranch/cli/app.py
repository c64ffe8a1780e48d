"""Every command but those that are a broker, put together.

A command module defines functions; this is where they get their place and their order in `--help`.
"""

import time
from typing import Annotated

import typer

from anabranch import __version__
from anabranch.cli import (
    cluster,
    consume,
    dump_command,
    group,
    namespace,
    pipeline,
    produce,
    pulsar_consume,
    pulsar_produce,
    schema,
    subscription,
    table,
    tenant,
    topic,
    transaction,
)

_OVER_PULSAR = " --pulsar"

app = typer.Typer(
    name="anabranch",
    help="One log for real Kafka clients and real Pulsar clients: run a broker, and look into it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"anabranch {__version__}")
        raise typer.Exit


@app.callback()
def _anabranch(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


@app.command(
    "standalone",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def _standalone(context: typer.Context) -> None:
    """Run a broker on this machine until it is told to stop."""
    from anabranch.cli import standalone

    raise typer.Exit(standalone.run(context.args, time.monotonic()))


@app.command(
    "broker",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def _broker(context: typer.Context) -> None:
    """Run one broker of a cluster until it is told to stop."""
    from anabranch.cli import broker

    raise typer.Exit(broker.run(context.args, time.monotonic()))


@app.command(
    "zookeeper",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def _zookeeper(context: typer.Context) -> None:
    """Run a ZooKeeper server, for a cluster's metadata, until it is told to stop."""
    from anabranch.cli import zookeeper

    raise typer.Exit(zookeeper.run(context.args, time.monotonic()))


app.add_typer(cluster.app, name="cluster")
app.add_typer(topic.app, name="topic")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command(f"produce{_OVER_PULSAR}", hidden=True)(pulsar_produce.produce)
app.command(f"consume{_OVER_PULSAR}", hidden=True)(pulsar_consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(transaction.app, name="transaction")
app.add_typer(tenant.app, name="tenant")
app.add_typer(namespace.app, name="namespace")
app.add_typer(subscription.app, name="subscription")
app.add_typer(schema.app, name="schema")
app.add_typer(table.app, name="table")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(dump_command.app, name="log")


def _by_protocol(arguments: list[str]) -> list[str]:
    """`produce` and `consume` with --pulsar are commands of their own: their options are Pulsar's."""
    if arguments[:1] in (["produce"], ["consume"]) and "--pulsar" in arguments:
        return [arguments[0] + _OVER_PULSAR, *(text for text in arguments[1:] if text != "--pulsar")]
    return arguments


def run(arguments: list[str]) -> int:
    try:
        app(args=_by_protocol(arguments), prog_name="anabranch")
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 1
    return 0
