"""`anabranch schema`: the subjects of the registry, their versions, and adding to them."""

import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.http import DEFAULT_HTTP, Http, ask_registry
from anabranch.cli.options import Json
from anabranch.cli.output import print_json, print_table

app = typer.Typer(
    help="Look at, register, check and delete schemas, and say what may follow what.", no_args_is_help=True
)

_TYPES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}

Subject = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="orders-value for the values of topic orders; or any name.")
]
File = Annotated[str, typer.Argument(metavar="FILE", help="The schema; - for standard input.")]
Type = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="AVRO, JSON or PROTOBUF; by default as the file is called."),
]
References = Annotated[
    list[str] | None,
    typer.Option("--reference", metavar="NAME=SUBJECT:VERSION", help="What it refers to; repeatable."),
]
Normalize = Annotated[bool, typer.Option("--normalize", help="Write it in its normal form first.")]


def _path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _posted(file: str, type: str | None, references: list[str] | None) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error
    told = type.upper() if type else _TYPES.get(Path(file).suffix)
    if told is None:
        raise Misuse(f"nobody can tell of what type {file} is", "say it with --type AVRO, JSON or PROTOBUF")
    return {"schema": text, "schemaType": told, "references": [_reference(one) for one in references or ()]}


def _reference(text: str) -> dict[str, Any]:
    name, _, place = text.rpartition("=")
    subject, _, version = place.rpartition(":")
    if not name or not subject or not version.isdecimal():
        raise Misuse(f"{text!r} is no reference; write NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}


@app.command("list")
def list_(
    prefix: Annotated[str, typer.Option("--prefix", help="Only subjects that begin so.")] = "",
    as_json: Json = False,
    http: Http = DEFAULT_HTTP,
) -> None:
    """List subjects, their last versions and the ids of those."""
    query = {"latestOnly": "true", "subjectPrefix": prefix}
    rows = [
        {
            "subject": found["subject"],
            "version": found["version"],
            "id": found["id"],
            "type": found.get("schemaType", "AVRO"),
        }
        for found in ask_registry(http, "GET", "/schemas", query=query)
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(rows)


@app.command("show")
def show(
    subject: Subject,
    version: Annotated[str, typer.Option("--version", help="A number, or latest.")] = "latest",
    as_json: Json = False,
    http: Http = DEFAULT_HTTP,
) -> None:
    """Print a schema: its text, or as JSON all that is known of it."""
    found = ask_registry(http, "GET", f"{_path(subject)}/versions/{quote(version, safe='')}")
    if as_json:
        print_json({**found, "versions": ask_registry(http, "GET", f"{_path(subject)}/versions")})
    else:
        print(found["schema"].rstrip("\n"))


@app.command("register")
def register(
    subject: Subject,
    file: File,
    type: Type = None,
    references: References = None,
    normalize: Normalize = False,
    http: Http = DEFAULT_HTTP,
) -> None:
    """Register a schema, unless the subject has it."""
    body, query = _posted(file, type, references), {"normalize": str(normalize).lower()}
    found = ask_registry(http, "POST", f"{_path(subject)}/versions", body, query)
    print(f"{subject} has it as version {found['version']}, its id is {found['id']}")


@app.command("check")
def check(
    subject: Subject,
    file: File,
    type: Type = None,
    references: References = None,
    http: Http = DEFAULT_HTTP,
) -> None:
    """Say whether a schema could be registered, and why not if it could not."""
    path = f"/compatibility{_path(subject)}/versions"
    told = ask_registry(http, "POST", path, _posted(file, type, references), {"verbose": "true"})
    if not told["is_compatible"]:
        raise CommandError(f"it cannot follow what {subject} has", "\n  ".join(told["messages"]))
    print(f"{subject} can have it")


@app.command("level")
def level(
    subject: Annotated[
        str | None, typer.Argument(metavar="[SUBJECT]", help="All subjects that say nothing else, if none.")
    ] = None,
    wanted: Annotated[
        str | None,
        typer.Option("--set", metavar="LEVEL", help="BACKWARD, FORWARD, FULL, with _TRANSITIVE; NONE."),
    ] = None,
    http: Http = DEFAULT_HTTP,
) -> None:
    """Show or say what may follow what."""
    path = "/config" if subject is None else f"/config/{quote(subject, safe='')}"
    if wanted is not None:
        ask_registry(http, "PUT", path, {"compatibility": wanted})
    print(ask_registry(http, "GET", path, query={"defaultToGlobal": "true"})["compatibilityLevel"])


@app.command("delete")
def delete(
    subject: Subject,
    version: Annotated[str | None, typer.Option("--version", help="Only this one.")] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="For good, what was deleted before.")
    ] = False,
    http: Http = DEFAULT_HTTP,
) -> None:
    """Delete a subject, or one version of it."""
    path = _path(subject) if version is None else f"{_path(subject)}/versions/{quote(version, safe='')}"
    gone = ask_registry(http, "DELETE", path, query={"permanent": str(permanent).lower()})
    versions = ", ".join(map(str, gone)) if isinstance(gone, list) else str(gone)
    print(f"deleted {subject}, version {versions}{' for good' if permanent else ''}")
