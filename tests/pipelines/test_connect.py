"""The settings of a driver, and those that a server does not take.  No Spark."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from anabranch.pipelines import connect

CONNECT = "org.apache.spark.sql.connect.SparkConnectPlugin"


@pytest.mark.parametrize(
    ("given", "plugins"),
    [
        ({}, CONNECT),
        (
            {"spark.plugins": "com.example.Metrics, com.example.Audit"},
            f"com.example.Metrics,com.example.Audit,{CONNECT}",
        ),
        ({"spark.plugins": CONNECT}, CONNECT),
    ],
)
def test_plugins_of_a_project_stand_beside_ours(given: dict[str, str], plugins: str) -> None:
    assert connect.driver_settings(given)["spark.plugins"] == plugins


def test_a_project_s_settings_are_over_our_habits_and_under_our_needs() -> None:
    found = connect.driver_settings({"spark.log.level": "INFO", "spark.connect.grpc.binding.port": "1"})
    assert (found["spark.log.level"], found["spark.connect.grpc.binding.port"]) == ("INFO", "0")


class Server:
    """A session on a server; it keeps what is its driver's."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.conf = self

    def isModifiable(self, name: str) -> bool:
        return name.startswith("spark.sql.")

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value


def test_what_a_server_does_not_take_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Server()

    @contextmanager
    def connected(remote: str) -> Iterator[Any]:
        yield there

    monkeypatch.setattr(connect, "_connected", connected)
    monkeypatch.setattr(connect, "_knock", lambda remote: None)
    wanted = {"spark.jars.packages": "x", "spark.sql.shuffle.partitions": "2"}
    with connect.server("sc://there", wanted) as (_, fixed):
        assert fixed == ["spark.jars.packages"]
    assert there.settings == {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}


class Process:
    """That of a driver."""

    def __init__(self) -> None:
        self.code: int | None = None

    def wait(self, timeout: float) -> int:
        if self.code is None:
            raise subprocess.TimeoutExpired("java", timeout)
        return self.code


class Client:
    policies: list[Any]

    def set_retry_policies(self, policies: list[Any]) -> None:
        self.policies = policies


class Unavailable(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(("code", "how"), [(-9, "killed by SIGKILL"), (3, "its exit code is 3")])
def test_a_driver_is_asked_again_only_while_it_lives(code: int, how: str) -> None:
    process: Any = Process()
    client = Client()
    connect._give_up_with(connect.Jvm(None, process), client)
    (policy,) = client.policies
    assert policy.can_retry(Unavailable())
    assert not policy.can_retry(ValueError())
    process.code = code
    with pytest.raises(connect.SparkUnavailable, match=how):
        policy.can_retry(Unavailable())


def test_of_a_jvm_that_spark_submit_has_started_nothing_is_known() -> None:
    client = Client()
    connect._give_up_with(connect.Jvm(None, None), client)
    (policy,) = client.policies
    assert policy.can_retry(Unavailable())


def test_the_last_wishes_fail_only_with_a_jvm_that_lives() -> None:
    process: Any = Process()
    jvm = connect.Jvm(None, process)
    with pytest.raises(ConnectionRefusedError), jvm.unless_gone():
        raise ConnectionRefusedError
    process.code = 1
    with jvm.unless_gone():
        raise ConnectionRefusedError
