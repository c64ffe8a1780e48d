"""A start that fails leaves the data folder, and the process, as it found them."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.base.errors import Corrupt, Invalid
from anabranch.base.ids import TopicName
from anabranch.cluster.topics import NewTopic
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


async def test_a_start_that_is_cancelled_wherever_it_is(tmp_path: Path) -> None:
    first = node_on(tmp_path)
    await first.start()
    await first.stop()
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    turns = 0
    while True:
        node = node_on(tmp_path)
        starting = asyncio.ensure_future(node.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        if starting.done():
            break
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert (tmp_path / CLEAN_STOP).exists(), "nothing was written since the clean stop"
        turns += 1 + turns // 4
    assert turns > 10
    await starting
    await node.stop()
    assert await falls_to(descriptors, lambda: len(os.listdir("/proc/self/fd")))
    assert await falls_to(threads, threading.active_count)


async def test_a_recovery_that_is_cancelled(tmp_path: Path) -> None:
    """The next start does all of it, and the one after that trusts the logs again."""
    topics = [f"t{number}" for number in range(8)]
    node = node_on(tmp_path)
    await node.start()
    for topic in topics:
        await node.parts.cluster.create_topic(NewTopic(TopicName.from_kafka(topic)))
        node.parts.host.partition(topic, 0)
    await node.stop()
    (tmp_path / CLEAN_STOP).unlink()
    node = node_on(tmp_path)
    starting = asyncio.ensure_future(node.start())
    while not (opened := await opened_by(node)):
        assert not starting.done()
    assert opened < len(topics), "a stop waits for all of them"
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not (tmp_path / CLEAN_STOP).exists()
    node = node_on(tmp_path)
    await node.start()
    assert await opened_by(node) >= len(topics), "the logs were trusted"
    await node.stop()
    assert (tmp_path / CLEAN_STOP).exists()


async def opened_by(node: Node) -> int:
    """How many logs it has open by the next turn of the loop."""
    await asyncio.sleep(0)
    host = getattr(getattr(node, "parts", None), "host", None)
    return 0 if host is None else len(list(host.open_replicas()))


async def used_folder(data: Path) -> dict[str, bytes]:
    """A folder that a broker has used; its files but those of the metadata."""
    node = node_on(data)
    await node.start()
    await node.parts.cluster.create_topic(NewTopic(TopicName.from_kafka("orders")))
    node.parts.host.partition("orders", 0)
    await node.stop()
    return files_of(data)


def files_of(data: Path) -> dict[str, bytes]:
    paths = (path for path in data.rglob("*") if path.is_file() and path.name not in (".lock", "metadata"))
    return {str(path.relative_to(data)): path.read_bytes() for path in paths}


async def test_the_folder_of_another_broker(tmp_path: Path) -> None:
    before = await used_folder(tmp_path)
    with pytest.raises(Invalid, match=r"belongs to broker 1, and node\.id is 2: set node\.id=1"):
        await node_on(tmp_path, **{"node.id": "2"}).start()
    assert files_of(tmp_path) == before
    again = node_on(tmp_path)
    await again.start()
    await again.stop()


async def test_the_folder_of_another_cluster(tmp_path: Path) -> None:
    """As when the metadata was lost: nothing of the partitions may be touched."""
    before = await used_folder(tmp_path)
    kept = (tmp_path / "metadata").read_bytes()
    (tmp_path / "metadata").unlink()
    for _ in range(2):
        with pytest.raises(Invalid, match=r"belongs to cluster .* restore the metadata"):
            await node_on(tmp_path).start()
        assert files_of(tmp_path) == before
    (tmp_path / "metadata").write_bytes(kept)
    again = node_on(tmp_path)
    await again.start()
    assert again.parts.host.topic("orders") is not None
    await again.stop()


async def test_a_folder_of_an_older_format(tmp_path: Path) -> None:
    await used_folder(tmp_path)
    (tmp_path / "meta.properties").unlink()
    with pytest.raises(Invalid, match=r"no meta\.properties: it is of an older format"):
        await node_on(tmp_path).start()
    (tmp_path / "metadata").write_bytes(b"anabranch metadata 1\n")
    (tmp_path / "topics").rename(tmp_path / "away")
    with pytest.raises(Corrupt, match="metadata journal of format 1"):
        await node_on(tmp_path).start()
