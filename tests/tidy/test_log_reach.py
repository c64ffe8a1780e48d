"""Logs: nobody but `partition` and `log` reaches through a partition or a replica to the log behind it.

What others need of a log, the partition gives them; so there may be partitions without one.
"""

import ast
from pathlib import Path

import pytest

from tests.tidy.tree import PACKAGE, parsed, source_files

INSIDE = ("log", "partition", "cli", "spark", "pipelines", "tables")  # the last four are no part of a node


@pytest.mark.parametrize(
    "path",
    [path for path in source_files() if path.relative_to(PACKAGE).parts[0] not in INSIDE],
    ids=lambda path: path.relative_to(PACKAGE).as_posix(),
)
def test_the_log_is_the_partitions(path: Path) -> None:
    reached = [
        f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr == "log" and not _is_config(node)
    ]
    assert not reached, "ask the partition for it (partition/partition.py, places.py, standing.py)"


def _is_config(node: ast.Attribute) -> bool:
    """`dynamic.current.log`: the section of the configuration."""
    return isinstance(node.value, ast.Attribute) and node.value.attr in ("current", "_config", "config")
