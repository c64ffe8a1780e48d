"""The options of `format("anabranch")`: those of Spark's Kafka source and sink, checked before anything runs.

A name that is none is an error that says which one was probably meant; so is an option that has no meaning
where it is used (`endingOffsets` of a stream), and a value that cannot be.  Names are not case-sensitive, as
everywhere in Spark.

    read      which topics     subscribe | subscribePattern | assign
              from, to         startingOffsets, startingTimestamp, startingOffsetsByTimestamp, ending…
              how much         maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay,
                               minPartitions, minRecordsPerPartition, maxRecordsPerPartition
              what             includeHeaders, includePulsar, failOnDataLoss, kafka.isolation.level
              by schemas       valueSchema, keySchema, schema.registry.url, mode, …
              positions        commitOffsets, with kafka.group.id or groupIdPrefix
    write     where            topic
              how              exactlyOnce, transactionalIdPrefix, kafka.compression.type, kafka.batch.size
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from anabranch.base.errors import Invalid
from anabranch.client.settings import Settings
from anabranch.records.compression import NAMES as CODECS

if TYPE_CHECKING:
    from anabranch.spark.values.writing import Values

_BOTH = {
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.request.timeout.ms",
    "kafka.security.protocol",
}
OF_SCHEMAS = (
    "valueSchema",
    "valueSchemaVersion",
    "valueSubject",
    "valueAs",
    "keySchema",
    "keySchemaVersion",
    "keySubject",
    "mode",
    "schema.registry.url",
    "schema.registry.basic.auth.user.info",
)
_READ = {
    *_BOTH,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "includePulsar",
    *OF_SCHEMAS,
    "groupIdPrefix",
    "kafka.group.id",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes",
    "kafkaConsumer.pollTimeoutMs",
}
BATCH_READ = {
    *_READ,
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "useTable",
    "readCompacted",
}
STREAM_READ = {
    *_READ,
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minRecordsPerPartition",
    "commitOffsets",
}
BATCH_WRITE = {
    *_BOTH,
    "topic",
    "includeHeaders",
    "exactlyOnce",
    "transactionalIdPrefix",
    "kafka.acks",
    "kafka.compression.type",
    "kafka.batch.size",
    "kafka.transaction.timeout.ms",
    "valueSchema",
    "valueSubject",
    "schema.registry.url",
    "schema.registry.basic.auth.user.info",
}
STREAM_WRITE = BATCH_WRITE
_SPARKS_OWN = {"path", "checkpointlocation", "queryname", "outputmode"}
"""What Spark hands to a source or sink though it is for itself."""

_NAMES = {name.lower(): name for name in BATCH_READ | STREAM_READ | BATCH_WRITE}
_DURATION = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*")
_UNIT_S = {None: 0.001, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
LEAST_FETCH_BYTES = 1024


class Options:
    """Options as given, read by name and kind.  Invalid says what is wrong with one."""

    def __init__(self, given: Mapping[str, str], allowed: Iterable[str], use: str) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        known = {name.lower(): name for name in allowed}
        for name in self._given:
            if name not in known and name not in _SPARKS_OWN:
                _refuse(name, known, use)

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def required(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise Invalid(f"the option {name} is missing")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise Invalid(f"the option {name} is {value!r}, not true or false")
        return value.lower() == "true"

    def whole(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return default
        if not re.fullmatch(r"-?\d{1,18}", value.strip()) or int(value) < least:
            raise Invalid(f"the option {name} is {value!r}, not a whole number of at least {least}")
        return int(value)

    def number(self, name: str, default: int, least: int = 1) -> int:
        found = self.whole(name, default, least)
        assert found is not None
        return found

    def choice(self, name: str, choices: Mapping[str, int] | Iterable[str], default: str) -> str:
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise Invalid(f"the option {name} is {value!r}, not one of {', '.join(choices)}")
        return value

    def duration_s(self, name: str, default_s: float) -> float:
        value = self.text(name)
        if value is None:
            return default_s
        match = _DURATION.fullmatch(value)
        if match is None:
            raise Invalid(f"the option {name} is {value!r}, not a time such as 15m, 30s or 500ms")
        return int(match[1]) * _UNIT_S[match[2]]

    def one_of(self, *names: str) -> tuple[str, str]:
        """The one of `names` that is given, and its value."""
        given = [(name, value) for name in names if (value := self.text(name)) is not None]
        if not given:
            raise Invalid(f"one of these options is needed: {', '.join(names)}")
        if len(given) > 1:
            raise Invalid(f"only one of these options can be given: {', '.join(name for name, _ in given)}")
        return given[0]


def _refuse(name: str, known: Mapping[str, str], use: str) -> NoReturn:
    if name in _NAMES:
        raise Invalid(f"the option {_NAMES[name]} has no meaning for {use}")
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = (
        f"; did you mean {known[near[0]]}?" if near else f"; there are: {', '.join(sorted(known.values()))}"
    )
    raise Invalid(f"there is no option {name} for {use}{hint}")


def settings(options: Options) -> Settings:
    """How the cluster is reached."""
    protocol = (options.text("kafka.security.protocol") or "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise Invalid(f"kafka.security.protocol is {protocol}: only PLAINTEXT is there yet")
    timeout_ms = options.number("kafka.request.timeout.ms", 30_000)
    return Settings(
        options.required("kafka.bootstrap.servers"),
        options.text("kafka.client.id") or "anabranch-spark",
        timeout_ms / 1000,
    )


class WriteOptions(NamedTuple):
    """How rows become records.  Travels to executors."""

    settings: Settings
    topic: str | None
    include_headers: bool
    exactly_once: bool
    id_prefix: str
    acks: int
    codec: int
    batch_bytes: int
    transaction_timeout_ms: int
    values: "Values | None" = None
    """How values are made by a schema, if they are."""

    @property
    def value_columns(self) -> tuple[str, ...] | None:
        """What values are made of, if not of one column."""
        return None if self.values is None else self.values.columns


_ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}


def write_options(options: Options) -> WriteOptions:
    exactly_once = options.flag("exactlyOnce", True)
    acks = _ACKS[options.choice("kafka.acks", _ACKS, "all")]
    if exactly_once and acks != -1:
        raise Invalid("kafka.acks must be all while exactlyOnce is true")
    return WriteOptions(
        settings(options),
        options.text("topic"),
        options.flag("includeHeaders", True),
        exactly_once,
        options.text("transactionalIdPrefix") or "anabranch-spark",
        acks,
        CODECS.index(options.choice("kafka.compression.type", CODECS, "none")),
        options.number("kafka.batch.size", 512 << 10, least=LEAST_FETCH_BYTES),
        options.number("kafka.transaction.timeout.ms", 15 * 60_000),
    )
