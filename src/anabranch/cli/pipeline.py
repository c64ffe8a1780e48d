"""`anabranch pipeline`: data pipelines on Spark, with topics at both ends.

    init        a new project folder
    run         bring its tables up to date, once or again and again
    dry-run     look whether it would run
    status      how the last run went, and how far behind it is now

Spark is an extra, and heavy: nothing of it is loaded before a command needs it.
"""

import contextlib
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.base.errors import AnabranchError, Conflict, Corrupt, Exists, NotFound, Unavailable
from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.options import DEFAULT_BOOTSTRAP, Json, name_values
from anabranch.cli.output import print_json, print_table

if TYPE_CHECKING:
    from anabranch.pipelines.display import Screen
    from anabranch.pipelines.flows import Flows
    from anabranch.pipelines.project import Project
    from anabranch.pipelines.runner import Runner, Selection

_NEEDED = ("pyspark", "pyarrow", "pandas", "grpc_status", "yaml", "rich")

app = typer.Typer(help="Run data pipelines on Spark, with topics at both ends.", no_args_is_help=True)

Spec = Annotated[
    Path | None,
    typer.Option(
        "--spec", metavar="FILE", help="The spec, or its folder; else it is looked for from here up."
    ),
]
OptionalBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="ANABRANCH_BOOTSTRAP",
        help=f"A broker to ask first; else the spec's, else {DEFAULT_BOOTSTRAP}.",
    ),
]
Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark is to run: local[N], spark://HOST:PORT, …")
]
Remote = Annotated[
    str | None, typer.Option("--remote", metavar="sc://HOST:PORT", help="A Spark Connect server to run on.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark, over the spec's; repeatable."),
]
Tables = Annotated[
    list[str] | None,
    typer.Option("--refresh", metavar="TABLE,…", help="Bring only these up to date; repeatable."),
]
TablesAnew = Annotated[
    list[str] | None,
    typer.Option("--full-refresh", metavar="TABLE,…", help="Empty these and fill them again; repeatable."),
]
CreateTopics = Annotated[
    bool, typer.Option("--create-topics", help="Make the topics it writes to that are not there.")
]


@app.command("init")
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="NAME", help="The folder to make, and the pipeline's name.")
    ],
    example: Annotated[
        bool, typer.Option("--example", help="With a whole example: a shop's clicks and orders.")
    ] = False,
) -> None:
    """Make a new project."""
    from anabranch.pipelines import project

    with _in_words():
        made = project.create(folder, example=example)
    for file in [made.spec, *made.files()]:
        print(f"made {folder / file.relative_to(made.folder)}")
    print(f"next: cd {folder} && anabranch pipeline run --create-topics")


