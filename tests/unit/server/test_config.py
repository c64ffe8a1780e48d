import logging
import re
from pathlib import Path

import pytest

from anabranch.base.errors import Invalid, InvalidConfig
from anabranch.log.config import LogConfig
from anabranch.server.config import BROKER_OPTIONS, BrokerConfig, DynamicConfig, Layers
from anabranch.server.config_sections import Endpoint

# As DescribeConfigs of Apache Kafka 4.3.1 gives them for a broker: default, type, read-only.
KAFKA = {
    "auto.create.topics.enable": ("true", 1, True),
    "broker.rack": (None, 2, True),
    "connections.max.idle.ms": ("600000", 5, True),
    "default.replication.factor": ("1", 3, True),
    "delete.topic.enable": ("true", 1, True),
    "fetch.max.bytes": ("57671680", 3, True),
    "log.cleaner.backoff.ms": ("15000", 5, False),
    "log.cleaner.dedupe.buffer.size": ("134217728", 5, False),
    "log.cleaner.delete.retention.ms": ("86400000", 5, False),
    "log.cleaner.enable": ("true", 1, True),
    "log.cleaner.io.max.bytes.per.second": ("1.7976931348623157E308", 6, False),
    "log.cleaner.min.cleanable.ratio": ("0.5", 6, False),
    "log.cleaner.threads": ("1", 3, False),
    "log.flush.interval.ms": (None, 5, False),
    "log.flush.offset.checkpoint.interval.ms": ("60000", 3, True),
    "log.flush.scheduler.interval.ms": ("9223372036854775807", 5, True),
    "log.flush.start.offset.checkpoint.interval.ms": ("60000", 3, True),
    "log.retention.check.interval.ms": ("300000", 5, True),
    "log.retention.hours": ("168", 3, True),
    "log.retention.minutes": (None, 3, True),
    "log.retention.ms": (None, 5, False),
    "log.roll.hours": ("168", 3, True),
    "log.roll.jitter.hours": ("0", 3, True),
    "log.roll.jitter.ms": (None, 5, False),
    "log.roll.ms": (None, 5, False),
    "max.connections": ("2147483647", 3, False),
    "max.connections.per.ip": ("2147483647", 3, False),
    "max.incremental.fetch.session.cache.slots": ("1000", 3, True),
    "message.max.bytes": ("1048588", 3, False),
    "num.partitions": ("1", 3, True),
    "num.recovery.threads.per.data.dir": ("2", 3, False),
    "producer.id.expiration.ms": ("86400000", 3, False),
    "socket.listen.backlog.size": ("50", 3, True),
    "socket.receive.buffer.bytes": ("102400", 3, True),
    "socket.request.max.bytes": ("104857600", 3, True),
    "socket.send.buffer.bytes": ("102400", 3, True),
    "telemetry.max.bytes": ("1048576", 3, True),
}


def built(**options: str) -> BrokerConfig:
    return BrokerConfig.build(
        Layers({name.replace("_", "."): text for name, text in options.items()}, {}, {})
    )


@pytest.mark.parametrize("name", KAFKA)
def test_types_and_defaults_are_kafkas(name: str) -> None:
    declared = BROKER_OPTIONS[name]
    assert (declared.dump(declared.default), int(declared.kind), not declared.dynamic) == KAFKA[name]


def test_every_option_says_what_it_does_in_a_line() -> None:
    for declared in BROKER_OPTIONS.values():
        assert declared.doc.endswith(".")
        assert "\n" not in declared.doc


def test_the_data_folder() -> None:
    assert built(log_dirs="/tmp/x").node.data_dir == Path("/tmp/x")
    with pytest.raises(InvalidConfig, match="Exactly one folder"):
        built(log_dirs="/tmp/x,/tmp/y")


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://127.0.0.1:0", Endpoint("127.0.0.1", 0)),
        ("PLAINTEXT://broker-1.example.com:9092", Endpoint("broker-1.example.com", 9092)),
        ("PLAINTEXT://[::1]:9092", Endpoint("::1", 9092)),
    ],
)
def test_listeners(text: str, endpoint: Endpoint) -> None:
    sockets = built(listeners=text).sockets
    assert sockets.bind == endpoint
    assert sockets.advertised is None
    assert built(advertised_listeners=text).sockets.advertised == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:9092",
        "SSL://a:1",
        "PLAINTEXT://a:70000",
        "PLAINTEXT://a",
        "PLAINTEXT://a:1,PLAINTEXT://b:2",
    ],
)
def test_listeners_that_cannot_be(text: str) -> None:
    with pytest.raises(InvalidConfig, match="listeners: Value must be one listener of the form"):
        built(listeners=text)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_clients_are_not_told_to_connect_everywhere(host: str) -> None:
    with pytest.raises(InvalidConfig, match=r"set advertised\.listeners"):
        built(listeners=f"PLAINTEXT://{host}:9092")
    built(listeners=f"PLAINTEXT://{host}:9092", advertised_listeners="PLAINTEXT://127.0.0.1:9092")


