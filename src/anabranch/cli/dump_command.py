"""`anabranch log dump`: what is in the files of a log, and whether it is as it should be."""

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.dump.findings import FileDone, FileOpened, Problem
from anabranch.cli.dump.show import as_json, as_text
from anabranch.cli.dump.walk import look_through
from anabranch.cli.failure import FAILED, CommandError
from anabranch.cli.options import Json

app = typer.Typer(help="Look into the files of a log.", no_args_is_help=True)


@app.callback()
def _log() -> None:
    """Look into the files of a log."""


@app.command("dump")
def dump(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files, partition folders, data folders.")
    ],
    records: Annotated[bool, typer.Option("--records", "-r", help="Decode and show every record.")] = False,
    summary: Annotated[
        bool, typer.Option("--summary", "-s", help="A line a file, no batches, no entries.")
    ] = False,
    json_: Json = False,
) -> None:
    """Show and verify segments, indexes, snapshots and checkpoints.  Exit code 1 if anything is wrong."""
    show = as_json if json_ else as_text
    totals: Counter[str] = Counter()
    files = problems = 0
    try:
        for path in paths:
            for finding in look_through(path, records):
                for line in show(finding, summary):
                    print(line)
                files += isinstance(finding, FileOpened)
                problems += isinstance(finding, Problem)
                totals.update(finding.counts if isinstance(finding, FileDone) else {})
    except OSError as error:
        raise CommandError(f"cannot read {error.filename}: {error.strerror}") from error
    if not json_:
        verdict = f"{problems} problems" if problems else "all as it should be"
        found = f"{files} files, {totals['batches']:,} batches, {totals['records']:,} records"
        sys.stdout.flush()
        print(f"{found}: {verdict}", file=sys.stderr)
    if problems:
        raise typer.Exit(FAILED)
