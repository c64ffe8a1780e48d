"""`anabranch topic`, `produce`, `consume` and `log dump` against a broker, as processes."""

import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess
from tests.support.command import PROGRAM, anabranch, from_json, from_json_lines

_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("cli"), {"auto.create.topics.enable": "false"}) as started:
        yield started


@pytest.fixture
def run(broker: BrokerProcess) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    def with_bootstrap(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
        return anabranch(*arguments, bootstrap=broker.bootstrap, **options)  # type: ignore[arg-type]

    return with_bootstrap


@pytest.fixture
def topic(run: Callable[..., object]) -> str:
    """A fresh topic with three partitions."""
    name = f"topic-{next(_numbers)}"
    run("topic", "create", name, "--partitions", "3")
    return name


Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_the_life_of_a_topic(run: Run) -> None:
    assert run("topic", "create", "life", "-p", "2", "-c", "retention.ms=60000").stdout == "created life\n"
    assert {"name": "life", "partitions": 2} in from_json(run("topic", "list", "--json"))
    run("topic", "alter", "life", "-p", "5", "-c", "max.message.bytes=2000", "--unset", "retention.ms")
    (described,) = from_json(run("topic", "describe", "life", "--json"))
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2, 3, 4]
    assert {(p["start"], p["end"]) for p in described["partitions"]} == {(0, 0)}
    assert {(p["lw"], p["hw"], p["leo"]) for p in described["partitions"]} == {(0, 0, 0)}
    assert all(p["lag"] == {"1": 0} for p in described["partitions"])
    assert described["configs"] == {"max.message.bytes": "2000"}
    assert "max.message.bytes=2000" in run("topic", "describe", "life").stdout
    assert run("topic", "delete", "life").stdout == "deleted life\n"
    assert "life" not in [row["name"] for row in from_json(run("topic", "list", "--json"))]


def test_how_far_the_logs_of_several_topics_are(run: Run, topic: str) -> None:
    """Also that they are shown in the order in which they were asked for, each as often."""
    run("topic", "create", f"{topic}-b", "-p", "1")
    run("produce", f"{topic}-b", stdin="a\nb\nc\n")
    shown = run("topic", "describe", f"{topic}-b", topic, f"{topic}-b").stdout.splitlines()
    assert [line.split()[0] for line in shown if " id " in line] == [f"{topic}-b", topic, f"{topic}-b"]
    assert shown[1].split() == ["partition", "leader", "replicas", "isr", "osr", "lw", "hw", "leo", "lag"]
    assert shown[2].split() == ["0", "1", "1", "1", "0", "3", "3", "1:0"], "nobody is out of sync"


def test_topics_that_are_or_are_not_there(run: Run, topic: str) -> None:
    assert "already exists" in run("topic", "create", topic, exit_code=1).stderr
    made = from_json(run("topic", "create", topic, "--if-not-exists", "--json"))
    assert made == [{"name": topic, "created": False}]
    for command in (["describe"], ["delete"]):
        assert "no topic" in run("topic", *command, "absent", exit_code=1).stderr
    run("topic", "delete", "absent", "--if-exists")
    assert "no such topic" in run("topic", "alter", "absent", "-p", "9", exit_code=1).stderr


def test_what_the_broker_refuses_is_one_line(run: Run, topic: str) -> None:
    for arguments in (
        ["create", "in/valid"],
        ["create", "t", "-p", "0"],
        ["create", "t", "-c", "no.such=1"],
        ["create", "t", "-r", "3"],
        ["alter", topic, "-p", "1"],
        ["alter", topic, "-c", "retention.ms=soon"],
    ):
        refused = run("topic", *arguments, exit_code=1).stderr
        assert refused.startswith("anabranch: ")
        assert len(refused.splitlines()) == 1, refused


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_there_and_back(run: Run, topic: str, codec: str) -> None:
    lines = "".join(f"key-{i % 7}:value {i}\n" for i in range(5000))
    sent = from_json(run("produce", topic, "-K", ":", "-z", codec, "--idempotent", "--json", stdin=lines))
    assert (sent["sent"], sent["failed"]) == (5000, 0)
    records = from_json_lines(run("consume", topic, "--json"))
    assert len(records) == 5000
    by_key: dict[str, list[int]] = {}
    for record in records:
        by_key.setdefault(record["key"], []).append(int(record["value"].split()[1]))
    assert by_key == {f"key-{k}": list(range(k, 5000, 7)) for k in range(7)}


def test_what_a_record_carries(run: Run, topic: str) -> None:
    run("produce", topic, "-v", "é", "-k", "who", "-H", "a=1", "-H", "b=x=y", "-p", "2")
    run("produce", topic, "-p", "2", "-K", "|", "--null", "NIL", stdin="gone|NIL\n|\n")
    first, second, third = from_json_lines(run("consume", topic, "--format", "json"))
    assert first | {"timestamp": 0} == {
        "topic": topic,
        "partition": 2,
        "offset": 0,
        "timestamp": 0,
        "timestamp_type": "CreateTime",
        "key": "who",
        "value": "é",
        "headers": [["a", "1"], ["b", "x=y"]],
    }
    assert (second["key"], second["value"]) == ("gone", None)
    assert (third["key"], third["value"]) == ("", "")
    shown = run("consume", topic, "-k", "-o", "-t", "-H").stdout.splitlines()
    assert shown[0].endswith("Z\t2:0\ta=1,b=x=y\twho\té")
    assert shown[1].endswith("\t2:1\t-\tgone\tnull")


