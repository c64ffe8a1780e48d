"""Topic names: what is legal, what two spellings mean, and that no name can leave its folder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.errors import InvalidTopicName
from anabranch.base.ids import MAX_NAME_LENGTH, TopicName
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
