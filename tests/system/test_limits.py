"""Limits as configured, and the ways a broker ends: connections, silence, descriptors, signals, a rival."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.compat.clients import raw
from tests.support.broker import BrokerProcess
from tests.support.hostile import Bystander, memory_mb, open_files, open_sockets, unexpected
from tests.support.stalls import Stalls
from tests.system.test_kill import SCRIPT, acknowledged, read_partition

IDLE_MS = "5000"  # longer than a busy machine keeps from talking who wants to


@contextmanager
def running(folder: Path, **settings: str) -> Iterator[BrokerProcess]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with BrokerProcess(folder, named) as broker:
        yield broker
        assert not unexpected(broker.log), unexpected(broker.log)


def connected(broker: BrokerProcess) -> socket.socket:
    host, port = broker.bootstrap.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 60)


def is_served(client: socket.socket) -> bool:
    """Whether a connection gets an answer to ApiVersions."""
    try:
        client.sendall(bytes.fromhex("0000000b 0012 0000 00000001 0001 78"))
        return len(client.recv(4096)) > 100
    except ConnectionError:
        return False


def is_open(broker: BrokerProcess) -> bool:
    """Whether a new connection is served."""
    with connected(broker) as client:
        return is_served(client)


def eventually(holds: Callable[[], object], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# --- connections


@pytest.mark.parametrize("setting", ["max_connections", "max_connections_per_ip"])
def test_no_more_connections_than_allowed(tmp_path: Path, setting: str) -> None:
    with running(tmp_path, **{setting: "10"}) as broker:
        clients = [connected(broker) for _ in range(10)]
        assert all(is_served(client) for client in clients)
        for _ in range(5):
            with connected(broker) as refused:
                assert not is_served(refused)
        assert all(is_served(client) for client in clients)
        clients.pop().close()
        assert eventually(lambda: is_open(broker))
        assert "too many connections" in broker.log.read_text()
        for client in clients:
            client.close()


def test_silent_connections_are_closed_and_others_are_not(tmp_path: Path) -> None:
    with running(tmp_path, connections_max_idle_ms=IDLE_MS) as broker, Bystander(broker.bootstrap) as other:
        silent, talks = connected(broker), connected(broker)
        assert is_served(silent)
        silent.settimeout(0.2)

        def closed() -> bool:
            assert is_served(talks)
            try:
                return silent.recv(10) == b""
            except TimeoutError:
                return False
            except ConnectionResetError:
                return True

        assert eventually(closed)
        assert is_served(talks)
        other.check()
        for client in (silent, talks):
            client.close()


def test_a_client_that_takes_nothing_is_closed_for_silence(tmp_path: Path) -> None:
    with running(tmp_path, connections_max_idle_ms=IDLE_MS) as broker, Bystander(broker.bootstrap) as other:
        with raw.Connection(broker.bootstrap) as client:
            topic_id = raw.create_topic(client, "large")
            for _ in range(20):
                raw.produce(client, "large", raw.batch([bytes(900_000)]))
        stuck = raw.Connection(broker.bootstrap)
        stuck._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.create_topic(stuck, "another")  # so that it counts
        links = open_sockets(broker.pid)
        stuck.send(raw.FETCH, 16, raw.fetch_request([(topic_id, [(0, 0)])], partition_max_bytes=50 << 20))
        assert eventually(lambda: open_sockets(broker.pid) < links, 60), "it is still there"
        other.check()
        stuck.close()


def test_half_sent_requests_share_a_budget_and_lose_it_to_others(tmp_path: Path) -> None:
    """Two hundred clients begin a request of a megabyte; one wants to finish one."""
    limits = {"socket_request_max_bytes": str(2 << 20), "queued_max_request_bytes": "20500000"}
    with running(tmp_path, **limits) as broker, Bystander(broker.bootstrap) as other:
        before = memory_mb(broker.pid)
        begun = struct.pack(">ihhih", 1 << 20, 0, 9, 1, -1) + bytes(40_000)
        sitting = [connected(broker) for _ in range(200)]
        for client in sitting:
            client.sendall(begun)
        time.sleep(0.5)
        assert memory_mb(broker.pid) - before < 70
        other.check()
        with raw.Connection(broker.bootstrap, timeout_s=60) as client:
            raw.create_topic(client, "large")
            assert raw.produce(client, "large", raw.batch([bytes(900_000)])).error_code == 0
        assert "stalled inside a request" in broker.log.read_text()
        other.check()
        for client in sitting:
            client.close()


def test_descriptors_of_files_are_bounded(tmp_path: Path) -> None:
    with (
        running(tmp_path, anabranch_max_open_files="64") as broker,
        raw.Connection(broker.bootstrap) as client,
    ):
        raw.create_topic(client, "wide", partitions=500)
        for turn in range(2):
            for partition in range(500):
                told = raw.produce(client, "wide", raw.batch([b"%d" % partition]), partition=partition)
                assert (told.error_code, told.base_offset) == (0, turn)
            assert open_files(broker.pid, broker.data) <= 64 + 20
        topic_id = raw.topic_id(client, "wide")
        where = [(partition, 0) for partition in range(500)]
        answer = client.call(raw.FETCH, 16, raw.fetch_request([(topic_id, where)]))
        assert len(answer.responses[0].partitions) == 500
        assert all(raw.batches(part.records) for part in answer.responses[0].partitions)
        assert open_files(broker.pid, broker.data) <= 64 + 20


def test_out_of_descriptors(tmp_path: Path) -> None:
    """The process may have no more: new connections fail, those there are go on, and later all is well."""
    wrapper = ("prlimit", "--nofile=200:200")
    with BrokerProcess(tmp_path, {"anabranch.max.open.files": "64"}, wrapper) as broker:
        with Bystander(broker.bootstrap) as other:
            clients = []
            for _ in range(200):
                client = socket.socket()
                client.settimeout(0.5)
                host, port = broker.bootstrap.rsplit(":", 1)
                with suppress(OSError):
                    client.connect((host, int(port)))
                clients.append(client)
            other.check()
            for client in clients:
                client.close()
            assert eventually(lambda: is_open(broker))
            other.check()
        broker.stop()


# --- the end


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as broker, Bystander(broker.bootstrap) as other:
        program = str(Path(sys.executable).with_name("anabranch"))
        second = subprocess.run(
            [program, "standalone", "--data", str(broker.data), "--kafka-port", "0"],
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert second.returncode == 1
        assert f"in use by process {broker.pid}" in second.stderr
        assert "--data" in second.stderr
        assert "Traceback" not in second.stderr
        other.check()


def test_sigterm_under_load_loses_nothing_and_leaves_the_mark(tmp_path: Path) -> None:
    mark = tmp_path / "data" / ".kafka_cleanshutdown"
    with running(tmp_path) as broker:
        with raw.Connection(broker.bootstrap) as client:
            raw.create_topic(client, "load", partitions=3)
        ledgers = [tmp_path / f"ledger-{number}" for number in range(2)]
        producers = [
            subprocess.Popen(
                [sys.executable, str(SCRIPT), "--bootstrap", broker.bootstrap, "--topic", "load"]
                + ["--partitions", "3", "--name", ledger.name, "--ledger", str(ledger)]
                + (["--idempotent"] if number else [])
            )
            for number, ledger in enumerate(ledgers)
        ]
        try:
            assert eventually(lambda: all(ledger.exists() and ledger.stat().st_size for ledger in ledgers))
            for _ in range(3):
                time.sleep(1)
                with Stalls() as stalls:
                    assert broker.stop() < 4 + stalls.lost_s
                assert mark.exists()
                broker.start()
                assert not mark.exists()
            time.sleep(0.5)
            for process in producers:
                process.send_signal(signal.SIGTERM)
            for process in producers:
                assert process.wait(120) == 0
        finally:
            for process in producers:
                process.kill()
                process.wait()
        assert "not clean" not in broker.log.read_text()
        rows = [read_partition(broker.bootstrap, "load", partition) for partition in range(3)]
        found = {
            (name, number, partition, offset)
            for partition, part in enumerate(rows)
            for offset, name, number in part
        }
        for ledger in ledgers:
            for number, (partition, offset) in acknowledged(ledger).items():
                assert offset < 0 or (ledger.name, number, partition, offset) in found


def test_a_stop_answers_those_who_wait(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        client = raw.Connection(broker.bootstrap)
        topic_id = raw.create_topic(client, "quiet")
        wait = raw.fetch_request([(topic_id, [(0, 0)])], max_wait=60_000)
        waiting = client.send(raw.FETCH, 16, wait)
        behind = client.send(raw.API_VERSIONS, 0)
        with raw.Connection(broker.bootstrap) as other:  # by the time that it is served the others were read
            for _ in range(3):
                other.call(raw.API_VERSIONS, 0)
        time.sleep(0.2)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        assert client.receive(raw.FETCH, 16, waiting).error_code == 0
        assert client.receive(raw.API_VERSIONS, 0, behind).error_code == 0
        stopping.join(60)
        assert client.receive_frame() is None
        client.close()


def test_a_stop_does_not_wait_for_clients_that_do_not_read(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        client = raw.Connection(broker.bootstrap)
        topic_id = raw.create_topic(client, "large")
        for _ in range(20):
            raw.produce(client, "large", raw.batch([bytes(900_000)]))
        client.send(raw.FETCH, 16, raw.fetch_request([(topic_id, [(0, 0)])], partition_max_bytes=50 << 20))
        time.sleep(0.2)
        with Stalls() as stalls:
            assert broker.stop() < 8 + stalls.lost_s
        client.close()


def test_two_signals_end_it_at_once(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    process = broker._process
    assert process is not None
    os.kill(broker.pid, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    os.kill(broker.pid, signal.SIGCONT)
    assert process.wait(60) is not None
    broker._process = None
    with broker:
        assert json.loads((tmp_path / "ready.json").read_text())["pid"] == broker.pid
