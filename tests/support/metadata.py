"""Contents of metadata nodes, without what the store adds to them."""

from anabranch.meta.store import Versioned


def content(value: Versioned | None) -> tuple[bytes, int] | None:
    """Data and version of a node, if it is there."""
    return None if value is None else (value.data, value.version)


def contents(scanned: list[tuple[str, Versioned]]) -> list[tuple[str, tuple[bytes, int]]]:
    return [(path, (value.data, value.version)) for path, value in scanned]
