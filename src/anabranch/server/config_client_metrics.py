"""A subscription to clients' metrics (KIP-714): which metrics, how often, from which clients.

    metrics      prefixes of metric names; "*" alone is all of them, nothing is none
    interval.ms  how often a client pushes
    match        NAME=REGEX, all of which must match: client_id=app-.*,client_software_name=.*Java.*

A client without its own answer to a pattern's name does not match.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.base.config import Kind, Option, option, options_of, section
from anabranch.base.errors import Invalid, InvalidConfig

_SELECTORS = frozenset(
    (
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    )
)
_LEAST_INTERVAL_MS, _MOST_INTERVAL_MS = 100, 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsConfig:
    metrics: tuple[str, ...] = option(
        "metrics", Kind.LIST, (), None, "Prefixes of the names of metrics that are asked for; * asks for all."
    )
    interval_ms: int = option(
        "interval.ms", Kind.INT, 300_000, None, "How often a client pushes its metrics."
    )
    match: tuple[str, ...] = option(
        "match", Kind.LIST, (), None, "Which clients are asked, NAME=REGEX; nothing asks all of them."
    )

    @classmethod
    def build(cls, overrides: Mapping[str, str]) -> "ClientMetricsConfig":
        """Invalid for a name that is none and an interval out of range, else InvalidConfig, as in Kafka."""
        for name in overrides:
            if name not in CLIENT_METRICS_OPTIONS:
                raise Invalid(f"Unknown client metrics configuration: {name}")
        config = section(cls, overrides)
        if not _LEAST_INTERVAL_MS <= config.interval_ms <= _MOST_INTERVAL_MS:
            raise Invalid(
                f"Invalid value {config.interval_ms} for interval.ms, interval must be between "
                f"{_LEAST_INTERVAL_MS} and {_MOST_INTERVAL_MS} (1 hour)"
            )
        config.patterns()
        return config

    def patterns(self) -> dict[str, re.Pattern[str]]:
        """What a client must look like, by what it is asked about; the last of a name counts."""
        return dict(map(_pattern, self.match))


CLIENT_METRICS_OPTIONS: Mapping[str, Option] = {
    declared.name: declared for declared in options_of(ClientMetricsConfig).values()
}


def _pattern(text: str) -> tuple[str, re.Pattern[str]]:
    name, equals, expression = text.partition("=")
    wrong = InvalidConfig(f"Illegal client matching pattern: {text}")
    if not equals or "=" in expression or not expression or name.strip() not in _SELECTORS:
        raise wrong
    try:
        return name.strip(), re.compile(expression.strip())
    except (re.error, RecursionError, OverflowError) as error:
        raise wrong from error
