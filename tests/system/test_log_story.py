"""What `--verbose` tells of a broker: its start, every topic made and deleted, its stop, one line each."""

import re
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess

_LINE = re.compile(r"\S+ \S+ (INFO|WARNING|ERROR|CRITICAL) (anabranch[.\w]*): (.*)")


class VerboseBroker(BrokerProcess):
    def command(self) -> list[str]:
        return [*super().command(), "--verbose"]


def test_the_log_tells_the_story_of_a_topic_and_of_its_broker(tmp_path: Path) -> None:
    with VerboseBroker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "keeper"})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(500):
            producer.produce("orders", str(number), partition=number % 2)
        assert producer.flush(60) == 0
        admin.delete_topics(["orders"])["orders"].result(60)
        broker.stop()
        kafka, data = broker.bootstrap, broker.data.absolute()
    lines = [
        found.groups() for line in broker.log.read_text().splitlines() if (found := _LINE.fullmatch(line))
    ]
    assert {level for level, _, _ in lines} == {"INFO"}
    told = [text for _, _, text in lines]
    keeper = r"asked for by client 'keeper' at 127\.0\.0\.1:\d+"
    story = [
        rf"broker 1: starting, data folder {re.escape(str(data))}",
        rf"broker 1: started, serves kafka at {re.escape(kafka)}, pulsar at \S+, http at \S+",
        rf"orders: created with 2 partitions of 1 replica, id \S{{22}}, {keeper}",
        rf"orders: deleted with its 2 partitions, id \S{{22}}, {keeper}",
        r"broker 1: stopping, takes no new requests",
        r"broker 1: stopped",
    ]
    places = [[at for at, text in enumerate(told) if re.fullmatch(line, text)] for line in story]
    assert [len(found) for found in places] == [1] * len(story), told
    assert places == sorted(places), told
    about_partitions = [text for text in told if text.startswith(("orders-0:", "orders-1:"))]
    assert len(set(about_partitions)) == len(about_partitions), "a thing is told once"
    assert len(told) < 40, "nothing is told per request"
