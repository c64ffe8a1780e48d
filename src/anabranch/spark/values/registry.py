"""The registry as readers and writers of values ask it, over HTTP: Kafka's face of it, and Pulsar's.

    GET  /subjects/orders-value/versions/latest            what a topic's values are
    GET  /schemas/ids/7                                    what a value that begins with 7 was written by
    POST /subjects/orders-value/versions                   a schema of ours
    GET  /admin/v2/schemas/public/default/orders/schema    what only Pulsar's clients see, such as their JSON

Any registry that speaks the first three will do.  Avro is asked for without references (`format=resolved`),
Protobuf as a descriptor (`format=serialized`), where there is need.  What an id stands for never changes: it
is asked for once in the life of a process.
"""

import json
import urllib.error
import urllib.request
from base64 import b64encode
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from anabranch.base.errors import Invalid, NotFound, Unavailable
from anabranch.spark.options import Options

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
PULSAR_JSON = "PULSAR_JSON"
"""JSON whose fields an Avro schema lists."""

_TYPE = "application/vnd.schemaregistry.v1+json"
_LARGEST_ANSWER_BYTES = 16 << 20
_NOT_FOUND, _CONFLICT, _UNPROCESSABLE = 404, 409, 422


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
        return Schema(PULSAR_JSON if kind == JSON else kind, str(told.get("data", "")), -1, told["version"])

    def register(self, subject: str, type: str, text: str) -> int:
        """The id of a schema, registered unless it is.  Refused if the subject's rules do not allow it."""
        body = {"schema": text, "schemaType": type}
        told = self._ask(f"/subjects/{quote(subject, safe='')}/versions", body)
        return int(told["id"])

    def _schema(self, path: str, query: tuple[str, ...] = ()) -> Schema:
        told = self._ask(_url(path, query))
        kind = told.get("schemaType") or AVRO
        if kind == PROTOBUF:
            told = {**told, "schema": self._ask(_url(path, (*query, "format=serialized")))["schema"]}
        elif kind == AVRO and told.get("references"):
            told = {**told, "schema": self._ask(_url(path, (*query, "format=resolved")))["schema"]}
        return Schema(kind, str(told["schema"]), int(told.get("id", -1)), int(told.get("version", -1)))

    def _ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": _TYPE, "Content-Type": _TYPE}
        if self.user:
            headers["Authorization"] = f"Basic {b64encode(self.user.encode()).decode()}"
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                told = answer.read(_LARGEST_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise _complaint(self.url + path, error.code, error.read(1 << 16)) from None
        except OSError as error:  # URLError is one, and so is a time-out
            raise Unavailable(f"the schema registry {self.url} cannot be reached: {error}") from error
        try:
            return json.loads(told)
        except ValueError:
            raise Invalid(f"{self.url} is no schema registry: {path} is not answered with JSON") from None


def registry_of(options: Options) -> Registry:
    """The one that the options name.  Invalid if they name none."""
    url = options.text("schema.registry.url")
    if not url:
        raise Invalid(
            "the option schema.registry.url is missing: where the schemas are, the broker's HTTP address "
            "such as http://127.0.0.1:8080 or that of any other registry"
        )
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid(f"schema.registry.url is {url!r}, not such as http://127.0.0.1:8080")
    timeout_s = options.number("kafka.request.timeout.ms", 30_000) / 1000
    return Registry(url.rstrip("/"), timeout_s, options.text("schema.registry.basic.auth.user.info") or "")


@lru_cache(maxsize=1000)
def schema_by_id(registry: Registry, id: int) -> Schema:
    return registry.by_id(id)


@lru_cache(maxsize=1000)
def schema_by_version(registry: Registry, subject: str, version: int) -> Schema:
    return registry.written_by(subject, version)


@lru_cache(maxsize=1000)
def pulsar_schema(registry: Registry, topic: str, version: int) -> Schema:
    return registry.of_pulsar(topic, version)


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
