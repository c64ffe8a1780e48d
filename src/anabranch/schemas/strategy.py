"""Compatibility strategy: how far a new schema may differ from those before it.

    BACKWARD    a reader with the new one can read what was written by the last one
    FORWARD     a reader with the last one can read what will be written by the new one
    FULL        both

_TRANSITIVE asks it of all versions before, not of the last alone.

Strategies have Pulsar's names.  Kafka's users know them as levels, by the same names but for NONE, which is
ALWAYS_COMPATIBLE; ALWAYS_INCOMPATIBLE is Pulsar's alone.
"""

from enum import Enum
from typing import NamedTuple

from anabranch.schemas.errors import InvalidLevel


class Strategy(Enum):
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def reads_old(self) -> bool:
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_old(self) -> bool:
        return self.value.startswith(("FORWARD", "FULL"))

    @property
    def is_transitive(self) -> bool:
        return self.value.endswith("TRANSITIVE")

    @property
    def level(self) -> str:
        """What Kafka's users call it, or what comes nearest."""
        return _LEVELS.get(self, self.value)

    @property
    def for_readers(self) -> "Strategy":
        """What is asked of a consumer's schema: that it can read, whatever is asked of writers."""
        return _FOR_READERS.get(self, self)


_FOR_READERS = {
    Strategy.FORWARD: Strategy.BACKWARD,
    Strategy.FORWARD_TRANSITIVE: Strategy.BACKWARD,
    Strategy.FULL: Strategy.BACKWARD,
    Strategy.FULL_TRANSITIVE: Strategy.BACKWARD_TRANSITIVE,
}

_LEVELS = {Strategy.ALWAYS_COMPATIBLE: "NONE", Strategy.ALWAYS_INCOMPATIBLE: "FULL_TRANSITIVE"}
_OF_LEVEL = {
    strategy.level: strategy for strategy in Strategy if strategy is not Strategy.ALWAYS_INCOMPATIBLE
}

_AUTO_UPDATE = {
    "AutoUpdateDisabled": Strategy.ALWAYS_INCOMPATIBLE,
    "AlwaysCompatible": Strategy.ALWAYS_COMPATIBLE,
    "Backward": Strategy.BACKWARD,
    "Forward": Strategy.FORWARD,
    "Full": Strategy.FULL,
    "BackwardTransitive": Strategy.BACKWARD_TRANSITIVE,
    "ForwardTransitive": Strategy.FORWARD_TRANSITIVE,
    "FullTransitive": Strategy.FULL_TRANSITIVE,
}
DEFAULT = Strategy.FULL
DEFAULT_FOR_KAFKA = Strategy.BACKWARD


class Rules(NamedTuple):
    """What holds for what Kafka's clients bring to a subject."""

    strategy: Strategy
    normalize: bool = False
    lenient: bool = False
    group: str | None = None


def said_of(*told: str | None) -> Strategy | None:
    """The first that says something, in either of the two spellings that Pulsar's policies have."""
    for name in filter(None, told):
        if name in Strategy.__members__:
            return Strategy[name]
        if name in _AUTO_UPDATE:
            return _AUTO_UPDATE[name]
    return None


def strategy_of(*told: str | None) -> Strategy:
    """The same, or what holds if none says anything."""
    return said_of(*told) or DEFAULT


def strategy_of_level(level: str) -> Strategy:
    """What Kafka's users mean by a level; InvalidLevel if it is none."""
    found = _OF_LEVEL.get(level.upper())
    if found is None:
        levels = ", ".join(sorted(_OF_LEVEL))
        raise InvalidLevel(f"{level[:100]!r} is no compatibility level; there are {levels}")
    return found