def test_a_listener_for_brokers() -> None:
    two = {"listeners": "PLAINTEXT://127.0.0.1:9092,internal://127.0.0.1:9093"}
    sockets = built(inter_broker_listener_name="INTERNAL", **two).sockets
    assert sockets.bind == Endpoint("127.0.0.1", 9092)
    assert sockets.internal_bind == Endpoint("127.0.0.1", 9093)
    assert sockets.internal_advertised is None
    told = built(
        inter_broker_listener_name="INTERNAL",
        advertised_listeners="INTERNAL://inside:1,PLAINTEXT://outside:2",
        listener_security_protocol_map="INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        **two,
    ).sockets
    assert (told.advertised, told.internal_advertised) == (Endpoint("outside", 2), Endpoint("inside", 1))
    other = built(inter_broker_listener_name="PLAINTEXT", **two).sockets
    assert (other.bind.port, other.internal_bind) == (9093, Endpoint("127.0.0.1", 9092))
    moved = "PLAINTEXT://[::1]:1,INTERNAL://127.0.0.1:9093"
    assert sockets.listeners_with("::1", 1) == moved
    assert built(listeners=moved, inter_broker_listener_name="INTERNAL").sockets.bind == Endpoint("::1", 1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"listeners": "PLAINTEXT://a:1,INTERNAL://b:2"}, "must say which of the listeners"),
        (
            {"listeners": "PLAINTEXT://a:1,INTERNAL://b:2", "inter_broker_listener_name": "OTHER"},
            "must say which of the listeners",
        ),
        ({"inter_broker_listener_name": "INTERNAL"}, "must say which of the listeners"),
        (
            {"advertised_listeners": "PLAINTEXT://a:1,INTERNAL://b:2"},
            "advertised.listeners has INTERNAL",
        ),
        (
            {"listeners": "PLAINTEXT://a:1,INTERNAL://:2", "inter_broker_listener_name": "INTERNAL"},
            "set advertised.listeners=INTERNAL://",
        ),
        ({"listener_security_protocol_map": "INTERNAL:SSL"}, "INTERNAL:SSL is not"),
    ],
)
def test_listeners_that_do_not_go_together(settings: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(says)):
        built(**settings)


def test_the_session_timeout_has_two_names() -> None:
    assert built().node.session_timeout_ms == 9_000
    assert built(broker_session_timeout_ms="5000").node.session_timeout_ms == 5_000
    assert built(zookeeper_session_timeout_ms="6000").node.session_timeout_ms == 6_000


def test_the_budget_holds_the_largest_request() -> None:
    with pytest.raises(InvalidConfig, match=r"queued\.max\.request\.bytes"):
        BrokerConfig.build(Layers({"queued.max.request.bytes": "1000"}, {}, {}))
    BrokerConfig.build(Layers({"queued.max.request.bytes": "-1"}, {}, {}))


def dynamic(**static: str) -> DynamicConfig:
    return DynamicConfig(built(**static))


def test_overrides_of_this_broker_win_over_those_of_all_and_they_over_the_start() -> None:
    config = dynamic(message_max_bytes="1")
    assert config.current.log.max_message_bytes == 1
    config.apply({"message.max.bytes": "2", "max.connections": "7"}, {})
    assert config.current.log.max_message_bytes == 2
    config.apply({"message.max.bytes": "2", "max.connections": "7"}, {"message.max.bytes": "3"})
    assert config.current.log.max_message_bytes == 3
    assert config.current.sockets.max_connections == 7
    config.apply({}, {})
    assert config.current.log.max_message_bytes == 1


def test_a_dynamic_time_wins_over_a_coarser_one_of_the_start() -> None:
    config = dynamic(log_retention_hours="1")
    config.apply({"log.retention.ms": "5"}, {})
    assert config.current.log.retention_ms == 5


