"""Worlds: a node is given time, chance, threads, sockets and processes, and helps itself to none.

Only `base` has them (`base/world.py`).  Whoever needs one takes it as an argument, so that two nodes in one
process share nothing, and a simulation owns all of it.  Timers of the running loop are the loop's, which a
simulation brings, too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import PACKAGE, parsed, source_files

NO_NODE = ("base", "cli", "spark", "pipelines", "tables")
"""What makes a world, and programs of their own, which talk to nodes."""
YET_A_NODE = "tables/supervisor.py"

EXCEPTIONS = {
    "admin/listener.py": ({"open_server"}, "HTTP's library takes over transports of the loop's own"),
    "client/blocking.py": (
        {"Random", "create_connection", "socket", "time"},
        "the shell of programs that block; nodes have the one on an event loop",
    ),
    "log/compaction_keys.py": ({"urandom"}, "the worker's: nobody may guess it, and nothing depends on it"),
    "log/compaction_worker.py": ({"DirectDisk", "threading", "time"}, "a process of its own"),
    "meta/embedded.py": ({"thread_pool"}, "for who opens a store alone; a node says which"),
    "meta/zookeeper.py": ({"thread_pool"}, "for who opens a store alone; a node says which"),
    "meta/zookeeper_kazoo.py": (
        {"create_connection", "socket", "time"},
        "runs on threads and sockets of kazoo's own; a simulation has another store",
    ),
    "node.py": ({"real_world"}, "the world of a node in production is made here"),
    "schemas/protobuf.py": (
        {"subprocess"},
        "a compiler: the same text has the same answer, and nothing is kept",
    ),
}

MODULES = {"multiprocessing", "random", "secrets", "select", "socket", "subprocess", "threading", "time"}
HARMLESS = {"Random"}  # the class, to say what is passed in
NAMES = {
    *("uuid1", "uuid4", "urandom", "getrandom", "SystemRandom"),
    *("ThreadPoolExecutor", "ProcessPoolExecutor", "to_thread"),
    *("create_subprocess_exec", "create_subprocess_shell", "fork", "posix_spawn", "popen", "system"),
    *("open_connection", "start_server", "create_connection", "create_server", "create_datagram_endpoint"),
    "open_server",
    *("now", "utcnow", "today"),  # of datetime
    *("SystemClock", "DirectDisk", "TcpNetwork", "RealProcesses", "thread_pool", "real_world"),
}


def files_of_a_node() -> list[Path]:
    return [
        path
        for path in source_files()
        if path.relative_to(PACKAGE).parts[0] not in NO_NODE or name_of(path) == YET_A_NODE
    ]


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def reached(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What of the world `tree` helps itself to, and the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name in NAMES or (node.module in MODULES and alias.name not in HARMLESS):
                    yield (alias.name if alias.name in NAMES else str(node.module)), node.lineno
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield node.attr, node.lineno
        elif isinstance(node, ast.Call) and _is_own(node):
            yield ast.unparse(node.func), node.lineno


def _is_own(call: ast.Call) -> bool:
    """A generator or a thread of one's own, though it comes by a harmless name."""
    name = ast.unparse(call.func).rpartition(".")[2]
    if name == "run_in_executor":
        return isinstance(call.args[0], ast.Constant)  # None: the loop's own pool, which nodes would share
    return name == "Random"


@pytest.mark.parametrize("path", files_of_a_node(), ids=name_of)
def test_a_node_reaches_the_world_by_what_it_was_given(path: Path) -> None:
    allowed, _ = EXCEPTIONS.get(name_of(path), (set(), ""))
    strays = [f"{name_of(path)}:{line} {what}" for what, line in reached(parsed(path)) if what not in allowed]
    assert not strays, f"take it as an argument (base/world.py), or say why not: {strays}"


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exceptions_are_still_needed(name: str) -> None:
    used = {what for what, _ in reached(parsed(PACKAGE / name))}
    assert EXCEPTIONS[name][0] <= used


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "from time import monotonic",
        "from uuid import uuid4",
        "os.urandom(8)",
        "from random import choice",
        "from random import Random\nRandom(1)",
        "from concurrent.futures import ThreadPoolExecutor",
        "loop.run_in_executor(None, work)",
        "asyncio.to_thread(work)",
        "datetime.now()",
        "loop.create_server(door)",
        "from anabranch.base.disk import DirectDisk",
    ],
)
def test_it_would_be_found(code: str) -> None:
    assert list(reached(ast.parse(code)))


def test_what_is_passed_in_is_fine() -> None:
    code = (
        "from random import Random\nfrom uuid import UUID\nloop.run_in_executor(threads, work)\nloop.time()"
    )
    assert not list(reached(ast.parse(code)))
