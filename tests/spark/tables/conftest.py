"""A broker that leaves tables to the tests; nothing here can be judged on another."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spark.conftest import ELSEWHERE, SETTINGS, Topics
from tests.support.broker import BrokerProcess
from tests.support.tables import Tables, in_one_hour


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    if ELSEWHERE:
        pytest.skip("tables are ours")
    with BrokerProcess(tmp_path_factory.mktemp("tables-broker"), SETTINGS) as broker:
        yield broker
        assert broker.running, f"the broker died under test:\n{broker.last_lines()}"


@pytest.fixture(scope="module")
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap


@pytest.fixture(scope="module")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


@pytest.fixture(scope="module")
def tables(bootstrap: str) -> Tables:
    return Tables(bootstrap)


@pytest.fixture
def topic_in_files(topics: Topics, tables: Tables, tmp_path: Path) -> Callable[[int], str]:
    """Makes a topic of one partition whose records, so many, are in one file in `tmp_path / "table"`."""

    def make(records: int) -> str:
        topic = topics.create(1)
        topics.fill(topic, range(records), 1, in_one_hour(records))
        tables.enable(topic, tmp_path / "table")
        tables.round()
        return topic

    return make
