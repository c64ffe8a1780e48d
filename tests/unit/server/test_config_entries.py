from anabranch.base.config import Kind, Source
from anabranch.log.config import TOPIC_OPTIONS
from anabranch.server.config import BROKER_OPTIONS, Layers
from anabranch.server.config_entries import (
    Entry,
    broker_entries,
    client_metrics_entries,
    default_broker_entries,
    logger_entries,
    topic_entries,
)

NONE = Layers({}, {}, {})


def chain(entry: Entry) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, int(synonym.source)) for synonym in entry.synonyms]


def of_topic(name: str, layers: Layers, overrides: dict[str, str]) -> Entry:
    return next(entry for entry in topic_entries(layers, overrides) if entry.name == name)


def of_broker(name: str, layers: Layers) -> Entry:
    return next(entry for entry in broker_entries(layers) if entry.name == name)


def test_all_options_of_a_topic_in_order() -> None:
    shown = [name for name, declared in TOPIC_OPTIONS.items() if not declared.internal]
    assert [entry.name for entry in topic_entries(NONE, {})] == sorted(shown)
    told = {
        name: TOPIC_OPTIONS[name].dump(TOPIC_OPTIONS[name].default) or ""
        for name in TOPIC_OPTIONS.keys() - set(shown)
    }
    assert [entry.name for entry in topic_entries(NONE, told)] == sorted(TOPIC_OPTIONS)


def test_a_new_topic_is_described_as_kafka_does() -> None:
    assert of_topic("segment.bytes", NONE, {}) == Entry(
        name="segment.bytes",
        value="1073741824",
        config_source=Source.DEFAULT,
        read_only=False,
        is_sensitive=False,
        synonyms=(("log.segment.bytes", "1073741824", Source.DEFAULT),),
        config_type=Kind.INT,
        documentation=TOPIC_OPTIONS["segment.bytes"].doc,
    )
    without_synonyms = {entry.name for entry in topic_entries(NONE, {}) if not entry.synonyms}
    assert without_synonyms == {
        "flush.ms",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.ms",
        "segment.jitter.ms",
        "segment.ms",
    }
    assert {entry.config_source for entry in topic_entries(NONE, {})} == {Source.DEFAULT}


def test_a_value_is_shown_as_it_is_understood() -> None:
    overrides = {
        "segment.bytes": " 2000000 ",
        "cleanup.policy": " compact , delete,compact",
        "preallocate": " TRUE ",
        "min.cleanable.dirty.ratio": "1e-1",
        "retention.ms": "+5",
    }
    values = {entry.name: entry.value for entry in topic_entries(NONE, overrides) if entry.name in overrides}
    assert values == {
        "segment.bytes": "2000000",
        "cleanup.policy": "compact,delete",
        "preallocate": "true",
        "min.cleanable.dirty.ratio": "0.1",
        "retention.ms": "5",
    }
    assert chain(of_topic("cleanup.policy", NONE, overrides)) == [
        ("cleanup.policy", "compact,delete", 1),
        ("log.cleanup.policy", "delete", 5),
    ]


def test_the_whole_chain_of_a_time() -> None:
    layers = Layers(
        {"log.retention.hours": "24"}, {"log.retention.ms": "604800001"}, {"log.retention.ms": "7"}
    )
    entry = of_topic("retention.ms", layers, {"retention.ms": "1000"})
    assert (entry.value, entry.config_source) == ("1000", Source.TOPIC)
    assert chain(entry) == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "7", 2),
        ("log.retention.ms", "604800001", 3),
        ("log.retention.hours", "24", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert chain(of_broker("log.retention.ms", layers)) == chain(entry)[1:]
    assert chain(of_broker("log.retention.hours", layers)) == chain(entry)[3:]


def test_a_coarser_time_alone_is_not_shown_as_in_kafka() -> None:
    entry = of_topic("retention.ms", Layers({"log.retention.hours": "24"}, {}, {}), {})
    assert (entry.value, entry.config_source, entry.synonyms) == ("86400000", Source.DEFAULT, ())


def test_all_options_of_a_broker_but_the_internal_ones() -> None:
    names = [entry.name for entry in broker_entries(NONE)]
    assert names == sorted(name for name, declared in BROKER_OPTIONS.items() if not declared.internal)
    assert "log.initial.task.delay.ms" not in names
    set_by_hand = of_broker("log.initial.task.delay.ms", Layers({"log.initial.task.delay.ms": "5"}, {}, {}))
    assert (set_by_hand.value, set_by_hand.config_source) == ("5", Source.STATIC_BROKER)


def test_options_of_a_broker() -> None:
    layers = Layers(
        {"node.id": "3"}, {"log.cleaner.backoff.ms": "15002"}, {"log.cleaner.backoff.ms": "15001"}
    )
    backoff = of_broker("log.cleaner.backoff.ms", layers)
    assert (backoff.value, backoff.config_source, backoff.read_only) == (
        "15001",
        Source.DYNAMIC_BROKER,
        False,
    )
    assert chain(backoff) == [
        ("log.cleaner.backoff.ms", "15001", 2),
        ("log.cleaner.backoff.ms", "15002", 3),
        ("log.cleaner.backoff.ms", "15000", 5),
    ]
    node_id = of_broker("node.id", layers)
    assert (node_id.value, node_id.config_source, node_id.read_only) == ("3", Source.STATIC_BROKER, True)
    unset = of_broker("log.retention.ms", layers)
    assert (unset.value, unset.config_source, unset.synonyms) == (None, Source.DEFAULT, ())
    assert of_broker("log.cleaner.io.max.bytes.per.second", layers).value == "1.7976931348623157E308"


def test_a_name_that_is_no_option_may_be_a_secret() -> None:
    layers = Layers({}, {"shared.secret": "a"}, {"some.secret": "b"})
    assert of_broker("some.secret", layers) == Entry(
        name="some.secret",
        value=None,
        config_source=Source.DYNAMIC_BROKER,
        read_only=True,
        is_sensitive=True,
        synonyms=(("some.secret", None, Source.DYNAMIC_BROKER),),
        config_type=Kind.UNKNOWN,
        documentation=None,
    )
    assert [entry.value for entry in default_broker_entries(layers)] == [None]


def test_all_brokers_have_only_what_was_set_for_them() -> None:
    layers = Layers({"log.retention.ms": "1"}, {"log.retention.ms": "2"}, {"log.retention.ms": "3"})
    (entry,) = default_broker_entries(layers)
    assert (entry.name, entry.value, entry.config_source) == (
        "log.retention.ms",
        "2",
        Source.DYNAMIC_DEFAULT_BROKER,
    )
    assert chain(entry) == [("log.retention.ms", "2", 3)]


def test_client_metrics() -> None:
    entries = {entry.name: entry for entry in client_metrics_entries({"interval.ms": "1000"})}
    assert list(entries) == ["interval.ms", "match", "metrics"]
    assert entries["interval.ms"].value == "1000"
    assert chain(entries["interval.ms"]) == [("interval.ms", "1000", 7)]
    assert (entries["metrics"].value, entries["metrics"].config_source) == ("", Source.DEFAULT)


def test_loggers() -> None:
    first, second = logger_entries({"root": "WARN", "anabranch": "DEBUG"})
    assert (first.name, first.value, first.config_source) == ("anabranch", "DEBUG", Source.BROKER_LOGGER)
    assert (second.name, second.value, second.synonyms) == ("root", "WARN", ())
