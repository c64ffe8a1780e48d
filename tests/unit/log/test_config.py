import pytest

from anabranch.base.config import LONG_MAX, Kind
from anabranch.base.errors import InvalidConfig
from anabranch.log.config import BROKER_OPTIONS, SYNONYMS, TOPIC_OPTIONS, LogConfig
from anabranch.log.config_broker import CleanerConfig
from anabranch.log.config_inert import INERT_OPTIONS

# As DescribeConfigs of Apache Kafka 4.3.1 gives them for a new topic: default, type, first synonym.
KAFKA = {
    "cleanup.policy": ("delete", 7, "log.cleanup.policy"),
    "compression.gzip.level": ("-1", 3, "compression.gzip.level"),
    "compression.lz4.level": ("9", 3, "compression.lz4.level"),
    "compression.type": ("producer", 2, "compression.type"),
    "compression.zstd.level": ("3", 3, "compression.zstd.level"),
    "delete.retention.ms": ("86400000", 5, "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": ("60000", 5, "log.segment.delete.delay.ms"),
    "flush.messages": ("9223372036854775807", 5, "log.flush.interval.messages"),
    "flush.ms": ("9223372036854775807", 5, "log.flush.interval.ms"),
    "follower.replication.throttled.replicas": ("", 7, None),
    "index.interval.bytes": ("4096", 3, "log.index.interval.bytes"),
    "leader.replication.throttled.replicas": ("", 7, None),
    "local.retention.bytes": ("-2", 5, "log.local.retention.bytes"),
    "local.retention.ms": ("-2", 5, "log.local.retention.ms"),
    "max.compaction.lag.ms": ("9223372036854775807", 5, "log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": ("1048588", 3, "message.max.bytes"),
    "message.timestamp.after.max.ms": ("3600000", 5, "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": ("9223372036854775807", 5, "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": ("CreateTime", 2, "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": ("0.5", 6, "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": ("0", 5, "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": ("1", 3, "min.insync.replicas"),
    "preallocate": ("false", 1, "log.preallocate"),
    "remote.log.copy.disable": ("false", 1, None),
    "remote.log.delete.on.disable": ("false", 1, None),
    "remote.storage.enable": ("false", 1, None),
    "retention.bytes": ("-1", 5, "log.retention.bytes"),
    "retention.ms": ("604800000", 5, "log.retention.ms"),
    "segment.bytes": ("1073741824", 3, "log.segment.bytes"),
    "segment.index.bytes": ("10485760", 3, "log.index.size.max.bytes"),
    "segment.jitter.ms": ("0", 5, "log.roll.jitter.ms"),
    "segment.ms": ("604800000", 5, "log.roll.ms"),
    "unclean.leader.election.enable": ("false", 1, "unclean.leader.election.enable"),
}
FROM_4_4 = {"errors.deadletterqueue.group.enable": ("false", 1, None)}
OURS = {
    "anabranch.table.enable": ("false", 1, None),
    "anabranch.table.file.delete.delay.ms": ("3600000", 5, None),
    "anabranch.table.location": ("", 2, None),
    "anabranch.table.retention.ms": ("-1", 5, None),
}


def test_names_types_and_defaults_are_kafkas() -> None:
    ours = {
        name: (
            declared.dump(declared.default),
            int(declared.kind),
            SYNONYMS[name][0].option.name if SYNONYMS[name] else None,
        )
        for name, declared in TOPIC_OPTIONS.items()
    }
    assert ours == KAFKA | FROM_4_4 | OURS


@pytest.mark.parametrize("name", FROM_4_4)
def test_what_newer_kafkas_have_is_told_by_the_topic_alone(name: str) -> None:
    attribute = name.replace(".", "_")
    assert getattr(LogConfig.build({name: "true"}, {}), attribute) is True
    assert getattr(LogConfig.build({}, {name: "true"}), attribute) is False


def test_every_option_says_what_it_does_in_a_line() -> None:
    for declared in [*TOPIC_OPTIONS.values(), *BROKER_OPTIONS.values()]:
        assert declared.doc.endswith(".")
        assert "\n" not in declared.doc


def test_defaults() -> None:
    assert LogConfig.build({}, {}) == LogConfig()
    assert LogConfig().cleanup_policy == frozenset({"delete"})
    assert LogConfig().flush_ms == LONG_MAX


@pytest.mark.parametrize("name", sorted(KAFKA.keys() - {inert.name for inert in INERT_OPTIONS}))
def test_the_topic_wins_over_the_broker_and_the_broker_over_the_default(name: str) -> None:
    declared = TOPIC_OPTIONS[name]
    attribute = name.replace(".", "_")
    synonym = SYNONYMS[name][0].option
    texts = {
        Kind.BOOLEAN: ("false", "true"),
        Kind.STRING: ("gzip", "zstd") if name == "compression.type" else ("CreateTime", "LogAppendTime"),
        Kind.DOUBLE: ("0.25", "0.75"),
        Kind.LIST: ("compact,delete", "compact"),
    }.get(declared.kind, ("6", "7") if "level" in name else ("2000000", "3000000"))
    topic, broker = texts
    dump = declared.dump

    def got(topic_overrides: dict[str, str], broker_options: dict[str, str]) -> object:
        return getattr(LogConfig.build(topic_overrides, broker_options), attribute)

    def meant(text: str) -> object:
        value = declared.parse(text)
        return frozenset(value) if declared.kind is Kind.LIST else value

    assert got({name: topic}, {synonym.name: broker}) == meant(topic)
    assert got({}, {synonym.name: broker}) == meant(broker)
    assert got({}, {}) == meant(dump(declared.default) or "")


@pytest.mark.parametrize(
    ("broker", "attribute", "value"),
    [
        (
            {"log.retention.ms": "5", "log.retention.minutes": "2", "log.retention.hours": "3"},
            "retention_ms",
            5,
        ),
        ({"log.retention.minutes": "2", "log.retention.hours": "3"}, "retention_ms", 120_000),
        ({"log.retention.hours": "3"}, "retention_ms", 10_800_000),
        ({"log.retention.hours": "-1"}, "retention_ms", -1),
        ({"log.retention.ms": "-7"}, "retention_ms", -1),
        ({"log.roll.ms": "5", "log.roll.hours": "1"}, "segment_ms", 5),
        ({"log.roll.hours": "1"}, "segment_ms", 3_600_000),
        ({"log.roll.jitter.ms": "5", "log.roll.jitter.hours": "1"}, "segment_jitter_ms", 5),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", 3_600_000),
        ({"log.flush.interval.ms": "5", "log.flush.scheduler.interval.ms": "9"}, "flush_ms", 5),
        ({"log.flush.scheduler.interval.ms": "9"}, "flush_ms", 9),
    ],
)
def test_of_a_chain_the_first_that_is_set_decides(broker: dict[str, str], attribute: str, value: int) -> None:
    assert getattr(LogConfig.build({}, broker), attribute) == value


# Each refused, or not, by Apache Kafka 4.3.1.
@pytest.mark.parametrize(
    ("name", "refused", "accepted"),
    [
        ("segment.bytes", "1048575", "1048576"),
        ("segment.ms", "0", "1"),
        ("segment.jitter.ms", "-1", "0"),
        ("segment.index.bytes", "3", "4"),
        ("index.interval.bytes", "-1", "0"),
        ("retention.ms", "-2", "-1"),
        ("retention.bytes", "x", "-5"),
        ("cleanup.policy", "Compact", " compact , delete "),
        ("cleanup.policy", "compact,,delete", ""),
        ("delete.retention.ms", "-1", "0"),
        ("min.cleanable.dirty.ratio", "1.5", "1"),
        ("min.cleanable.dirty.ratio", "-0.1", "0"),
        ("min.compaction.lag.ms", "-1", "0"),
        ("max.compaction.lag.ms", "0", "1"),
        ("flush.messages", "0", "1"),
        ("flush.ms", "-1", "0"),
        ("max.message.bytes", "-1", "0"),
        ("message.timestamp.type", "createtime", "LogAppendTime"),
        ("message.timestamp.before.max.ms", "-1", "0"),
        ("message.timestamp.after.max.ms", "-1", "0"),
        ("compression.type", "none", "uncompressed"),
        ("compression.type", "GZIP", "snappy"),
        ("compression.gzip.level", "0", "-1"),
        ("compression.gzip.level", "10", "9"),
        ("compression.lz4.level", "0", "1"),
        ("compression.lz4.level", "18", "17"),
        ("compression.zstd.level", "23", "22"),
        ("compression.zstd.level", "-131073", "-131072"),
        ("min.insync.replicas", "0", "5"),
        ("unclean.leader.election.enable", "yes", "TRUE"),
        ("file.delete.delay.ms", "-1", "0"),
        ("preallocate", "", " true "),
        ("remote.storage.enable", "true", "false"),
        ("remote.log.copy.disable", "x", "true"),
        ("local.retention.ms", "-3", "-2"),
        ("local.retention.bytes", "-3", "7"),
        ("leader.replication.throttled.replicas", "0:1,*", "*"),
        ("follower.replication.throttled.replicas", "0:", "0:1,1:1"),
    ],
)
def test_bounds_are_kafkas(name: str, refused: str, accepted: str) -> None:
    LogConfig.build({name: accepted}, {})
    with pytest.raises(InvalidConfig, match=name.replace(".", r"\.")):
        LogConfig.build({name: refused}, {})


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_a_brokers_retention_is_never_zero(name: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        LogConfig.build({}, {name: "0"})


def test_compaction_lags_must_not_cross() -> None:
    with pytest.raises(InvalidConfig) as caught:
        LogConfig.build({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, {})
    assert str(caught.value) == (
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    )
    with pytest.raises(InvalidConfig):
        LogConfig.build({"min.compaction.lag.ms": "10"}, {"log.cleaner.max.compaction.lag.ms": "5"})


def test_an_unknown_name_is_an_error_with_what_was_meant() -> None:
    with pytest.raises(
        InvalidConfig, match=r"Unknown topic config name: segment\.byte; did you mean segment\.bytes"
    ):
        LogConfig.build({"segment.byte": "1"}, {})
    with pytest.raises(InvalidConfig, match=r"Unknown topic config name: log\.segment\.bytes"):
        LogConfig.build({"log.segment.bytes": "2000000"}, {})


def test_the_cleaner_needs_memory_for_each_thread() -> None:
    with pytest.raises(InvalidConfig, match=r"dedupe\.buffer\.size"):
        CleanerConfig(threads=4, dedupe_buffer_bytes=4 << 20)


def test_a_table_needs_a_folder_with_a_whole_path() -> None:
    LogConfig.build({"anabranch.table.enable": "true", "anabranch.table.location": "/tables/orders"}, {})
    with pytest.raises(InvalidConfig, match=r"needs anabranch\.table\.location"):
        LogConfig.build({"anabranch.table.enable": "true"}, {})
    with pytest.raises(InvalidConfig, match="whole path"):
        LogConfig.build({"anabranch.table.location": "tables/orders"}, {})
