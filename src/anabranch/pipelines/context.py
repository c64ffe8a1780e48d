"""Definition context: the broker of this run, and the topics that definition files use.

Definition files are run by `anabranch pipeline`, which sets all of this, or by Spark's own `spark-pipelines`,
which sets nothing; then the broker is that of the environment or of the spec's configuration:

    ANABRANCH_BOOTSTRAP=HOST:PORT            spark.anabranch.bootstrap.servers: HOST:PORT
    ANABRANCH_HTTP=HOST:PORT                 spark.anabranch.schema.registry.url: HOST:PORT
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

BOOTSTRAP_VARIABLE = "ANABRANCH_BOOTSTRAP"
BOOTSTRAP_SETTING = "spark.anabranch.bootstrap.servers"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
REGISTRY_VARIABLE = "ANABRANCH_HTTP"
REGISTRY_SETTING = "spark.anabranch.schema.registry.url"
DEFAULT_REGISTRY = "127.0.0.1:8080"

SOURCE, SINK, DEAD_LETTERS = "is read", "is written", "gets dead letters"


class TopicUse(NamedTuple):
    topic: str
    role: str


class Definitions:
    """What one reading of the definition files has come across."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.uses: list[TopicUse] = []


class Checking:
    """A table with expectations is being defined: records are to be kept beside what is made from them."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        """Those that it reads."""
        self.unreadable: list[Any] = []
        """Records that no row was made from, as DataFrames."""

    @property
    def from_record(self) -> bool:
        """Whether its rows are made from records."""
        return bool(self.topics)


_definitions: ContextVar[Definitions | None] = ContextVar("definitions", default=None)
_checking: ContextVar[Checking | None] = ContextVar("checking", default=None)


@contextmanager
def reading_definitions(bootstrap: str) -> Iterator[Definitions]:
    found = Definitions(bootstrap)
    before = _definitions.set(found)
    try:
        yield found
    finally:
        _definitions.reset(before)


@contextmanager
def checking() -> Iterator[Checking]:
    found = Checking()
    before = _checking.set(found)
    try:
        yield found
    finally:
        _checking.reset(before)


def being_checked() -> Checking | None:
    return _checking.get()


def uses(topic: str, role: str) -> None:
    definitions = _definitions.get()
    if definitions is not None and TopicUse(topic, role) not in definitions.uses:
        definitions.uses.append(TopicUse(topic, role))


def bootstrap(spark: Any) -> str:
    """The broker that topics are at."""
    definitions = _definitions.get()
    if definitions is not None:
        return definitions.bootstrap
    return os.environ.get(BOOTSTRAP_VARIABLE) or spark.conf.get(BOOTSTRAP_SETTING, DEFAULT_BOOTSTRAP)


def registry(spark: Any) -> str:
    """The address that registered schemas are at."""
    there = os.environ.get(REGISTRY_VARIABLE) or spark.conf.get(REGISTRY_SETTING, DEFAULT_REGISTRY)
    return there if "://" in there else f"http://{there}"
