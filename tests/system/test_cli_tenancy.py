"""`anabranch tenant`, `namespace` and `subscription` against a broker, as processes."""

import subprocess
from collections.abc import Callable, Iterator

import pulsar
import pytest

from tests.support.broker import BrokerProcess
from tests.support.command import anabranch, from_json

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("cli"), {"forceDeleteNamespaceAllowed": "true"}) as started:
        yield started


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    def with_http(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
        return anabranch(*arguments, "--http", broker.admin, **options)  # type: ignore[arg-type]

    return with_http


def test_tenants_and_namespaces(run: Run) -> None:
    assert run("tenant", "create", "mine", "--admin-role", "me").stdout == "created mine\n"
    assert from_json(run("tenant", "show", "mine", "--json")) == {
        "name": "mine",
        "adminRoles": ["me"],
        "allowedClusters": ["standalone"],
        "namespaces": [],
    }
    run("tenant", "update", "mine")
    assert "mine" in run("tenant", "list").stdout.split()
    run("namespace", "create", "mine/one", "--bundles", "2")
    assert from_json(run("namespace", "list", "mine", "--json")) == ["mine/one"]
    assert "public/default" in run("namespace", "list").stdout.split()
    run("namespace", "set-retention", "mine/one", "--time", "3h", "--size", "1G")
    run("namespace", "set-message-ttl", "mine/one", "90s")
    run("namespace", "set-deduplication", "mine/one", "true")
    quota = ("--size", "10M", "--time", "2h", "--policy", "producer_exception")
    run("namespace", "set-backlog-quota", "mine/one", *quota)
    run("namespace", "set", "mine/one", "maxProducersPerTopic", "3")
    policies = from_json(run("namespace", "policies", "mine/one"))
    assert policies["retention_policies"] == {"retentionTimeInMinutes": 180, "retentionSizeInMB": 1024}
    assert policies["message_ttl_in_seconds"] == 90
    assert policies["deduplicationEnabled"]
    assert policies["backlog_quota_map"]["destination_storage"]["limitSize"] == 10 << 20
    assert policies["backlog_quota_map"]["message_age"]["limitTime"] == 7200
    assert policies["max_producers_per_topic"] == 3
    run("namespace", "unset", "mine/one", "messageTTL")
    assert "message_ttl_in_seconds" not in from_json(run("namespace", "policies", "mine/one"))
    refused = run("tenant", "delete", "mine", exit_code=1)
    assert "namespaces" in refused.stderr
    run("namespace", "delete", "mine/one", "--force")
    run("tenant", "delete", "mine")
    assert "mine" not in run("tenant", "list").stdout.split()


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("namespace", "policies", "default"), 2, "tenant/namespace"),
        (("namespace", "policies", "no/where"), 1, "does not exist"),
        (("namespace", "set-retention", "public/default", "--time", "soon", "--size", "1"), 2, "duration"),
        (
            ("namespace", "set-retention", "public/default", "--time", "0", "--size", "1"),
            1,
            "Invalid retention",
        ),
        (("namespace", "set-retention", "public/default", "--time", "1h", "--size", "1x"), 2, "no size"),
        (("namespace", "set-backlog-quota", "public/default", "--policy", "producer_exception"), 2, "limit"),
        (("namespace", "set", "public/default", "messageTTL", "{"), 2, "no JSON"),
        (("namespace", "set", "public/default", "nothing", "1"), 1, "there is nothing"),
        (("subscription", "list", "none"), 1, "does not exist"),
        (("subscription", "list", "a/b"), 2, "none of"),
        (("subscription", "reset", "t", "s", "--to", "there"), 2, "no place"),
        (("tenant", "show", "nobody"), 1, "does not exist"),
    ],
)
def test_what_is_refused(run: Run, arguments: tuple[str, ...], code: int, complaint: str) -> None:
    assert complaint in run(*arguments, exit_code=code).stderr


def test_nobody_answers() -> None:
    done = anabranch("tenant", "list", "--http", "127.0.0.1:1", exit_code=1)
    assert "no broker answers HTTP at 127.0.0.1:1" in done.stderr
    assert "--http" in done.stderr


def test_subscriptions(broker: BrokerProcess, run: Run) -> None:
    client = pulsar.Client(broker.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer("orders", batching_enabled=False)
    run("subscription", "create", "orders", "s", "--earliest")
    for i in range(10):
        producer.send(b"%d" % i)
    client.close()

    def backlog() -> int:
        (row,) = from_json(run("subscription", "list", "orders", "--json"))
        return int(row["backlog"])

    assert backlog() == 10
    run("subscription", "skip", "orders", "s", "4")
    assert backlog() == 6
    run("subscription", "reset", "orders", "s", "--to", "earliest")
    assert backlog() == 10
    run("subscription", "reset", "orders", "s", "--to", "0:7")
    assert backlog() == 3
    run("subscription", "reset", "orders", "s", "--to", "1h")
    assert backlog() == 10
    run("subscription", "expire", "orders", "s", "1h")
    assert backlog() == 10
    run("subscription", "clear", "orders", "s")
    assert backlog() == 0
    assert "s" in run("subscription", "describe", "orders", "s").stdout
    assert from_json(run("subscription", "describe", "orders", "s", "--json"))["msgBacklog"] == 0
    assert "orders" in run("namespace", "topics", "public/default").stdout
    run("namespace", "unload", "public/default")
    run("subscription", "delete", "orders", "s")
    assert from_json(run("subscription", "list", "orders", "--json")) == []
