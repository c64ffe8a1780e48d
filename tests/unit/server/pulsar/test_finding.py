"""Finding topics: look-up, partitions, lists, watchers; and what is refused by name."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from anabranch.base.errors import NotOwner
from anabranch.base.ids import BrokerId, TopicName
from anabranch.client.destinations import Address
from anabranch.meta.image import BrokerImage
from anabranch.server.pulsar import owners
from anabranch.server.pulsar.topic_lists import ListPattern, hash_of, pattern_of
from anabranch.wire.pulsar import commands_pb2 as pb
from anabranch.wire.pulsar.commands_pb2 import BaseCommand
from tests.support.pulsar_wire import Client, PulsarBroker, pulsar_broker

C = BaseCommand


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PulsarBroker]:
    async with pulsar_broker(tmp_path) as running:
        yield running


async def make(client: Client, *topics: str) -> None:
    for n, topic in enumerate(topics):
        await client.ask(C.PRODUCER, topic=topic, producer_id=50 + n, request_id=50 + n)


async def metadata(client: Client, topic: str, **fields: object) -> pb.PartitionedMetadataResponse:
    answer = await client.ask(C.PARTITIONED_METADATA, topic=topic, request_id=1, **fields)
    return answer.partitioned_metadata_response


async def test_look_up(broker: PulsarBroker) -> None:
    client = await broker.connect()
    said = (await client.ask(C.LOOKUP, topic="t", request_id=3)).lookup_response
    assert said.response == pb.LookupResponse.Connect
    assert said.broker_service_url == f"pulsar://{broker.node.addresses['pulsar']}"
    assert said.authoritative
    bad = (await client.ask(C.LOOKUP, topic="a/b/c/d/e", request_id=4)).lookup_response
    assert (bad.response, bad.error) == (pb.LookupResponse.Failed, pb.ServerError.InvalidTopicName)
    told = await client.ask(C.LOOKUP, topic="t", request_id=5, advertised_listener_name="outside")
    assert told.lookup_response.error == pb.ServerError.ServiceNotReady


async def test_a_topic_that_is_not_known_may_be_another_brokers_news(
    broker: PulsarBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_for: list[str] = []

    async def look_for(*names: TopicName) -> None:
        looked_for.extend(name.local for name in names)

    client = await broker.connect()
    await make(client, "known")
    parts = broker.node.parts
    parts.pulsar.is_alone = False
    monkeypatch.setattr(parts.cluster, "look_for", look_for)
    for topic in ("known", "news-partition-1"):
        said = (await client.ask(C.LOOKUP, topic=topic, request_id=3)).lookup_response
        assert not said.proxy_through_service_url
    assert looked_for == ["news", "news-partition-1"]


async def test_who_asks_the_wrong_broker_is_sent_away(
    broker: PulsarBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def led_elsewhere(name: TopicName) -> None:
        raise NotOwner("broker 2 leads it", 2)

    client = await broker.connect()
    await make(client, "t")
    parts = broker.node.parts
    parts.pulsar.is_alone = False
    monkeypatch.setattr(parts.topics, "open", led_elsewhere)
    monkeypatch.setattr(owners, "owner_of", lambda image, name: 2)
    image = parts.cluster.image
    other = BrokerImage(BrokerId(2), "other", 9092, pulsar=Address("other", 6651))
    parts.cluster._watcher.image = replace(image, brokers={**image.brokers, other.id: other})
    told = await client.ask(C.LOOKUP, topic="t", request_id=3)
    assert told.lookup_response.broker_service_url == "pulsar://other:6651"
    told = await client.ask(C.PRODUCER, topic="t", producer_id=1, request_id=4)
    assert told.error.error == pb.ServerError.ServiceNotReady
    told = await client.ask(C.SUBSCRIBE, topic="t", subscription="s", type=0, consumer_id=7, request_id=5)
    assert told.error.error == pb.ServerError.ServiceNotReady
    closed = (await client.hear(C.CLOSE_CONSUMER)).close_consumer
    assert (closed.consumer_id, closed.assigned_broker_service_url) == (7, "pulsar://other:6651")


async def test_partitions(broker: PulsarBroker) -> None:
    client = await broker.connect()
    assert (await metadata(client, "not-there")).partitions == 0
    assert (await metadata(client, "not-there", metadata_auto_creation_enabled=False)).error == (
        pb.ServerError.TopicNotFound
    )
    assert (await metadata(client, "persistent://no/where/t")).error == pb.ServerError.TopicNotFound
    await make(client, "plain")
    assert (await metadata(client, "plain", metadata_auto_creation_enabled=False)).partitions == 0


async def test_topics_are_made_partitioned_where_that_is_set(tmp_path: Path) -> None:
    settings = {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": "3"}
    async with pulsar_broker(tmp_path, **settings) as broker:
        client = await broker.connect()
        assert (await metadata(client, "orders")).partitions == 3
        answer = await client.ask(C.PRODUCER, topic="orders-partition-2", producer_id=1, request_id=9)
        assert answer.type == C.PRODUCER_SUCCESS
        for topic in ("orders", "orders-partition-3"):
            answer = await client.ask(C.PRODUCER, topic=topic, producer_id=2, request_id=9)
            assert answer.type == C.ERROR


async def test_topics_are_not_made_where_that_is_off(tmp_path: Path) -> None:
    async with pulsar_broker(tmp_path, allowAutoTopicCreation="false") as broker:
        client = await broker.connect()
        answer = await client.ask(C.PRODUCER, topic="t", producer_id=1, request_id=9)
        assert answer.error.error == pb.ServerError.TopicNotFound


async def test_topics_of_a_namespace(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await make(client, "one", "two", "non-persistent://public/default/flying")

    async def ask(**fields: object) -> pb.GetTopicsOfNamespaceResponse:
        answer = await client.ask(
            C.GET_TOPICS_OF_NAMESPACE, namespace="public/default", request_id=1, **fields
        )
        return answer.get_topics_of_namespace_response

    said = await ask()
    assert list(said.topics) == ["persistent://public/default/one", "persistent://public/default/two"]
    assert (said.filtered, said.changed, said.topics_hash) == (False, True, hash_of(said.topics))
    assert list((await ask(mode=1)).topics) == ["non-persistent://public/default/flying"]
    assert len((await ask(mode=2)).topics) == 3
    same = await ask(topics_hash=said.topics_hash)
    assert (same.changed, list(same.topics)) == (False, [])
    some = await ask(topics_pattern="persistent://public/default/t.*")
    assert (some.filtered, list(some.topics)) == (True, ["persistent://public/default/two"])
    left = await ask(topics_pattern="(?=look)ahead")
    assert (left.filtered, len(left.topics)) == (False, 2)


async def test_watching_topics(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await make(client, "a1", "b1")
    answer = await client.ask(
        C.WATCH_TOPIC_LIST,
        request_id=5,
        watcher_id=9,
        namespace="public/default",
        topics_pattern="persistent://public/default/a.*",
    )
    said = answer.watch_topic_list_success
    assert (said.watcher_id, list(said.topic)) == (9, ["persistent://public/default/a1"])
    await client.ask(C.PRODUCER, topic="b2", producer_id=1, request_id=1)
    await client.ask(C.PRODUCER, topic="a2", producer_id=2, request_id=2)
    news = (await client.hear(C.WATCH_TOPIC_UPDATE)).watch_topic_update
    assert list(news.new_topics) == ["persistent://public/default/a2"]
    assert news.topics_hash == hash_of([*said.topic, *news.new_topics])
    assert client.heard() == []
    assert (await client.ask(C.WATCH_TOPIC_LIST_CLOSE, request_id=6, watcher_id=9)).type == C.SUCCESS
    await client.ask(C.PRODUCER, topic="a3", producer_id=3, request_id=3)
    assert client.heard() == []


def test_the_hash_is_pulsars() -> None:
    # Guava's crc32c, printed lowest byte first: what Pulsar 4.2.4 said for an empty list and for these names.
    assert hash_of([]) == "00000000"
    assert hash_of(["b", "a"]) == hash_of(["a", "b"]) != hash_of(["a,b", "c"])


def test_patterns_know_neither_domain_nor_partition() -> None:
    names = [TopicName.from_pulsar(text) for text in ("ab", "ac-partition-1", "x/y/ab")]
    for text in (
        "persistent://public/default/a.*",
        "public/default/a.*",
        "non-persistent://public/default/a.",
    ):
        assert ListPattern(text).select(names) == names[:2]
    assert pattern_of("(") is None


@pytest.mark.parametrize(
    ("type", "fields", "answer", "code"),
    [
        (C.GET_SCHEMA, {"topic": "t"}, "get_schema_response", pb.ServerError.TopicNotFound),
        (
            C.GET_OR_CREATE_SCHEMA,
            {"topic": "t", "schema": pb.Schema(name="s", schema_data=b"", type=pb.Schema.Json)},
            "get_or_create_schema_response",
            pb.ServerError.IncompatibleSchema,
        ),
    ],
)
async def test_schemas_that_are_none(
    broker: PulsarBroker, type: int, fields: dict[str, object], answer: str, code: int
) -> None:
    client = await broker.connect()
    await client.ask(C.PRODUCER, topic="t", producer_id=1, request_id=0)
    said = await client.ask(type, request_id=1, **fields)
    assert getattr(said, answer).error_code == code


async def test_bytes_need_no_schema(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await client.ask(C.PRODUCER, topic="t", producer_id=1, request_id=0)
    bare = pb.Schema(name="", schema_data=b"", type=pb.Schema.Bytes)
    said = await client.ask(C.GET_OR_CREATE_SCHEMA, request_id=1, topic="t", schema=bare)
    assert said.get_or_create_schema_response == pb.GetOrCreateSchemaResponse(
        request_id=1, schema_version=b""
    )


async def test_transactions_are_not_here(broker: PulsarBroker) -> None:
    client = await broker.connect()
    for type in (C.NEW_TXN, C.END_TXN, C.ADD_PARTITION_TO_TXN, C.ADD_SUBSCRIPTION_TO_TXN):
        said = await client.ask(type, request_id=1)
        assert said.error.error == pb.ServerError.NotAllowedError


async def test_a_pattern_that_becomes_too_much_work_ends_its_connection_only(
    broker: PulsarBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = await broker.connect(), await broker.connect()
    told = {"namespace": "public/default", "topics_pattern": ".*"}
    await client.ask(C.WATCH_TOPIC_LIST, request_id=1, watcher_id=1, **told)
    monkeypatch.setattr("anabranch.groups.consumer_regex_match._MOST_STEPS", 1)
    await make(other, "a-topic-with-quite-a-long-name")
    await client.closed()
    other.tell(C.PING)
    await other.hear(C.PONG)
