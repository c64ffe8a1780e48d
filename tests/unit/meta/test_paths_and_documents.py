"""Where documents live and what they look like."""

import uuid

import pytest

from anabranch.base.errors import Corrupt, Invalid
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from anabranch.meta import paths
from anabranch.meta.documents import (
    BrokerDocument,
    ClusterDocument,
    PartitionState,
    PartitionStatesDocument,
    TopicDocument,
    decode,
    encode,
)
from anabranch.meta.store import check_data, check_path


def test_topics_live_by_tenant_and_namespace() -> None:
    assert paths.topic(TopicName.from_kafka("orders")) == "/topics/public/default/orders"
    assert paths.topic(TopicName("a", "b", "c")) == "/topics/a/b/c"
    long = "x" * 249
    check_path(paths.topic(TopicName(long, long, long)))


def test_partition_state_lives_by_topic_id() -> None:
    id = TopicId(uuid.UUID(int=7))
    path = paths.partition_states(id, 0)
    assert path == "/partitions/00000000-0000-0000-0000-000000000007"
    for page in (0, 1, 12):
        last = paths.partition_states(id, page).rsplit("/", 1)[1]
        assert paths.partition_states_page(last) == (id, page)


def test_the_state_of_all_partitions_fits_on_their_pages() -> None:
    brokers = tuple(BrokerId(id) for id in range(1000, 1010))
    state = PartitionState(brokers[0], LeaderEpoch(10_000), 100_000, brokers, brokers)
    for count in (1, 3, 10_000, 50_000):
        pages: dict[int, dict[int, PartitionState]] = {}
        for index in range(count):
            pages.setdefault(paths.page_of(index), {})[index] = state
        assert list(pages) == list(paths.pages_of(count))
        for states in pages.values():
            check_data("/", encode(PartitionStatesDocument(states)))


def test_broker_configs() -> None:
    assert paths.broker_config(None) == "/config/brokers/default"
    assert paths.broker_config(BrokerId(4)) == "/config/brokers/4"


@pytest.mark.parametrize("name", ["plain", "with space", "a/b", ".", "..", "100%", "ünï", "a.b", "\0\n"])
def test_any_name_of_client_metrics_has_a_path(name: str) -> None:
    path = paths.client_metrics(name)
    check_path(path)
    assert path.count("/") == 3
    assert paths.client_metrics_name(path.rsplit("/", 1)[1]) == name


def test_client_metrics_need_a_name() -> None:
    with pytest.raises(Invalid):
        paths.client_metrics("")


def test_documents_are_readable_json_and_come_back() -> None:
    topic = TopicDocument(
        TopicId(uuid.UUID(int=7)), [(BrokerId(1), BrokerId(2))], {"retention.ms": "5"}, 1234
    )
    data = encode(topic)
    assert b'"retention.ms":"5"' in data
    assert decode(data, TopicDocument, "/t") == topic


def test_documents_of_another_version_are_read() -> None:
    assert decode(b'{"host":"h","port":1,"zone":"z"}', BrokerDocument, "/b") == BrokerDocument("h", 1, None)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"cluster_id":1,"created_ms":2}', b"\xff"])
def test_what_is_no_document_names_its_path(data: bytes) -> None:
    with pytest.raises(Corrupt, match="/cluster"):
        decode(data, ClusterDocument, "/cluster")


@pytest.mark.parametrize("replicas", [b"[]", b"[[1],[]]"])
def test_a_topic_has_partitions_and_they_have_replicas(replicas: bytes) -> None:
    data = (
        b'{"id":"00000000-0000-0000-0000-000000000007","replicas":%s,"config":{},"created_ms":0}' % replicas
    )
    with pytest.raises(Corrupt):
        decode(data, TopicDocument, "/t")
