import os
import pickle
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.spark.worker_process import Travels, acknowledge

DELAYED_S = 0.03  # the kernel waits 40 ms with an acknowledgement


class Carried(Travels):
    def __init__(self, value: int) -> None:
        self.value = value


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            yield client, accepted


def second_piece_s(ends: tuple[socket.socket, socket.socket], first: bytes) -> float:
    """How long the second piece of a message takes after the first was read, and taken apart, in a
    conversation whose pieces wait for acknowledgements."""
    sender, receiver = ends
    for _ in range(20):  # until the kernel takes it for a conversation, in which answers carry them
        sender.sendall(b"question")
        receiver.recv(100)
        receiver.sendall(b"answer")
        sender.recv(100)
    sender.sendall(first)
    sender.sendall(b"second")
    pickle.loads(receiver.recv(len(first)))
    started = time.monotonic()
    assert receiver.recv(100) == b"second"
    return time.monotonic() - started


@pytest.mark.parametrize("default_s", [None, 5.0])
@pytest.mark.parametrize("is_blocking", [False, True])
def test_sockets_stay_as_they_are(
    ends: tuple[socket.socket, socket.socket], default_s: float | None, is_blocking: bool
) -> None:
    os.set_blocking(ends[1].fileno(), is_blocking)
    socket.setdefaulttimeout(default_s)
    try:
        acknowledge()
    finally:
        socket.setdefaulttimeout(None)
    assert os.get_blocking(ends[1].fileno()) == is_blocking


def test_where_descriptors_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def listdir(path: str) -> list[str]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "listdir", listdir)
    assert pickle.loads(pickle.dumps(Carried(5))).value == 5


def test_it_travels_whole() -> None:
    assert pickle.loads(pickle.dumps(Carried(5))).value == 5


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is done")
def test_nothing_stays_open(ends: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    with (tmp_path / "file").open("w"), socket.socket(socket.AF_UNIX), socket.socket(type=socket.SOCK_DGRAM):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):  # a client that another test has left behind may open one meanwhile, or two
            acknowledge()
        assert len(os.listdir("/proc/self/fd")) - before < 50


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is done")
def test_what_follows_need_not_wait(ends: tuple[socket.socket, socket.socket]) -> None:
    plain, travelling = pickle.dumps(5), pickle.dumps(Carried(5))
    slow = max(second_piece_s(ends, plain) for _ in range(3))
    quick = min(second_piece_s(ends, travelling) for _ in range(3))
    assert slow > DELAYED_S
    assert quick < DELAYED_S
