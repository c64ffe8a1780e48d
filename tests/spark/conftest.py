"""One broker and one Spark session for all tests here; a test makes topics of its own.

    spark          local mode, two cores, tasks tried again as on a cluster
    rows(topic)    a topic as a DataFrame
    topics         makes topics and fills them with a real client

With ANABRANCH_COMPAT_BOOTSTRAP=HOST:PORT the broker there is used instead: Apache Kafka, to judge the judge.
What starts no session (the client, the steps of an exactly-once write) needs no JVM and comes first.
"""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.session import session_builder
from tests.support.broker import BrokerProcess
from tests.support.schedule import ONE_SESSION, file_of

ELSEWHERE = os.environ.get("ANABRANCH_COMPAT_BOOTSTRAP")
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    # Tests maintain the tables they make; the broker would do it, too, and with one more JVM.
    "anabranch.table.maintain": "false",
}


@pytest.fixture(scope="session")
def spark_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("spark-broker"), SETTINGS) as broker:
        yield broker
        assert broker.running, f"the broker died under test:\n{broker.last_lines()}"


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    if ELSEWHERE:
        return ELSEWHERE
    broker: BrokerProcess = request.getfixturevalue("spark_broker")
    return broker.bootstrap


def new_session() -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = session_builder().master("local[2,3]").appName("tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = new_session()
    yield session
    session.stop()


class Topics:
    """Topics made and filled with a real client."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, partitions: int = 3, name: str = "", **config: str) -> str:
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        made = self._admin.create_topics([NewTopic(name, partitions, 1, config=config)])
        made[name].result(timeout=90)
        return name

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(timeout=90)

    def trim(self, name: str, partition: int, offset: int) -> None:
        """Remove the records before `offset`."""
        asked = self._admin.delete_records([TopicPartition(name, partition, offset)])
        for future in asked.values():
            future.result(timeout=90)

    def grow(self, name: str, partitions: int) -> None:
        from confluent_kafka.admin import NewPartitions

        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(timeout=90)

    def fill(
        self, name: str, numbers: Iterable[int], partitions: int = 3, first_ms: int = 0, **settings: Any
    ) -> None:
        """A record per number, its value, in the partition of its remainder; one per ms from `first_ms`."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, **settings})
        for count, number in enumerate(numbers):
            producer.produce(
                name,
                b"%d" % number,
                key=b"k%d" % (number % 7),
                partition=number % partitions,
                timestamp=first_ms and first_ms + count,  # 0 is now
            )
        assert producer.flush(90) == 0

    def values(self, name: str) -> list[bytes]:
        """All committed values, as a real client reads them."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        listed = consumer.list_topics(name, timeout=90).topics[name].partitions
        consumer.assign([TopicPartition(name, one, 0) for one in listed])
        found: list[bytes] = []
        ended: set[int] = set()
        while len(ended) < len(listed):
            for message in consumer.consume(500, 1.0):
                if message.error() is None:
                    found.append(message.value() or b"")
                elif message.error().name() == "_PARTITION_EOF":
                    ended.add(message.partition() or 0)
        consumer.close()
        return found


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


@pytest.fixture
def rows(spark: SparkSession, bootstrap: str) -> Callable[..., DataFrame]:
    """A topic as a DataFrame: `rows("orders", startingOffsets="earliest")`."""

    def read(topic: str, **options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        given |= {name.replace("__", "."): value for name, value in options.items()}
        return spark.read.format("anabranch").options(**given).load()

    return read


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            # An interrupted call leaves the connection to the JVM, and so all further tests, in disorder.
            item.add_marker(pytest.mark.timeout(1200))
            item.add_marker(pytest.mark.filterwarnings("ignore::UserWarning:pyspark"))
            shares_session = "spark" in getattr(item, "fixturenames", ())
            assert not shares_session or file_of(item.nodeid) in ONE_SESSION, (
                f"{item.nodeid}: see the schedule"
            )
