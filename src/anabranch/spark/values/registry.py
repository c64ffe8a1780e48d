"""Schema registry client of readers and writers of values, over HTTP: Kafka's interface, and Pulsar's.

    GET  /subjects/orders-value/versions/latest            what a topic's values are
    GET  /schemas/ids/7                                    what a value that begins with 7 was written by
    POST /subjects/orders-value/versions                   a schema of ours
    GET  /admin/v2/schemas/public/default/orders/schema    what only Pulsar's clients see, such as their JSON

Any registry that speaks the first three will do.  Avro is asked for without references (`format=resolved`),
Protobuf as a descriptor (`format=serialized`), where there is need.  What an id stands for never changes: it
is asked for once in the life of a process (`Lookup`), and, since a query is under way then, again and again
for a while if nobody answers.
"""

import json
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPException
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from anabranch.base.backoff import Backoff
from anabranch.base.errors import Invalid, NotFound, Unavailable
from anabranch.spark.options import Options

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
PULSAR_JSON = "PULSAR_JSON"
"""JSON whose fields an Avro schema lists."""

_TYPE = "application/vnd.schemaregistry.v1+json"
_LARGEST_ANSWER_BYTES = 16 << 20
_NOT_FOUND, _CONFLICT, _UNPROCESSABLE = 404, 409, 422
_MOST_KNOWN = 1000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


class Refused(Invalid):
    """The registry does not take a schema."""


class Schema(NamedTuple):
    """A schema as values are read by it.  Travels to executors."""

    type: str
    text: str
    id: int = -1
    version: int = -1


class Registry(NamedTuple):
    """Where it is.  Travels to executors."""

    url: str
    timeout_s: float
    user: str = ""
    """Name and password with a colon between them, if it wants any."""

    def version(self, subject: str, version: int | None) -> Schema:
        """A subject's schema, the latest if no version is named."""
        number = "latest" if version is None else str(version)
        return self._schema(f"/subjects/{quote(subject, safe='')}/versions/{number}")

    def written_by(self, subject: str, version: int) -> Schema:
        """The schema that messages of a version were written by, whether that is deleted or not."""
        return self._schema(f"/subjects/{quote(subject, safe='')}/versions/{version}", ("deleted=true",))

    def by_id(self, id: int) -> Schema:
        return self._schema(f"/schemas/ids/{id}")

    def of_pulsar(self, topic: str, version: int | None) -> Schema:
        """What Pulsar's clients see of a topic; versions count from 0."""
        path = f"/admin/v2/schemas/{_pulsar_path(topic)}/schema"
        told = self._ask(path if version is None else f"{path}/{version}")
        kind = str(told.get("type", ""))
        number = int(told.get("version", -1))
        return Schema(PULSAR_JSON if kind == JSON else kind, str(told.get("data", "")), -1, number)

    def register(self, subject: str, type: str, text: str) -> int:
        """The id of a schema, registered unless it is.  Refused if the subject's rules do not allow it."""
        body = {"schema": text, "schemaType": type}
        told = self._ask(f"/subjects/{quote(subject, safe='')}/versions", body, needs="id")
        return int(told["id"])

    def _schema(self, path: str, query: tuple[str, ...] = ()) -> Schema:
        told = self._ask(_url(path, query), needs="schema")
        kind = told.get("schemaType") or AVRO
        if kind == PROTOBUF:
            told = {**told, "schema": self._form(path, query, "serialized")}
        elif kind == AVRO and told.get("references"):
            told = {**told, "schema": self._form(path, query, "resolved")}
        return Schema(kind, str(told["schema"]), int(told.get("id", -1)), int(told.get("version", -1)))

    def _form(self, path: str, query: tuple[str, ...], form: str) -> str:
        return str(self._ask(_url(path, (*query, f"format={form}")), needs="schema")["schema"])

    def _ask(self, path: str, body: Any = None, needs: str = "") -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Accept": _TYPE, "Content-Type": _TYPE})
        if self.user:  # not for whoever an answer leads on to
            told_who = f"Basic {b64encode(self.user.encode()).decode()}"
            request.add_unredirected_header("Authorization", told_who)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                told = answer.read(_LARGEST_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise _complaint(self.url + path, error.code, error.read(1 << 16)) from None
        except (OSError, HTTPException) as error:  # URLError is one, and so is a time-out
            raise Unavailable(f"the schema registry {self.url} cannot be reached: {error}") from error
        try:
            found = json.loads(told)
        except ValueError:
            raise Invalid(f"{self.url} is no schema registry: {path} is not answered with JSON") from None
        if not isinstance(found, dict) or (needs and needs not in found):
            raise Invalid(
                f"{self.url} is no schema registry: the answer to {path} has no {needs or 'fields'}"
            )
        return found


def registry_of(options: Options) -> Registry:
    """The one that the options name.  Invalid if they name none."""
    url = options.text("schema.registry.url")
    if not url:
        raise Invalid(
            "the option schema.registry.url is missing: where the schemas are, the broker's HTTP address "
            "such as http://127.0.0.1:8080 or that of any other registry"
        )
    parts = urlsplit(url)
    # Names and passwords go into no message, whatever is wrong.
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid(f"schema.registry.url is {shown!r}, not such as http://127.0.0.1:8080")
    user = options.text("schema.registry.basic.auth.user.info")
    if not user and parts.username:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    timeout_s = options.number("kafka.request.timeout.ms", 30_000) / 1000
    return Registry(shown.rstrip("/"), timeout_s, user or "")


class Lookup(NamedTuple):
    """A schema that values name: by its id, by its version, or by the version that Pulsar's clients know."""

    registry: Registry
    id: int = -1
    subject: str = ""
    topic: str = ""
    version: int = -1

    @property
    def is_known(self) -> bool:
        """Whether nobody has to be asked."""
        return self in _known

    def schema(self) -> Schema:
        """NotFound if there is none, Unavailable if nobody answers for long."""
        found = _known.get(self)
        if found is None:
            found = _persist(self._asked, self.registry.timeout_s)
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[self] = found
        return found

    def _asked(self) -> Schema:
        if self.topic:
            return self.registry.of_pulsar(self.topic, self.version)
        if self.subject:
            return self.registry.written_by(self.subject, self.version)
        return self.registry.by_id(self.id)


_known: dict[Lookup, Schema] = {}


def _persist(ask: Callable[[], Schema], timeout_s: float) -> Schema:
    """What `ask` returns, asked again while a registry that was there a moment ago is not."""
    deadline = time.monotonic() + timeout_s
    backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, Random())
    while True:
        try:
            return ask()
        except Unavailable:
            pause_s = backoff.next_s()
            if time.monotonic() + pause_s > deadline:
                raise
        time.sleep(pause_s)


def _url(path: str, query: tuple[str, ...]) -> str:
    return f"{path}?{'&'.join(query)}" if query else path


def _complaint(url: str, status: int, told: bytes) -> Exception:
    try:
        message = str(json.loads(told)["message"])
    except (ValueError, KeyError, TypeError):
        message = told[:200].decode(errors="replace") or f"status {status}"
    if status == _NOT_FOUND:
        return NotFound(f"{url}: {message}")
    if status in (_CONFLICT, _UNPROCESSABLE):
        return Refused(f"the schema registry refuses: {message}")
    return (Unavailable if status >= 500 else Invalid)(f"{url} answers {status}: {message}")


def _pulsar_path(topic: str) -> str:
    name = topic.removeprefix("persistent://")
    return quote(name if name.count("/") == 2 else f"public/default/{name}")
