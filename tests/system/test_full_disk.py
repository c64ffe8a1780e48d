"""A disk that is full: writers are told, readers and everything else go on, and nothing acknowledged is lost.

Two ways to be full.  A file system of its own, small enough to fill, where the machine lets us mount one; and
a limit on the size of files, which every machine has: there the files of other topics can still grow.
"""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.clients import raw
from tests.support.broker import BrokerProcess
from tests.support.hostile import unexpected

STORAGE_ERROR = 56
BATCH = raw.batch([bytes(range(256)) * 200])  # 50 KB


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 24 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system of our own here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


class Ledger:
    """What was acknowledged, by topic."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.acked: dict[str, int] = {}

    def write(self, client: raw.Connection, topic: str, batch: bytes = BATCH) -> int:
        """Produce once; the error code."""
        told = raw.produce(client, topic, batch)
        if not told.error_code:
            assert told.base_offset == self.acked.get(topic, 0)
            self.acked[topic] = told.base_offset + 1
        return int(told.error_code)

    def check(self) -> None:
        """Every record that was acknowledged can be read."""
        with raw.Connection(self._broker.bootstrap, timeout_s=60) as client:
            for topic, count in self.acked.items():
                assert readable(client, topic, count) >= count, topic


def readable(client: raw.Connection, topic: str, upto: int) -> int:
    topic_id, offset = raw.topic_id(client, topic), 0
    while offset < upto:
        answer = client.call(raw.FETCH, 16, raw.fetch_request([(topic_id, [(0, offset)])]))
        found = raw.batches(answer.responses[0].partitions[0].records)
        if not found:
            break
        assert found[0][0] == offset
        offset = found[-1][1] + 1
    return offset


def fill(ledger: Ledger, client: raw.Connection, topic: str, most: int = 2000) -> None:
    """Produce until the disk is full, then make sure that it stays so."""
    for _ in range(most):
        code = ledger.write(client, topic)
        if code:
            assert code == STORAGE_ERROR
            break
    else:
        raise AssertionError("the disk does not get full")
    for _ in range(20):
        assert ledger.write(client, topic) == STORAGE_ERROR


def create(client: raw.Connection, topic: str) -> int:
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    made = client.call(raw.CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 5000})
    return int(made.topics[0].error_code)


def delete(client: raw.Connection, topic: str) -> int:
    done = client.call(raw.DELETE_TOPICS, 4, {"topic_names": [topic], "timeout": 5000})
    return int(done.responses[0].error_code)


def everything_else_works(client: raw.Connection, *topics: str) -> None:
    found = client.call(raw.METADATA, 12, {"topics": None}).topics
    assert {topic.name for topic in found} >= set(topics)
    asked = [{"name": t, "partitions": [{"partition_index": 0, "timestamp": -1}]} for t in topics]
    offsets: Any = client.call(raw.LIST_OFFSETS, 7, {"replica_id": -1, "topics": asked})
    assert all(p.error_code == 0 for topic in offsets.topics for p in topic.partitions)
    assert client.call(raw.DESCRIBE_CLUSTER, 0, {}).error_code == 0


def test_a_full_file_system(small_disk: Path, tmp_path: Path) -> None:
    # The rounds of upkeep must survive it as well.
    settings = {
        "log.retention.check.interval.ms": "500",
        "log.flush.offset.checkpoint.interval.ms": "200",
        "log.flush.start.offset.checkpoint.interval.ms": "200",
        "log.segment.bytes": str(2 << 20),
    }
    broker = BrokerProcess(tmp_path, settings)
    broker.data = small_disk / "data"
    with broker:
        ledger = Ledger(broker)
        with raw.Connection(broker.bootstrap, timeout_s=60) as client:
            for topic in ("a", "b", "victim"):
                raw.create_topic(client, topic)
            for _ in range(20):
                for topic in ("a", "b"):
                    assert ledger.write(client, topic) == 0
            assert raw.produce(client, "victim", BATCH).error_code == 0
            ballast = small_disk / "ballast"
            ballast.write_bytes(bytes(8 << 20))
            fill(ledger, client, "a")
            exhausted(small_disk)
            assert ledger.write(client, "b") == STORAGE_ERROR
            ledger.check()
            everything_else_works(client, "a", "b", "victim")
            assert create(client, "impossible") in (0, 7, STORAGE_ERROR, -1)
            time.sleep(1.5)  # rounds of upkeep
            assert ledger.write(client, "b") == STORAGE_ERROR
            ledger.check()

            ballast.unlink()
            (small_disk / "crumb").unlink()
            for topic in ("a", "b"):
                assert ledger.write(client, topic) == 0
            assert create(client, "later") == 0
            assert ledger.write(client, "later") == 0
            ledger.check()

            ballast.write_bytes(bytes(4 << 20))
            fill(ledger, client, "b")
            exhausted(small_disk)
            assert delete(client, "victim") == 0, "room is made by deleting"
            ledger.check()
        broker.kill()
        ballast.unlink()
        (small_disk / "crumb").unlink()
        broker.start()
        ledger.check()
        with raw.Connection(broker.bootstrap, timeout_s=60) as client:
            for topic in ("a", "b", "later"):
                assert ledger.write(client, topic) == 0
        broker.stop()
        broker.start()
        ledger.check()
        assert "refused" in broker.log.read_text(), "the log says what is wrong"
        assert not unexpected(broker.log), unexpected(broker.log)


def exhausted(disk: Path) -> None:
    """Take the last bytes as well: what is left after a large write failed is enough for small ones."""
    with (disk / "crumb").open("ab", buffering=0) as crumb:
        for size in (65536, 4096, 1):
            try:
                while True:
                    crumb.write(bytes(size))
            except OSError:
                continue
    assert shutil.disk_usage(disk).free < 4096


def test_a_stop_and_a_start_on_a_full_file_system(small_disk: Path, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.data = small_disk / "data"
    with broker:
        ledger = Ledger(broker)
        with raw.Connection(broker.bootstrap) as client:
            raw.create_topic(client, "a")
            (small_disk / "ballast").write_bytes(bytes(16 << 20))
            fill(ledger, client, "a")
            exhausted(small_disk)
        broker.stop()
        (small_disk / "crumb").unlink()
        broker.start()  # there is room for what a start needs, and no more
        ledger.check()
        with raw.Connection(broker.bootstrap) as client:
            fill(ledger, client, "a")
            (small_disk / "ballast").unlink()
            assert ledger.write(client, "a") == 0
        broker.stop()
        broker.start()
        ledger.check()
        assert not unexpected(broker.log), unexpected(broker.log)


def test_a_topic_whose_files_cannot_grow(tmp_path: Path) -> None:
    limit = 3 << 20
    broker = BrokerProcess(tmp_path, wrapper=("prlimit", f"--fsize={limit}:"))
    with broker:
        ledger = Ledger(broker)
        with raw.Connection(broker.bootstrap, timeout_s=60) as client:
            for topic in ("a", "b"):
                raw.create_topic(client, topic)
            fill(ledger, client, "a")
            assert ledger.acked["a"] * 50_000 > limit - 100_000
            for _ in range(20):
                assert ledger.write(client, "b") == 0, "another topic has room"
            assert ledger.write(client, "a", raw.batch([b"small"])) in (0, STORAGE_ERROR)
            ledger.check()
            everything_else_works(client, "a", "b")
            subprocess.run(["prlimit", f"--pid={broker.pid}", "--fsize=unlimited:"], check=True)
            for topic in ("a", "b"):
                assert ledger.write(client, topic) == 0
            ledger.check()
        broker.kill()
        broker.start()
        ledger.check()
        assert not unexpected(broker.log), unexpected(broker.log)


def test_idempotent_producers_on_a_full_disk(tmp_path: Path) -> None:
    """What failed is sent again: once there is room it is there once, in order."""
    broker = BrokerProcess(tmp_path, wrapper=("prlimit", f"--fsize={1 << 20}:"))
    with broker, raw.Connection(broker.bootstrap, timeout_s=60) as client:
        raw.create_topic(client, "a")
        identity = client.call(raw.INIT_PRODUCER_ID, 4, {"transactional_id": None, "producer_id": -1})
        sequence, failures = 0, 0
        while sequence < 40:
            batch = raw.batch(
                [b"%d" % sequence + bytes(50_000)], producer=(identity.producer_id, 0, sequence)
            )
            told = raw.produce(client, "a", batch)
            if told.error_code:
                assert told.error_code == STORAGE_ERROR
                failures += 1
                if failures == 10:
                    subprocess.run(["prlimit", f"--pid={broker.pid}", "--fsize=unlimited:"], check=True)
                continue
            assert told.base_offset == sequence
            sequence += 1
        assert failures == 10
        again = raw.batch([b"%d" % 39 + bytes(50_000)], producer=(identity.producer_id, 0, 39))
        assert raw.produce(client, "a", again).base_offset == 39
        assert readable(client, "a", 40) == 40
        assert not unexpected(broker.log), unexpected(broker.log)
