"""Writes docs/configuration.md from the options that the code declares.  `make docs` runs it.

A test compares the page with what this would write, so the page cannot fall behind.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from anabranch.base.config import Option
from anabranch.log.config import BROKER_OPTIONS as LOG_OPTIONS
from anabranch.log.config import SYNONYMS, TOPIC_OPTIONS
from anabranch.server.config import BROKER_OPTIONS

PAGE = Path(__file__).with_suffix(".md")

HEAD = """\
# Configuration

Written by `make docs` from the options that the code declares; a test keeps it in step.

A broker is told things in four places. The later wins:

1. a file, `anabranch standalone --config FILE`: Kafka's `.properties`, or `.toml`
2. the environment: `ANABRANCH_LOG_RETENTION_HOURS=24`, the name in capitals, dots as underscores
3. flags: `--set log.retention.hours=24`; `--data` is `log.dirs`, `--host` and `--kafka-port` are `listeners`,
   `--pulsar-port` is `brokerServicePort`, `--http-port` is `webServicePort`
4. while it runs, by any Kafka admin client (`IncrementalAlterConfigs`), where "dynamic" says yes

Names, types, defaults and bounds are Kafka's where Kafka has the option, and Pulsar's where only Pulsar has
it (`likeThis`); names in `anabranch.` are ours.
A name that is no option is an error at the start, with the names that might have been meant.
"""
TOPIC_HEAD = """
## Topics

Given at creation (`anabranch topic create NAME --config retention.ms=60000`) or later, by `topic alter`.
What a topic does not say is decided by the broker option beside it.

| option | type | default | broker option | meaning |
| --- | --- | --- | --- | --- |
"""
BROKER_HEAD = """
## Brokers

| option | type | default | dynamic | meaning |
| --- | --- | --- | --- | --- |
"""
LOG_HEAD = """
## Brokers, on behalf of topics

| option | type | default | dynamic | meaning |
| --- | --- | --- | --- | --- |
"""


def page() -> str:
    own = {name: option for name, option in BROKER_OPTIONS.items() if name not in LOG_OPTIONS}
    return "".join(
        [
            HEAD,
            TOPIC_HEAD,
            *(_row(option, _synonyms(option)) for option in _sorted(TOPIC_OPTIONS)),
            BROKER_HEAD,
            *(_row(option, _dynamic(option)) for option in _sorted(own)),
            LOG_HEAD,
            *(_row(option, _dynamic(option)) for option in _sorted(LOG_OPTIONS)),
        ]
    )


def _sorted(options: Mapping[str, Option]) -> Iterable[Option]:
    return (options[name] for name in sorted(options))


def _row(option: Option, fourth: str) -> str:
    default = option.dump(option.default)
    shown = "" if default is None else f"`{default}`" if default else "empty"
    return f"| `{option.name}` | {option.kind.name.lower()} | {shown} | {fourth} | {option.doc} |\n"


def _dynamic(option: Option) -> str:
    return "yes" if option.dynamic else ""


def _synonyms(option: Option) -> str:
    return ", ".join(f"`{synonym.option.name}`" for synonym in SYNONYMS[option.name])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
