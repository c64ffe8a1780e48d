"""How far a new schema may differ from those before it.

    BACKWARD    who knows the new one can read what was written by the last one
    FORWARD     who knows the last one can read what will be written by the new one
    FULL        both

_TRANSITIVE asks it of all versions before, not of the last alone.
"""

from enum import Enum


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
    def for_readers(self) -> "Strategy":
        """What is asked of a consumer's schema: that it can read, whatever is asked of writers."""
        return _FOR_READERS.get(self, self)


_FOR_READERS = {
    Strategy.FORWARD: Strategy.BACKWARD,
    Strategy.FORWARD_TRANSITIVE: Strategy.BACKWARD,
    Strategy.FULL: Strategy.BACKWARD,
    Strategy.FULL_TRANSITIVE: Strategy.BACKWARD_TRANSITIVE,
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


def strategy_of(*told: str | None) -> Strategy:
    """The first that says something, in either of the two spellings that Pulsar's policies have."""
    for name in filter(None, told):
        if name in Strategy.__members__:
            return Strategy[name]
        if name in _AUTO_UPDATE:
            return _AUTO_UPDATE[name]
    return DEFAULT
