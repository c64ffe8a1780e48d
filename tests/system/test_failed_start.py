"""A start that fails leaves the data folder, and the process, as it found them."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.node import Node, this_machine
from anabranch.partition.folders import CLEAN_STOP
from anabranch.server.config_file import load

ANY_PORTS = {"listeners": "PLAINTEXT://127.0.0.1:0", "brokerServicePort": "0", "webServicePort": "0"}


def node_on(data: Path, **ports: str) -> Node:
    return Node(load(None, {}, {"log.dirs": str(data), **ANY_PORTS, **ports}), this_machine())


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


async def falls_to(most: int, count: Callable[[], int]) -> bool:
    """Whether there are no more than so many, at last.  A client that another test in this process has left
    behind may come and go as well; what the start has left would stay."""
    for _ in range(600):
        if count() <= most:
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.mark.parametrize("option", list(ANY_PORTS))
async def test_a_port_that_is_taken(tmp_path: Path, taken_port: int, option: str) -> None:
    taken = {option: ANY_PORTS[option].removesuffix("0") + str(taken_port)}
    first = node_on(tmp_path)
    await first.start()
    await first.stop()
    assert (tmp_path / CLEAN_STOP).exists()
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(3):
        with pytest.raises(OSError, match="in use"):
            await node_on(tmp_path, **taken).start()
        assert (tmp_path / CLEAN_STOP).exists(), "nothing was written since the clean stop"
        assert await falls_to(descriptors, lambda: len(os.listdir("/proc/self/fd")))
        assert await falls_to(threads, threading.active_count)
    again = node_on(tmp_path)
    await again.start()
    await again.stop()
