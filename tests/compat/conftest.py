"""One broker for all tests of real clients, as a process of its own.

`bootstrap` is its address.  With ANABRANCH_COMPAT_BOOTSTRAP=HOST:PORT the tests run against the broker there
instead (Apache Kafka, to judge the judge); the tests that start and stop brokers are skipped then.  With
ANABRANCH_BROKER=double brokers are those whose partitions change hands (tests/support/double_broker.py), save
for tests marked `plain_broker`, which could not tell right from wrong there: they compare what depends on who
leads since when, or speak a protocol by hand and do not come back.

The broker is shared, so a test makes topics of its own: `name("orders")` is unused.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.compat.group_processes import Group
from tests.support.broker import BrokerProcess
from tests.support.double_broker import ON_DOUBLE, double
from tests.support.numbered import Numbered

ELSEWHERE = os.environ.get("ANABRANCH_COMPAT_BOOTSTRAP")
WRAPPER = double() if ON_DOUBLE else ()
if ON_DOUBLE:
    setattr(ck, "Producer", Numbered)  # noqa: B010  a class, which mypy would not have assigned


@pytest.fixture(scope="session")
def plain_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker
        assert broker.running, f"the broker died under test:\n{broker.last_lines()}"


@pytest.fixture(scope="session")
def double_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("double"), wrapper=WRAPPER) as broker:
        yield broker
        assert broker.running, f"the broker died under test:\n{broker.last_lines()}"


@pytest.fixture(scope="session")
def shared_broker(request: pytest.FixtureRequest) -> BrokerProcess:
    broker: BrokerProcess = request.getfixturevalue("double_broker" if ON_DOUBLE else "plain_broker")
    return broker


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    if ELSEWHERE:
        return ELSEWHERE
    broker: BrokerProcess = request.getfixturevalue("shared_broker")
    return broker.bootstrap


@pytest.fixture(scope="session")
def pulsar_url(shared_broker: BrokerProcess) -> str:
    return shared_broker.pulsar


@pytest.fixture(scope="session")
def admin_url(shared_broker: BrokerProcess) -> str:
    return shared_broker.admin


@pytest.fixture
def own_broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., BrokerProcess]]:
    """Brokers of one test: `own_broker(settings)` starts one; they end with the test."""
    if ELSEWHERE:
        pytest.skip("starts brokers of its own")
    brokers: list[BrokerProcess] = []
    wrapper = () if request.node.get_closest_marker("plain_broker") else WRAPPER

    def start(settings: dict[str, str] | None = None) -> BrokerProcess:
        folder = tmp_path / f"broker-{len(brokers)}"
        folder.mkdir()
        brokers.append(BrokerProcess(folder, settings, wrapper))
        brokers[-1].start()
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.kill()


@pytest.fixture
def group_of(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    """Groups of one test: `group_of(broker, "--client", "aiokafka")`; their members end with the test."""
    groups: list[Group] = []

    def make(broker: BrokerProcess, *arguments: str) -> Group:
        groups.append(Group(tmp_path, broker.bootstrap, arguments))
        return groups[-1]

    yield make
    for group in groups:
        group.end()


@pytest.fixture
def name() -> Callable[[str], str]:
    prefix = uuid.uuid4().hex[:8]
    return lambda topic: f"{prefix}-{topic}"
