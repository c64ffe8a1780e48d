"""/metrics of a real broker while real clients of both protocols produce and consume."""

import urllib.request
from pathlib import Path

import confluent_kafka as ck
import pulsar
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from tests.support.broker import BrokerProcess

TOPICS = "kafka_server_brokertopicmetrics_"
REQUESTS = "kafka_network_requestmetrics_"
STAGES = ("requestqueue", "local", "remote", "responsequeue")
BATCH_HEADER = 61

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scrape:
    def __init__(self, broker: BrokerProcess) -> None:
        with urllib.request.urlopen(f"{broker.admin}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        self.samples: Samples = {}
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                place = one.name, frozenset(one.labels.items())
                assert place not in self.samples, "each series once"
                self.samples[place] = one.value

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]


def test_a_broker_at_work(tmp_path: Path) -> None:
    with BrokerProcess(
        tmp_path, {"log.flush.interval.messages": "1", "anabranch.metrics.max.topics": "1"}
    ) as broker:
        before = Scrape(broker)
        assert before(TOPICS + "messagesin_total") == 0
        sizes = produce(broker, messages=30)
        consume(broker, messages=30)
        after = Scrape(broker)
        assert after(TOPICS + "messagesin_total", topic="orders") == 30
        assert after(TOPICS + "messagesin_total") >= 30, "and what the broker itself has written"
        stored = after(TOPICS + "bytesin_total", topic="orders")
        assert sizes + BATCH_HEADER <= stored <= sizes + 30 * (BATCH_HEADER + 20)
        assert after(TOPICS + "bytesout_total", topic="orders") == stored, "all of it was read once"
        assert after(TOPICS + "bytesout_total") == stored
        assert after(TOPICS + "failedproducerequests_total") == 0
        check_requests(after)
        assert after("kafka_log_logflushstats_logflushrateandtimems_count") >= 1
        assert after("kafka_log_logflushstats_logflushrateandtimems_sum") > 0
        assert after("anabranch_event_loop_lag_seconds_count") > before(
            "anabranch_event_loop_lag_seconds_count"
        )
        assert after("anabranch_metadata_session_state", state="connected") == 1
        assert after("process_cpu_seconds_total") > before("process_cpu_seconds_total")

        through_pulsar(broker)
        last = Scrape(broker)
        assert (last("pulsar_in_messages_total"), last("pulsar_in_bytes_total") > 10_000) == (10, True)
        assert (last("pulsar_out_messages_total"), last("pulsar_out_bytes_total") > 10_000) == (10, True)
        assert last("kafka_server_socket_server_metrics_connection_creation_total", listener="pulsar") >= 1
        assert len(last.samples) < 2000


def check_requests(found: Scrape) -> None:
    produced = found(REQUESTS + "requests_total", request="Produce")
    assert 1 <= produced <= 30
    assert found(TOPICS + "totalproducerequests_total") == produced
    assert found(REQUESTS + "totaltimems_count", request="Produce") == produced
    assert found(REQUESTS + "remotetimems_sum", request="Produce") > 0, "it waited for the flush"
    for name in ("Produce", "FetchConsumer", "Metadata", "ApiVersions"):
        total = found(REQUESTS + "totaltimems_sum", request=name)
        parts = sum(found(f"{REQUESTS}{stage}timems_sum", request=name) for stage in STAGES)
        assert total > 0
        assert abs(total - parts) < 0.001 + total / 1000, f"the stages of {name} add up"
        for stage in (*STAGES, "total"):
            counted = found(f"{REQUESTS}{stage}timems_count", request=name)
            assert counted == found(REQUESTS + "requests_total", request=name)
            assert counted == found(f"{REQUESTS}{stage}timems_bucket", request=name, le="+Inf")


def produce(broker: BrokerProcess, messages: int) -> int:
    """The bytes of their values."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for number in range(messages):
        producer.produce("orders", bytes([number]) * 1000)
    assert not producer.flush(60)
    return 1000 * messages


def consume(broker: BrokerProcess, messages: int) -> None:
    consumer = ck.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "billing", "enable.auto.commit": False}
    )
    consumer.assign([ck.TopicPartition("orders", 0, 0)])
    got = 0
    while got < messages:
        found = consumer.consume(messages, timeout=60)
        assert found, "nothing more came"
        assert not any(one.error() for one in found)
        got += len(found)
    consumer.close()


def through_pulsar(broker: BrokerProcess) -> None:
    client = pulsar.Client(broker.pulsar)
    consumer = client.subscribe("events", "reader")
    producer = client.create_producer("events")
    for number in range(10):
        producer.send(bytes([number]) * 1000)
    for _ in range(10):
        consumer.acknowledge(consumer.receive(60_000))
    client.close()