@app.command("run")
def run(
    spec: Spec = None,
    bootstrap: OptionalBootstrap = None,
    master: Master = "local[*]",
    remote: Remote = None,
    conf: Conf = None,
    refresh: Tables = None,
    full_refresh: TablesAnew = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="Empty all tables and fill them again.")
    ] = False,
    create_topics: CreateTopics = False,
    every: Annotated[
        float | None,
        typer.Option("--every", metavar="SECONDS", min=0, help="Again and again, so long after each other."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring the tables up to date with the topics."""
    if full_refresh_all and (refresh or full_refresh):
        raise Misuse("--full-refresh-all is all tables; leave --refresh and --full-refresh away")
    with _in_words(), _opened(spec, bootstrap, master, remote, conf) as (project, servers, runner):
        from rich.console import Console

        from anabranch.pipelines.display import Screen
        from anabranch.pipelines.runner import Selection

        _ready(runner, servers, create_topics)
        selection = Selection(_names(refresh), _names(full_refresh), full_refresh_all)
        screen = None if as_json else Screen(Console())
        while True:
            flows = _update(runner, selection, screen)
            if as_json:
                print_json(_results(flows))
            _raise_failure(flows, project)
            if every is None:
                return
            # What was emptied and filled again once is brought up to date from now on.
            selection = Selection((*selection.refresh, *selection.full_refresh) if selection.refresh else ())
            time.sleep(every)
            runner.define()


@app.command("dry-run")
def dry_run(
    spec: Spec = None,
    bootstrap: OptionalBootstrap = None,
    master: Master = "local[1]",
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Look whether a pipeline would run: its definitions, its graph, its topics."""
    with _in_words(), _opened(spec, bootstrap, master, remote, conf, dry=True) as (project, servers, runner):
        uses = _ready(runner, servers, create_topics=False)
        _raise_failure(runner.dry_run(), project)
        print(f"{project.name} would run: {len(project.files())} files, {len(uses)} topics, no errors")


@app.command("status")
def status(spec: Spec = None, bootstrap: OptionalBootstrap = None, as_json: Json = False) -> None:
    """Show how the last run went, and how far behind it is now."""
    from anabranch.pipelines import status as statuses
    from anabranch.pipelines.topics import behind_now

    with _in_words():
        project = _project(spec)
        found = statuses.read(project)
        if found is None:
            raise CommandError(f"{project.name} has not been run", "run it with `anabranch pipeline run`")
        behind = behind_now(bootstrap or found["bootstrap"], statuses.offsets_read(found))
    for name, flow in found["flows"].items():
        flow["behind"] = behind.get(name)
    if as_json:
        print_json(found)
        return
    ended = f"ended {found['ended']}" if found["ended"] else "did not end"
    print(f"{found['pipeline']}: {found['state']}, started {found['started']}, {ended}")
    if found["error"]:
        print(found["error"])
    columns = ("state", "rows_in", "rows_out", "late", "behind", "batches", "ended_at")
    print_table(
        [{"flow": name, **{one: flow[one] for one in columns}} for name, flow in found["flows"].items()]
    )


@contextlib.contextmanager
def _opened(
    spec: Path | None,
    bootstrap: str | None,
    master: str,
    remote: str | None,
    conf: list[str] | None,
    *,
    dry: bool = False,
) -> "Iterator[tuple[Project, str, Runner]]":
    _need_spark()
    from anabranch.pipelines.context import BOOTSTRAP_SETTING
    from anabranch.pipelines.runner import Where, opened
    from anabranch.pipelines.topics import reach

    project = _project(spec)
    project.configuration.update(name_values(conf or [], "--conf"))
    servers = bootstrap or project.configuration.get(BOOTSTRAP_SETTING) or DEFAULT_BOOTSTRAP
    reach(servers)  # before Spark, which takes its time to start
    with opened(project, servers, Where(master, remote), dry=dry) as runner:
        if runner.fixed:
            print(f"the server keeps its own {', '.join(runner.fixed)}", file=sys.stderr)
        yield project, servers, runner


def _project(spec: Path | None) -> "Project":
    from anabranch.pipelines import project

    return project.load(project.find_spec(spec, Path.cwd()))


def _need_spark() -> None:
    absent = [name for name in _NEEDED if find_spec(name) is None]
    if absent:
        raise CommandError(
            f"{', '.join(absent)} is not installed", "this needs: pip install 'anabranch[spark]'"
        )


def _ready(runner: "Runner", servers: str, create_topics: bool) -> list[Any]:
    """The definitions are read and the topics are there."""
    from anabranch.pipelines.topics import check_topics, create_sinks

    uses = runner.define()
    if create_topics:
        for name in create_sinks(servers, uses):
            print(f"made the topic {name}")
    check_topics(servers, uses)
    return uses


def _update(runner: "Runner", selection: "Selection", screen: "Screen | None") -> "Flows":
    if screen is None:
        return runner.update(selection, lambda flows: None)
    with screen.update() as watch:
        return runner.update(selection, watch)


def _results(flows: "Flows") -> dict[str, Any]:
    from dataclasses import asdict

    return {"state": flows.run_state, "error": flows.error, "flows": [asdict(flow) for flow in flows]}


def _raise_failure(flows: "Flows", project: "Project") -> None:
    from anabranch.pipelines.flows import FAILED
    from anabranch.pipelines.runner import LOG_NAME

    failed = flows.failed()
    if not failed and flows.run_state != FAILED:
        return
    what = "\n".join(f"{flow.name} failed: {flow.error}" for flow in failed) or flows.error
    log = project.notes / LOG_NAME
    told = f"; Spark's log is {log}" if log.exists() else ""
    raise CommandError(what, f"what was done before is kept, and is not done again{told}")


def _names(given: list[str] | None) -> tuple[str, ...]:
    return tuple(name.strip() for names in given or () for name in names.split(",") if name.strip())


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    from anabranch.pipelines.connect import SparkUnavailable

    try:
        yield
    except NotFound as error:
        raise CommandError(
            str(error),
            "`anabranch topic create NAME` makes a topic, --create-topics those that are written, "
            "`anabranch pipeline init NAME` a project",
        ) from error
    except SparkUnavailable as error:
        raise CommandError(str(error), "name another with --master or --remote") from error
    except Unavailable as error:
        raise CommandError(
            str(error), "start one with `anabranch standalone`, or name another with --bootstrap"
        ) from error
    except (Conflict, Exists) as error:
        raise CommandError(str(error)) from error
    except Corrupt as error:
        raise CommandError(
            str(error),
            "the next run writes status.json anew; tables.json has to come from a copy, or is removed with "
            "the tables, which --full-refresh-all makes again",
        ) from error
    except AnabranchError as error:
        raise Misuse(str(error)) from error