def test_changes_are_told_once() -> None:
    config = dynamic()
    told: list[tuple[int, int]] = []
    config.on_change(lambda old, new: told.append((old.log.max_message_bytes, new.log.max_message_bytes)))
    config.apply({}, {})
    config.apply({"message.max.bytes": "2"}, {})
    config.apply({"message.max.bytes": "2"}, {})
    assert told == [(1048588, 2)]


def test_the_configuration_of_a_topic_follows_the_brokers() -> None:
    config = dynamic()
    assert config.log_config({}) is config.current.log
    assert config.log_config({"retention.ms": "9"}) == LogConfig(retention_ms=9)
    config.apply({"log.segment.bytes": "2000000"}, {})
    assert config.log_config({"retention.ms": "9"}) == LogConfig(retention_ms=9, segment_bytes=2_000_000)
    with pytest.raises(InvalidConfig):
        config.log_config({"retention.ms": "x"})


def test_a_stored_override_that_is_illegal_by_now_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    config = dynamic()
    config.apply({"log.cleaner.max.compaction.lag.ms": "5"}, {})
    stored = {"min.compaction.lag.ms": "10", "of.another.version": "x", "retention.ms": "9"}
    assert config.stored_log_config(stored) == LogConfig(retention_ms=9, max_compaction_lag_ms=5)
    assert "passed over" in caplog.text
    assert config.stored_log_config({"retention.ms": "7"}).retention_ms == 7


def test_what_cannot_be_used_is_passed_over_and_said(caplog: pytest.LogCaptureFixture) -> None:
    config = dynamic()
    overrides = {"message.max.bytes": "-1", "num.partitions": "9", "some.plugin": "x", "max.connections": "7"}
    with caplog.at_level(logging.WARNING):
        config.apply(overrides, {})
        config.apply(dict(overrides), {})
    assert config.current.log.max_message_bytes == 1048588
    assert config.current.topics.num_partitions == 1
    assert config.current.sockets.max_connections == 7
    assert config.current.layers.dynamic_default == {"some.plugin": "x", "max.connections": "7"}
    assert len(caplog.records) == 3


def test_overrides_that_contradict_each_other_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    config = dynamic()
    before = config.current
    config.apply({"log.cleaner.threads": "8"}, {"log.cleaner.dedupe.buffer.size": "2000000"})
    assert config.current is before
    assert "contradict" in caplog.text


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (
            {"num.partitions": "3", "node.id": "4"},
            r"Cannot update these configs dynamically: \[node\.id, num\.partitions\]",
        ),
        ({"log.retention.hours": "1"}, r"Cannot update these configs dynamically: \[log\.retention\.hours\]"),
        (
            {"log.retention.ms": "abc"},
            r"Invalid value abc for configuration log\.retention\.ms: Not a number of type LONG",
        ),
        ({"log.cleaner.dedupe.buffer.size": "1"}, r"must be more than 1 MiB"),
        ({"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"}, "conflict"),
    ],
)
@pytest.mark.parametrize("for_all", [True, False])
def test_illegal_overrides_are_the_requests_fault(
    overrides: dict[str, str], complaint: str, for_all: bool
) -> None:
    with pytest.raises(Invalid, match=complaint) as caught:
        dynamic().check(overrides, for_all=for_all)
    assert not isinstance(caught.value, InvalidConfig)


def test_an_illegal_override_for_all_where_this_broker_has_its_own() -> None:
    config = dynamic()
    config.apply({}, {"log.retention.ms": "5"})
    with pytest.raises(Invalid, match="abc"):
        config.check({"log.retention.ms": "abc"}, for_all=True)


def test_legal_overrides_and_names_that_are_no_options() -> None:
    dynamic().check(
        {"log.retention.ms": "5", "sasl.kerberos.min.time.before.relogin": "58000"}, for_all=False
    )


def test_pulsar_clients_are_told_an_address_they_can_reach() -> None:
    everywhere = {"bindAddress": "0.0.0.0"}
    with pytest.raises(InvalidConfig, match="advertisedAddress"):
        BrokerConfig.build(Layers(everywhere, {}, {}))
    told = BrokerConfig.build(Layers({**everywhere, "advertisedAddress": "broker.example.com"}, {}, {}))
    assert told.pulsar.advertised_address == "broker.example.com"
    for option, value in (("clusterName", "a b"), ("brokerServicePort", "70000"), ("webServicePort", "-2")):
        with pytest.raises(InvalidConfig, match=option):
            BrokerConfig.build(Layers({option: value}, {}, {}))
