"""`anabranch produce --pulsar` and `consume --pulsar` against a broker, as processes."""

import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.support.broker import BrokerProcess
from tests.support.command import PROGRAM, anabranch, from_json, from_json_lines
from tests.support.stalls import Stalls

_numbers = count()
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("cli-pulsar")) as started:
        yield started


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    service = broker.pulsar.removeprefix("pulsar://")

    def with_service(command: str, *arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
        told = (command, "--pulsar", *arguments, "--service", service)
        return anabranch(*told, **options)  # type: ignore[arg-type]

    return with_service


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_there_and_back(run: Run, topic: str, codec: str) -> None:
    lines = [f"line {n}" for n in range(200)]
    sent = run("produce", topic, "-z", codec, "--json", stdin="\n".join(lines) + "\n")
    assert from_json(sent)["sent"] == 200
    assert run("consume", topic).stdout.splitlines() == lines


def test_keys_properties_and_places(run: Run, topic: str) -> None:
    run("produce", topic, "-K", ":", "-H", "kind=order", "-v", "alice:1", "-v", "bob:2")
    shown = run("consume", topic, "-k", "-H", "-o").stdout.splitlines()
    assert shown == ["0:0\tkind=order\talice\t1", "0:1\tkind=order\tbob\t2"]
    (first, _) = from_json_lines(run("consume", topic, "--json"))
    assert (first["offset"], first["key"], first["headers"]) == (0, "alice", [["kind", "order"]])


def test_a_subscription_goes_on_where_it_was(run: Run, topic: str) -> None:
    run("produce", topic, "-v", "1", "-v", "2", "-v", "3")
    assert run("consume", topic, "-S", "s", "-n", "1").stdout == "1\n"
    assert sorted(run("consume", topic, "-S", "s").stdout.split()) in (["1", "2", "3"], ["2", "3"])
    assert run("consume", topic, "-S", "s").stdout == ""


def test_from_somewhere(run: Run, topic: str) -> None:
    run("produce", topic, "-v", "old")
    assert run("consume", topic, "--from", "end").stdout == ""
    assert run("consume", topic, "--from", "1h").stdout == "old\n"
    assert run("consume", topic, "--from", "@0", "-n", "1").stdout == "old\n"
    assert "is no place" in run("consume", topic, "--from", "nowhere", exit_code=2).stderr


def test_what_kafka_wrote_is_there(run: Run, broker: BrokerProcess, topic: str) -> None:
    anabranch("produce", topic, "-k", "k", "-v", "from kafka", bootstrap=broker.bootstrap)
    assert run("consume", f"{topic}-partition-0", "-k").stdout == "k\tfrom kafka\n"


def test_following(broker: BrokerProcess, run: Run, topic: str) -> None:
    run("produce", topic, "-v", "first")
    service = broker.pulsar.removeprefix("pulsar://")
    command = [PROGRAM, "consume", "--pulsar", topic, "--follow", "--service", service]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "first\n"
        run("produce", topic, "-v", "second")
        assert following.stdout.readline() == "second\n"
        with Stalls() as stalls:
            started = time.monotonic()
            following.terminate()
            assert following.wait(60) == 0
            assert time.monotonic() - started < 5 + stalls.lost_s


def test_nobody_there() -> None:
    for command in ("produce", "consume"):
        failed = anabranch(command, "--pulsar", "t", "--service", "127.0.0.1:1", exit_code=1)
        assert "no broker answers" in failed.stderr
        assert (
            "is not HOST:PORT"
            in anabranch(command, "--pulsar", "t", "--service", "nowhere", exit_code=2).stderr
        )


def test_a_namespace_that_is_not_there(run: Run) -> None:
    assert "not there" in run("produce", "persistent://no/where/t", "-v", "x", exit_code=1).stderr
