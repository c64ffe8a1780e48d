"""Lines of the log begin with their subject, and name a partition as Kafka does: `orders-3`.

Looked at are the parts that speak of partitions, topics and subscriptions only.
"""

import ast
from collections.abc import Iterator

from tests.tidy.tree import PACKAGE, parsed, relative, source_files

PARTS = ("groups", "log", "subscriptions", "topics")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
LOGGERS = {"log", "_log", "_trouble", "_unreadable"}


def log_calls() -> Iterator[tuple[str, str, list[ast.expr]]]:
    """Where each stands, its message and its arguments."""
    for path in source_files():
        if path.relative_to(PACKAGE).parts[0] not in PARTS:
            continue
        for node in ast.walk(parsed(path)):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=logger), attr=level),
                    args=[ast.Constant(value=str(message)), *told],
                ) if logger in LOGGERS and level in LEVELS:
                    yield f"{relative(path)}:{node.lineno}", message, told


def test_a_line_begins_with_its_subject() -> None:
    """`%s: `, `%s-%d: ` or `transaction %s: `, then what happened."""
    found = list(log_calls())
    assert len(found) > 30, "where have they gone?"
    without = [(place, message) for place, message, _ in found if "%" not in message.partition(": ")[0]]
    assert not without, "no subject"


def test_no_whole_path_stands_for_a_partition() -> None:
    """`partition_name` and `LocalLog.name` give `orders-3`; a file of it is told by its own name."""
    paths = [
        (place, ast.unparse(argument))
        for place, _, told in log_calls()
        for argument in told
        if ast.unparse(argument).rpartition(".")[2].lstrip("_") in ("folder", "path", "place")
    ]
    assert not paths, "use anabranch.log.paths.partition_name"
