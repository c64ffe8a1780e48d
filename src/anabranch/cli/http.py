"""The broker's HTTP, as commands ask it: a request, its JSON, its refusals as failures of the command."""

import json
from http.client import HTTPException
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode
from urllib.request import Request, urlopen

import typer

from anabranch.base.errors import InvalidNamespace, InvalidTopicName
from anabranch.base.ids import Namespace, TopicName
from anabranch.cli.failure import CommandError, Misuse

DEFAULT_HTTP = "127.0.0.1:8080"

Http = Annotated[
    str,
    typer.Option(
        "--http", metavar="HOST:PORT", envvar="ANABRANCH_HTTP", help="The HTTP address of a broker."
    ),
]

_TIMEOUT_S = 30.0


def ask(http: str, method: str, path: str, body: Any = None, query: dict[str, str] | None = None) -> Any:
    """What a broker answers; None if that is nothing.  CommandError with its reason if it refuses."""
    return ask_registry(http, method, f"/admin/v2{path}", body, query)


def ask_registry(
    http: str, method: str, path: str, body: Any = None, query: dict[str, str] | None = None
) -> Any:
    """The same of its registry of schemas, whose paths have nothing before them."""
    url = f"http://{http.removeprefix('http://')}{path}"
    if query:
        url += "?" + urlencode(query)
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as answer:
            text = answer.read()
    except HTTPError as error:
        raise CommandError(_reason(error)) from error
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise CommandError(
            f"no broker answers HTTP at {http}: {reason}",
            "start one with `anabranch standalone`, or name another with --http HOST:PORT",
        ) from error
    return json.loads(text) if text else None


def _reason(error: HTTPError) -> str:
    try:
        answer = json.loads(error.read())
        told = answer["message"] if "message" in answer else answer["reason"]
    except (ValueError, KeyError, TypeError, OSError):
        return f"the broker answers {error.code} {error.reason}"
    return str(told)


def namespace_path(text: str) -> str:
    """`tenant/namespace`, checked, as a part of a path."""
    try:
        namespace = Namespace.parse(text)
    except InvalidNamespace as error:
        raise Misuse(str(error)) from error
    return f"/namespaces/{quote_plus(namespace.tenant)}/{quote_plus(namespace.name)}"


def topic_path(text: str) -> str:
    """A topic, by any name that Pulsar's clients use, as a part of a path."""
    try:
        name = TopicName.from_pulsar(text)
    except InvalidTopicName as error:
        raise Misuse(str(error)) from error
    return f"/{name.domain}/{name.tenant}/{name.namespace}/{quote_plus(name.local)}"
