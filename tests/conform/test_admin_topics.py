"""Topics, their policies, subscriptions and messages over HTTP, with real Pulsar clients beside them."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.support.http import Http, http_broker

BASE = "/persistent/public/default"


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Http]:
    async with http_broker(tmp_path) as broker:
        yield broker


@contextmanager
def _client(http: Http) -> Iterator[Any]:
    client = pulsar.Client(
        f"pulsar://{http.node.addresses['pulsar']}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    try:
        yield client
    finally:
        client.close()


async def send(http: Http, topic: str, messages: list[bytes], **options: Any) -> None:
    def work() -> None:
        with _client(http) as client:
            producer = client.create_producer(topic, batching_enabled=False, **options)
            for i, message in enumerate(messages):
                producer.send(message, properties={"n": str(i)}, partition_key=f"k{i}")

    await asyncio.to_thread(work)


def numbered(count: int) -> list[bytes]:
    return [b"message %d" % i for i in range(count)]


# --- topics


async def test_topics_are_made_listed_grown_and_deleted(http: Http) -> None:
    await http.done("PUT", f"{BASE}/plain", {"owner": "me"})
    await http.done("PUT", f"{BASE}/parts/partitions", 2)
    await http.done("PUT", f"{BASE}/more/partitions", {"partitions": 1, "properties": {"a": "b"}})
    full = "persistent://public/default/"
    assert await http.get(BASE) == [
        f"{full}more-partition-0",
        f"{full}parts-partition-0",
        f"{full}parts-partition-1",
        f"{full}plain",
    ]
    assert await http.get(f"{BASE}/partitioned") == [f"{full}more", f"{full}parts"]
    assert await http.get("/namespaces/public/default/topics") == await http.get(BASE)
    assert await http.get(f"{BASE}/plain/properties") == {"owner": "me"}
    assert await http.get(f"{BASE}/more/partitions") == {
        "partitions": 1,
        "deleted": False,
        "properties": {"a": "b"},
    }
    assert (await http.get(f"{BASE}/plain/partitions"))["partitions"] == 0
    await http.done("POST", f"{BASE}/parts/partitions", 3)
    assert (await http.get(f"{BASE}/parts/partitions"))["partitions"] == 3
    await http.done("PUT", f"{BASE}/plain/properties", {"x": "y"})
    await http.done("DELETE", f"{BASE}/plain/properties?key=owner")
    assert await http.get(f"{BASE}/plain/properties") == {"x": "y"}
    await http.done("DELETE", f"{BASE}/parts/partitions")
    await http.done("DELETE", f"{BASE}/plain")
    assert await http.get(BASE) == [f"{full}more-partition-0"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/parts", None, 409),
        ("PUT", "/plain/partitions", 2, 409),
        ("PUT", "/new/partitions", 0, 406),
        ("PUT", "/new/partitions", -3, 406),
        ("PUT", "/new/partitions", "many", 400),
        ("PUT", "/new-partition-1/partitions", 2, 412),
        ("PUT", "/new-partition-1", None, 412),
        ("PUT", "/" + "x" * 250, None, 412),
        ("PUT", "/%00", None, 412),
        ("PUT", "/%ff", None, 400),
        ("POST", "/parts/partitions", 1, 422),
        ("POST", "/plain/partitions", 5, 409),
        ("POST", "/none/partitions", 5, 404),
        ("GET", "/none/partitions", None, 404),
        ("GET", "/none/subscriptions", None, 404),
        ("DELETE", "/none", None, 404),
        ("DELETE", "/none/partitions", None, 404),
        ("DELETE", "/parts", None, 409),
        ("DELETE", "/plain/partitions", None, 409),
        ("DELETE", "/parts-partition-0", None, 412),
        ("PUT", "/none/unload", None, 404),
        ("GET", "/parts/lastMessageId", None, 405),
        ("POST", "/plain/terminate/partitions", None, 405),
        ("POST", "/plain/subscription/none/skip_all", None, 404),
        ("GET", "/plain/subscription/none/position/1", None, 404),
        ("POST", "/plain/subscription/none/skip/x", None, 404),
        ("DELETE", "/plain/subscription/none", None, 404),
        ("GET", "/plain/ledger/0/entry/0", None, 404),
        ("GET", "/plain/ledger/x/entry/0", None, 400),
        ("GET", "/plain/examinemessage", None, 412),
        ("POST", "/plain/maxProducers", -1, 412),
        ("POST", "/plain/maxMessageSize", 1 << 40, 412),
        ("POST", "/none/maxProducers", 1, 404),
    ],
)
async def test_refusals(http: Http, method: str, path: str, body: object, status: int) -> None:
    await http.done("PUT", f"{BASE}/plain")
    await http.done("PUT", f"{BASE}/parts/partitions", 2)
    answer = await http.admin(method, BASE + path, body)
    assert answer.status == status, answer
    assert answer.reason


async def test_names_of_any_letters(http: Http) -> None:
    await http.done("PUT", f"{BASE}/a+b%2Bc%20%C3%BC%25")
    name = "persistent://public/default/a b+c ü%"
    assert await http.get(BASE) == [name]
    await send(http, name, [b"hello"])
    await http.done("PUT", f"{BASE}/a+b%2Bc+%C3%BC%25/subscription/s+1%2F", {"ledgerId": -1, "entryId": -1})
    assert await http.get(f"{BASE}/a+b%2Bc+%C3%BC%25/subscriptions") == ["s 1/"]
    peeked = await http.admin("GET", f"{BASE}/a+b%2Bc+%C3%BC%25/subscription/s+1%2F/position/1")
    assert peeked.body == b"hello"


async def test_topics_that_are_not_stored(http: Http) -> None:
    base = "/non-persistent/public/default"
    await http.done("PUT", f"{base}/one")
    await http.done("PUT", f"{base}/parts/partitions", 2)
    assert len(await http.get(base)) == 3
    assert await http.get(BASE) == []
    assert len(await http.get("/namespaces/public/default/topics?mode=ALL")) == 3
    assert len(await http.get("/namespaces/public/default/topics?mode=NON_PERSISTENT")) == 3
    await http.done("POST", f"{base}/parts/partitions", 4)
    await http.done("PUT", f"{base}/parts/unload")
    await http.done("POST", f"{base}/one/maxConsumers", 1)
    assert await http.get(f"{base}/one/maxConsumers?applied=true") == 1
    assert (await http.admin("DELETE", f"{base}/one/truncate")).status == 405
    assert (await http.admin("PUT", f"{base}/one/subscription/s")).status == 405
    await http.done("DELETE", f"{base}/one")
    await http.done("DELETE", f"{base}/parts/partitions")
    assert await http.get(base) == []


async def test_a_topic_in_use_is_not_deleted(http: Http) -> None:
    def work() -> Any:
        client = pulsar.Client(
            f"pulsar://{http.node.addresses['pulsar']}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        return client, client.create_producer("used")

    client, _ = await asyncio.to_thread(work)
    try:
        answer = await http.admin("DELETE", f"{BASE}/used")
        assert answer.status == 412
        assert "producers" in answer.reason
        await http.done("DELETE", f"{BASE}/used?force=true")
    finally:
        await asyncio.to_thread(client.close)


# --- policies


async def test_topic_policies_win_over_the_namespaces(http: Http) -> None:
    await http.done("PUT", f"{BASE}/t/partitions", 2)
    await http.done("POST", "/namespaces/public/default/maxProducersPerTopic", 9)
    assert (await http.admin("GET", f"{BASE}/t/maxProducers")).status == 204
    assert await http.get(f"{BASE}/t/maxProducers?applied=true") == 9
    await http.done("POST", f"{BASE}/t/maxProducers", 3)
    assert await http.get(f"{BASE}/t/maxProducers") == 3
    assert await http.get(f"{BASE}/t-partition-1/maxProducers?applied=true") == 3
    await http.done("POST", f"{BASE}/t/messageTTL?messageTTL=60")
    assert await http.get(f"{BASE}/t/messageTTL") == 60
    await http.done("POST", f"{BASE}/t/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": -1})
    assert await http.get(f"{BASE}/t/retention?applied=true") == {
        "retentionTimeInMinutes": 1,
        "retentionSizeInMB": -1,
    }
    quota = {"limitSize": 100, "limitTime": -1, "policy": "producer_exception"}
    await http.done("POST", f"{BASE}/t/backlogQuota", quota)
    applied = await http.get(f"{BASE}/t/backlogQuotaMap?applied=true")
    assert applied["destination_storage"]["limitSize"] == 100
    assert applied["message_age"]["limitTime"] == -1
    assert list(await http.get(f"{BASE}/t/backlogQuotaMap")) == ["destination_storage"]
    await http.done("DELETE", f"{BASE}/t/backlogQuota")
    await http.done("DELETE", f"{BASE}/t/maxProducers")
    assert await http.get(f"{BASE}/t/maxProducers?applied=true") == 9
    await http.done("DELETE", f"{BASE}/t/policies")
    assert (await http.admin("GET", f"{BASE}/t/messageTTL")).status == 204
    for path in ("delayedDelivery", "inactiveTopicPolicies", "publishRate", "dispatchRate", "subscribeRate"):
        assert isinstance(await http.get(f"{BASE}/t/{path}?applied=true"), dict)


# --- subscriptions and messages


async def first_unread(http: Http, topic: str = "t", subscription: str = "s") -> bytes | None:
    answer = await http.admin("GET", f"{BASE}/{topic}/subscription/{subscription}/position/1")
    return answer.body if answer.status == 200 else None


async def test_subscriptions_are_moved(http: Http) -> None:
    await http.done("PUT", f"{BASE}/t")
    await http.done("PUT", f"{BASE}/t/subscription/s")
    assert (await http.admin("PUT", f"{BASE}/t/subscription/s")).status == 409
    before_ms = int(time.time() * 1000)
    await send(http, "t", numbered(10))
    at = f"{BASE}/t/subscription/s"
    assert await first_unread(http) == b"message 0"
    await http.done("POST", f"{at}/skip/3")
    assert await first_unread(http) == b"message 3"
    await http.done("POST", f"{at}/skip_all")
    assert await first_unread(http) is None
    await http.done("POST", f"{at}/resetcursor/{before_ms}")
    assert await first_unread(http) == b"message 0"
    await http.done("POST", f"{at}/resetcursor", {"ledgerId": 0, "entryId": 5})
    assert await first_unread(http) == b"message 5"
    await http.done("POST", f"{at}/resetcursor", {"ledgerId": 0, "entryId": 5, "isExcluded": True})
    assert await first_unread(http) == b"message 6"
    await http.done("POST", f"{at}/resetcursor", {"ledgerId": -1, "entryId": -1})
    await http.done("POST", f"{at}/expireMessages", {"ledgerId": 0, "entryId": 2})
    assert await first_unread(http) == b"message 2"
    await http.done("POST", f"{at}/expireMessages/3600")
    assert await first_unread(http) == b"message 2"
    await http.done("POST", f"{BASE}/t/all_subscription/expireMessages/0")
    assert await first_unread(http) is None
    await http.done("PUT", f"{at}/properties", {"k": "v"})
    assert await http.get(f"{at}/properties") == {"k": "v"}
    await http.done("DELETE", at)
    assert await http.get(f"{BASE}/t/subscriptions") == []


async def test_subscriptions_of_all_partitions(http: Http) -> None:
    await http.done("PUT", f"{BASE}/p/partitions", 2)
    await http.done("PUT", f"{BASE}/p/subscription/s", {"ledgerId": -1, "entryId": -1})
    await send(http, "p", numbered(8))
    for i in range(2):
        assert await http.get(f"{BASE}/p-partition-{i}/subscriptions") == ["s"]
        assert await first_unread(http, f"p-partition-{i}") is not None
    await http.done("POST", f"{BASE}/p/subscription/s/skip_all")
    assert [await first_unread(http, f"p-partition-{i}") for i in range(2)] == [None, None]
    await http.done("POST", f"{BASE}/p/subscription/s/resetcursor/0")
    assert await first_unread(http, "p-partition-1") is not None
    await http.done("POST", "/namespaces/public/default/clearBacklog/s")
    assert await first_unread(http, "p-partition-1") is None
    assert (await http.admin("GET", f"{BASE}/p/subscription/s/position/1")).status == 405
    await http.done("POST", "/namespaces/public/default/unsubscribe/s")
    assert await http.get(f"{BASE}/p/subscriptions") == []


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
async def test_messages_are_looked_at(http: Http, codec: str) -> None:
    await http.done("PUT", f"{BASE}/t")
    await http.done("PUT", f"{BASE}/t/subscription/s")
    kind = getattr(pulsar.CompressionType, codec)
    await send(http, "t", [b"value %d" % i * 50 for i in range(5)], compression_type=kind)
    peeked = await http.admin("GET", f"{BASE}/t/subscription/s/position/3")
    assert peeked.body == b"value 2" * 50
    assert peeked.headers["x-pulsar-message-id"] == "0:2"
    assert peeked.headers["x-pulsar-partition-key"] == "k2"
    assert peeked.headers["x-pulsar-property"] == '{"n": "2"}'
    assert (await http.admin("GET", f"{BASE}/t/ledger/0/entry/4")).body == b"value 4" * 50
    assert (
        await http.admin("GET", f"{BASE}/t/examinemessage?initialPosition=earliest")
    ).body == b"value 0" * 50
    latest = await http.admin("GET", f"{BASE}/t/examinemessage?initialPosition=latest&messagePosition=2")
    assert latest.body == b"value 3" * 50
    assert (await http.get(f"{BASE}/t/messageid/0"))["entryId"] == 0
    last = await http.get(f"{BASE}/t/lastMessageId")
    assert (last["ledgerId"], last["entryId"], last["partitionIndex"]) == (0, 4, -1)


async def test_a_batch_is_looked_at_as_a_whole(http: Http) -> None:
    await http.done("PUT", f"{BASE}/t")
    await http.done("PUT", f"{BASE}/t/subscription/s")

    def work() -> None:
        with _client(http) as client:
            producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=200)
            for i in range(4):
                producer.send_async(b"in a batch %d" % i, None)
            producer.flush()

    await asyncio.to_thread(work)
    peeked = await http.admin("GET", f"{BASE}/t/subscription/s/position/1")
    assert peeked.headers["x-pulsar-num-batch-message"] == "4"
    assert b"in a batch 3" in peeked.body
    await http.done("POST", f"{BASE}/t/subscription/s/skip/2")
    await http.done("POST", f"{BASE}/t/subscription/s/skip/2")
    assert await first_unread(http) is None


async def test_the_end_of_a_topic(http: Http) -> None:
    await http.done("PUT", f"{BASE}/t")
    await http.done("PUT", f"{BASE}/t/subscription/s")
    await send(http, "t", numbered(3))
    await http.done("PUT", f"{BASE}/t/unload")
    ended = await http.admin("POST", f"{BASE}/t/terminate")
    assert (ended.status, ended.json["entryId"]) == (200, 2)
    with pytest.raises(pulsar.PulsarException):
        await send(http, "t", [b"too late"])
    await http.done("DELETE", f"{BASE}/t/truncate")
    assert await first_unread(http) is None
    assert (await http.admin("GET", f"{BASE}/t/ledger/0/entry/0")).status == 404


async def test_look_up(http: Http) -> None:
    found = await http.ask("GET", "/lookup/v2/topic/persistent/public/default/t")
    assert found.json["brokerUrl"] == f"pulsar://{http.node.addresses['pulsar']}"
    assert found.json["httpUrl"] == f"http://{http.address}"
    bundle = await http.ask("GET", "/lookup/v2/topic/persistent/public/default/t/bundle")
    assert bundle.body.startswith(b"0x")
    assert (await http.ask("GET", "/lookup/v2/topic/persistent/no/where/t")).status == 404
    outside = await http.ask("GET", "/lookup/v2/topic/persistent/public/default/t?listenerName=outside")
    assert outside.status == 503


async def test_a_client_that_looks_up_by_http(http: Http) -> None:
    def work() -> bytes:
        client = pulsar.Client(
            f"http://{http.address}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        try:
            consumer = client.subscribe("looked-up", "s")
            client.create_producer("looked-up").send(b"found")
            return bytes(consumer.receive(5000).data())
        finally:
            client.close()

    assert await asyncio.to_thread(work) == b"found"


# --- how they are doing


async def test_stats(http: Http) -> None:
    await http.done("PUT", f"{BASE}/t")
    await http.done("PUT", f"{BASE}/t/subscription/s")
    await send(http, "t", numbered(5))
    await http.done("POST", f"{BASE}/t/subscription/s/skip/2")
    stats = await http.get(f"{BASE}/t/stats")
    assert stats["msgInCounter"] == 5
    assert stats["storageSize"] > 0
    assert stats["publishers"] == []
    assert stats["subscriptions"]["s"]["msgBacklog"] == 3
    internal = await http.get(f"{BASE}/t/internalStats")
    assert internal["lastConfirmedEntry"] == "0:4"
    assert internal["cursors"]["s"]["markDeletePosition"] == "0:1"
    size = await http.admin("PUT", f"{BASE}/t/backlogSize", {"ledgerId": 0, "entryId": 0})
    assert size.json == stats["storageSize"]
    assert (await http.admin("GET", f"{BASE}/none/stats")).status == 404


async def test_stats_without_everybody(http: Http) -> None:
    await http.done("PUT", f"{BASE}/p/partitions", 2)
    exclude = "excludePublishers=true&excludeConsumers=true"
    client = pulsar.Client(
        f"pulsar://{http.node.addresses['pulsar']}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    await asyncio.to_thread(client.subscribe, "p", "s")
    await asyncio.to_thread(client.create_producer, "p")
    try:
        for path in ("p-partition-0/stats", "p/partitioned-stats"):
            whole = await http.get(f"{BASE}/{path}")
            assert whole["publishers"]
            assert whole["subscriptions"]["s"]["consumers"]
            numbers = await http.get(f"{BASE}/{path}?{exclude}")
            assert (numbers["publishers"], numbers["subscriptions"]["s"]["consumers"]) == ([], [])
            assert numbers.keys() == whole.keys()
    finally:
        await asyncio.to_thread(client.close)


async def test_stats_of_all_partitions(http: Http) -> None:
    await http.done("PUT", f"{BASE}/p/partitions", 3)
    await http.done("PUT", f"{BASE}/p/subscription/s")
    await send(http, "p", numbered(12))
    stats = await http.get(f"{BASE}/p/partitioned-stats")
    assert stats["metadata"]["partitions"] == 3
    assert stats["msgInCounter"] == 12
    assert stats["subscriptions"]["s"]["msgBacklog"] == 12
    assert sorted(stats["partitions"]) == [f"persistent://public/default/p-partition-{i}" for i in range(3)]
    each = await http.get(f"{BASE}/p-partition-1/stats")
    assert (
        each["msgInCounter"]
        == stats["partitions"]["persistent://public/default/p-partition-1"]["msgInCounter"]
    )
    assert (await http.get(f"{BASE}/p/partitioned-stats?perPartition=false"))["partitions"] == {}
    assert len((await http.get(f"{BASE}/p/partitioned-internalStats"))["partitions"]) == 3
    assert (await http.admin("GET", f"{BASE}/p/stats")).status == 404
    await http.done("PUT", "/non-persistent/public/default/np")
    assert (await http.get("/non-persistent/public/default/np/stats"))["msgInCounter"] == 0