def test_lines_of_a_file(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\n\nlast without end")
    run("produce", topic, "--file", str(file), "-p", "0", "--acks", "1")
    assert run("consume", topic).stdout == "one\n\nlast without end\n"
    assert "cannot read" in run("produce", topic, "--file", str(tmp_path / "absent"), exit_code=1).stderr


def test_acks_0_needs_no_answer(run: Run, topic: str) -> None:
    run("produce", topic, "-v", "shot in the dark", "--acks", "0")
    deadline = time.monotonic() + 60
    while run("consume", topic).stdout != "shot in the dark\n":
        assert time.monotonic() < deadline


def test_where_to_begin(run: Run, topic: str) -> None:
    run("produce", topic, "-p", "1", stdin="".join(f"{i}\n" for i in range(10)))
    middle_ms = from_json_lines(run("consume", topic, "--json"))[-1]["timestamp"] + 1
    time.sleep(0.05)
    run("produce", topic, "-p", "1", stdin="late\n")

    def read(*arguments: str) -> list[str]:
        return run("consume", topic, *arguments).stdout.split()

    assert read("--from", "7") == ["7", "8", "9", "late"]
    assert read("--from", "-2") == ["9", "late"]
    assert read("--from", f"@{middle_ms}") == ["late"]
    assert len(read("--from", "1h")) == 11
    assert read("--from", "end") == []
    assert read("--max", "2") == ["0", "1"]
    assert read("-p", "0") == []
    assert read("-p", "1", "-p", "2", "--from", "2020-01-01", "-n", "1") == ["0"]
    assert read("--from", "2999-01-01") == []


def test_follow(run: Run, broker: BrokerProcess, topic: str) -> None:
    reader = subprocess.Popen(
        [PROGRAM, "consume", topic, "--follow", "--bootstrap", broker.bootstrap],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    for word in ("one", "two"):
        run("produce", topic, "-v", word)
        assert reader.stdout.readline() == f"{word}\n"
    reader.terminate()
    assert reader.communicate(timeout=60) == ("", None)
    assert reader.returncode == 0


def test_a_reader_that_leaves_early(run: Run, broker: BrokerProcess, topic: str) -> None:
    run("produce", topic, stdin="x\n" * 50_000)
    command = f"'{PROGRAM}' consume {topic} --bootstrap {broker.bootstrap} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("x\n", "")


def test_producing_what_cannot_be(run: Run, topic: str) -> None:
    assert "no such topic" in run("produce", "absent", "-v", "x", exit_code=1).stderr
    assert "no such topic or partition" in run("produce", topic, "-v", "x", "-p", "7", exit_code=1).stderr
    too_large = run("produce", topic, stdin=f"{'x' * 100}\n{'y' * 1_100_000}\n", exit_code=1).stderr
    assert "1 record was not sent" in too_large
    assert "No such configuration" in run("produce", topic, "-v", "x", "-X", "no.such=1", exit_code=1).stderr


def test_consuming_what_cannot_be(run: Run, topic: str) -> None:
    assert "no topic 'absent'" in run("consume", "absent", exit_code=1).stderr
    assert "no partition 9" in run("consume", topic, "-p", "9", exit_code=2).stderr
    assert "no place in a topic" in run("consume", topic, "--from", "yesterday", exit_code=2).stderr


def test_nobody_there(tmp_path: Path) -> None:
    for arguments in (["topic", "list"], ["produce", "t", "-v", "x"], ["consume", "t"]):
        refused = anabranch(*arguments, bootstrap="127.0.0.1:1", exit_code=1).stderr.splitlines()
        assert refused[0] == "anabranch: no broker answers at 127.0.0.1:1"
        assert "anabranch standalone" in refused[1]


def test_the_log_behind_it_is_sound(run: Run, broker: BrokerProcess, topic: str) -> None:
    run("topic", "alter", topic, "-c", "segment.bytes=1048576", "-c", "index.interval.bytes=100")
    for codec in ("none", "lz4"):
        small = ("-X", "batch.num.messages=500", "-p", "1")
        run("produce", topic, "-z", codec, "--idempotent", *small, stdin=f"{'x' * 200}\n" * 15_000)
    folder = broker.data / "topics" / "public" / "default" / f"{topic}-1"
    found = from_json_lines(anabranch("log", "dump", str(folder), "--records", "--json"))
    assert sum(line["type"] == "record" for line in found) == 30_000
    assert sum(line["type"] == "index" for line in found) > 3
    assert sum(line["path"].endswith(".log") and line["type"] == "file" for line in found) > 2
    assert any(line["type"] == "timeindex" for line in found)
    anabranch("log", "dump", str(broker.data), "--summary")


def test_a_broker_that_goes_away(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as short_lived:
        anabranch("topic", "create", "t", bootstrap=short_lived.bootstrap)
        command = [PROGRAM, "produce", "t", "-X", "message.timeout.ms=8000", "-b", short_lived.bootstrap]
        producer = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert producer.stdin is not None
        producer.stdin.write("kept\n")
        producer.stdin.flush()
        deadline = time.monotonic() + 60
        while anabranch("consume", "t", "-b", short_lived.bootstrap, exit_code=None).stdout != "kept\n":
            assert time.monotonic() < deadline
        short_lived.stop()
        _, err = producer.communicate("lost\n" * 10, timeout=90)
    assert producer.returncode == 1
    assert "10 records were not sent" in err
    assert "does the broker still run?" in err
