"""Topic names: what is legal, what two spellings mean, and that no name can leave its folder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.errors import InvalidNamespace, InvalidTopicName
from anabranch.base.ids import MAX_NAME_LENGTH, Namespace, TopicName, split_partition
from tests.unit.records.strategies import seeded


@pytest.mark.parametrize(
    ("name", "kafka", "pulsar"),
    [
        ("orders", "orders", "persistent://public/default/orders"),
        ("persistent://public/default/orders", "orders", "persistent://public/default/orders"),
        ("persistent://a/b/orders", "persistent://a/b/orders", "persistent://a/b/orders"),
        ("a.b_c-D9", "a.b_c-D9", "persistent://public/default/a.b_c-D9"),
        ("...", "...", "persistent://public/default/..."),
        ("x" * MAX_NAME_LENGTH, "x" * MAX_NAME_LENGTH, "persistent://public/default/" + "x" * 249),
    ],
)
def test_two_spellings(name: str, kafka: str, pulsar: str) -> None:
    topic = TopicName.from_kafka(name)
    assert (topic.kafka, topic.pulsar) == (kafka, pulsar)
    assert TopicName.from_kafka(topic.kafka) == topic == TopicName.from_kafka(topic.pulsar)
    assert hash(topic) == hash(TopicName.from_kafka(topic.pulsar))


ILLEGAL = [
    "",
    ".",
    "..",
    "/",
    "a/b",
    "../a",
    "a/../../b",
    "a\0",
    "\0",
    "a b",
    "a\n",
    "ü",
    "a\ud7ff",
    "１",  # a digit, but not of ASCII
    "x" * 250,
    "persistent://a/b",
    "persistent://a/b/c/d",
    "persistent:///b/c",
    "persistent://a/b/",
    "persistent://../b/c",
    "persistent://a/../c",
    "persistent://a/b/..",
    "persistent://a/b/c\n",
    "non-persistent://a/b/c",
    "persistent://" + "x" * 250 + "/b/c",
]


@pytest.mark.parametrize("name", ILLEGAL, ids=range(len(ILLEGAL)))
def test_illegal_names(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        TopicName.from_kafka(name)


@pytest.mark.parametrize(
    "name", ["\1" * 32_000, "persistent://a/\1/" + "\1" * 32_000, "persistent://a/\1/" + "ü" * 16_000]
)
def test_a_complaint_fits_into_an_answer(name: str) -> None:
    """Kafka's older strings have 32,767 bytes at most, and so have the messages about them."""
    with pytest.raises(InvalidTopicName) as caught:
        TopicName.from_kafka(name)
    assert len(str(caught.value).encode()) < 10_000


@seeded(500)
@given(st.text(max_size=12) | st.text("./\\\0ab:", max_size=12))
def test_no_name_leaves_its_folder(name: str) -> None:
    try:
        topic = TopicName.from_kafka(name)
    except InvalidTopicName:
        return
    for part in (topic.tenant, topic.namespace, topic.local):
        assert part not in ("", ".", "..")
        assert not set(part) & set("/\\\0")


PULSAR_NAMES = [
    ("orders", "persistent://public/default/orders"),
    ("a/b/orders", "persistent://a/b/orders"),
    ("persistent://a/b/orders", "persistent://a/b/orders"),
    ("non-persistent://a/b/orders", "non-persistent://a/b/orders"),
    ("a=b:c/n.s/ü 1%2F", "persistent://a=b:c/n.s/ü 1%2F"),
    ("a/b/..", "persistent://a/b/.."),
]


@pytest.mark.parametrize(("name", "full"), PULSAR_NAMES)
def test_pulsars_spellings(name: str, full: str) -> None:
    topic = TopicName.from_pulsar(name)
    assert topic.pulsar == full
    assert TopicName.from_pulsar(topic.pulsar) == topic


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "is empty"),
        ("a/b", "is none of"),
        ("a/b/c/d", "is none of"),
        ("persistent://a/b", "is none of"),
        ("persistent://a/cluster/b/c", "names a cluster"),
        ("other://a/b/c", "neither of"),
        ("topic://a/b/c", "neither of"),
        ("persistent:///b/c", "no tenant or namespace"),
        ("../b/c", "no tenant or namespace"),
        ("ü/b/c", "no tenant or namespace"),
        ("a/b/", "is empty"),
        ("a\0", "cannot be shown"),
        ("a\n", "cannot be shown"),
        ("\ud800", "cannot be shown"),
        ("x" * 250, "250 characters long"),
        ("x" * 100_000 + "/a", "is none of"),
    ],
)
def test_names_that_pulsar_has_not_either(name: str, why: str) -> None:
    with pytest.raises(InvalidTopicName, match=why) as caught:
        TopicName.from_pulsar(name)
    assert len(str(caught.value)) < 2000


def test_what_is_not_stored_has_no_short_name() -> None:
    topic = TopicName.from_pulsar("non-persistent://public/default/t")
    assert topic.kafka == "non-persistent://public/default/t"
    assert topic != TopicName.from_pulsar("t")


@pytest.mark.parametrize(
    ("name", "whole", "index"),
    [
        ("t-partition-0", "t", 0),
        ("t-partition-12", "t", 12),
        ("t-partition-1-partition-2", "t-partition-1", 2),
        ("t-partition-01", "t-partition-01", None),
        ("t-partition--1", "t-partition--1", None),
        ("t-partition-", "t-partition-", None),
        ("-partition-1", "-partition-1", None),
        ("t-partition-99999999999", "t-partition-99999999999", None),
    ],
)
def test_partitions_by_name(name: str, whole: str, index: int | None) -> None:
    topic, found = split_partition(TopicName.from_pulsar(f"non-persistent://a/b/{name}"))
    assert (topic.local, found, topic.domain) == (whole, index, "non-persistent")
    if index is not None:
        assert topic.partition(index).local == name


@pytest.mark.parametrize("text", ["a/b", "a=:._-b/c"])
def test_namespaces(text: str) -> None:
    assert str(Namespace.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "a", "a/", "/b", "a/b/c", "a/../b", "../a", "a b/c", "ü/a", "a" * 250 + "/b"]
)
def test_what_is_no_namespace(text: str) -> None:
    with pytest.raises(InvalidNamespace):
        Namespace.parse(text)
