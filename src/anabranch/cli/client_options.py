"""Settings of the client, as `--client-option NAME=VALUE` names them: by Kafka's names, and librdkafka's.

    message.timeout.ms, delivery.timeout.ms     how long a record may take to be stored
    batch.size, batch.num.messages              when a batch is full
    message.max.bytes, max.request.size         the largest record
    fetch.max.bytes, max.partition.fetch.bytes  how much comes at once
    fetch.wait.max.ms, fetch.max.wait.ms        how long the broker waits for a record
    request.timeout.ms, client.id

A name that is none of a command's is an error, not passed over.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.options import name_values

_INT32_MAX = (1 << 31) - 1


class ProduceSettings(NamedTuple):
    client_id: str = "anabranch-cli"
    timeout_ms: int = 300_000  # librdkafka's message.timeout.ms
    batch_bytes: int = 1_000_000
    batch_records: int = 10_000
    record_bytes: int = 1_000_000


class ConsumeSettings(NamedTuple):
    client_id: str = "anabranch-cli"
    timeout_ms: int = 60_000
    fetch_bytes: int = 4 << 20
    wait_ms: int = 500


_PRODUCE = {
    "client.id": "client_id",
    "message.timeout.ms": "timeout_ms",
    "delivery.timeout.ms": "timeout_ms",
    "batch.size": "batch_bytes",
    "batch.num.messages": "batch_records",
    "message.max.bytes": "record_bytes",
    "max.request.size": "record_bytes",
}
_CONSUME = {
    "client.id": "client_id",
    "request.timeout.ms": "timeout_ms",
    "fetch.max.bytes": "fetch_bytes",
    "fetch.message.max.bytes": "fetch_bytes",
    "max.partition.fetch.bytes": "fetch_bytes",
    "fetch.wait.max.ms": "wait_ms",
    "fetch.max.wait.ms": "wait_ms",
}


def produce_settings(given: Sequence[str]) -> ProduceSettings:
    """CommandError if one is not there, Misuse if a value is none."""
    return ProduceSettings(**_parsed(given, _PRODUCE, ProduceSettings()._asdict()))  # type: ignore[arg-type]


def consume_settings(given: Sequence[str]) -> ConsumeSettings:
    """CommandError if one is not there, Misuse if a value is none."""
    return ConsumeSettings(**_parsed(given, _CONSUME, ConsumeSettings()._asdict()))  # type: ignore[arg-type]


def _parsed(
    given: Sequence[str], known: Mapping[str, str], defaults: dict[str, str | int]
) -> dict[str, str | int]:
    values = dict(defaults)
    for name, text in name_values(given, "--client-option").items():
        field = known.get(name)
        if field is None:
            raise CommandError(f'No such configuration property: "{name}"', f"there are: {', '.join(known)}")
        parse: Callable[[str], str | int] = str if isinstance(defaults[field], str) else _number(name)
        values[field] = parse(text)
    return values


def _number(name: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not 0 < int(text) <= _INT32_MAX:
            raise Misuse(f"--client-option {name}={text} is not a number from 1 to {_INT32_MAX}")
        return int(text)

    return parse
