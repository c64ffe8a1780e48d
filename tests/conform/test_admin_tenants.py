"""Clusters, brokers, tenants and namespaces over HTTP: the statuses and JSON that Pulsar's clients expect."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.ids import Namespace, TopicName
from anabranch.topics.registry import Topics
from tests.support.http import Http, http_broker

INFO = {"adminRoles": ["me"], "allowedClusters": ["standalone"]}


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Http]:
    async with http_broker(tmp_path) as broker:
        yield broker


async def test_clusters(http: Http) -> None:
    assert await http.get("/clusters") == ["standalone"]
    shown = await http.get("/clusters/standalone")
    assert shown["serviceUrl"] == f"http://{http.address}"
    assert shown["brokerServiceUrl"] == f"pulsar://{http.node.addresses['pulsar']}"
    assert (await http.admin("GET", "/clusters/other")).status == 404
    assert (await http.admin("PUT", "/clusters/standalone", {})).status == 409
    assert (await http.admin("PUT", "/clusters/other", {"serviceUrl": "http://127.0.0.1:1"})).status == 412


async def test_brokers(http: Http) -> None:
    assert await http.get("/brokers") == [http.address] == await http.get("/brokers/standalone")
    assert (await http.get("/brokers/leaderBroker"))["serviceUrl"] == f"http://{http.address}"
    for path, text in (("health", b"ok"), ("ready", b"ok"), ("version", b"0.1.0")):
        answer = await http.admin("GET", f"/brokers/{path}")
        assert (answer.status, answer.body) == (200, text)
    owned = await http.get(f"/brokers/standalone/{http.address}/ownedNamespaces")
    assert owned["public/default/0x00000000_0x40000000"]["is_active"]


async def test_options_are_changed_while_the_broker_runs(http: Http) -> None:
    assert "allowAutoTopicCreation" in await http.get("/brokers/configuration")
    assert (await http.get("/brokers/configuration/runtime"))["maxProducersPerTopic"] == "0"
    await http.done("POST", "/brokers/configuration/maxProducersPerTopic/5")
    assert await http.get("/brokers/configuration/values") == {"maxProducersPerTopic": "5"}
    assert (await http.get("/brokers/configuration/runtime"))["maxProducersPerTopic"] == "5"
    await http.done("DELETE", "/brokers/configuration/maxProducersPerTopic")
    assert await http.get("/brokers/configuration/values") == {}
    for name, value in (("clusterName", "x"), ("nothing", "x"), ("maxProducersPerTopic", "x")):
        assert (await http.admin("POST", f"/brokers/configuration/{name}/{value}")).status == 412


async def test_tenants(http: Http) -> None:
    await http.done("PUT", "/tenants/mine", INFO)
    assert await http.get("/tenants") == ["mine", "public", "pulsar"]
    assert await http.get("/tenants/mine") == INFO
    assert (await http.admin("PUT", "/tenants/mine", INFO)).status == 409
    await http.done("POST", "/tenants/mine", {**INFO, "adminRoles": []})
    assert (await http.get("/tenants/mine"))["adminRoles"] == []
    assert await http.get("/namespaces/mine") == []
    await http.done("DELETE", "/tenants/mine")
    for method, body in (("GET", None), ("POST", INFO), ("DELETE", None)):
        assert (await http.admin(method, "/tenants/mine", body)).status == 404
    assert (await http.admin("GET", "/namespaces/mine")).status == 404


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("a b", INFO, 412),
        ("t", None, 412),
        ("t", {"adminRoles": []}, 412),
        ("t", {"allowedClusters": [""]}, 412),
        ("t", {"allowedClusters": ["elsewhere"]}, 412),
        ("t", {"allowedClusters": ["standalone"], "adminRoles": [" x"]}, 412),
        ("t", {"allowedClusters": "standalone"}, 400),
        ("t", [], 400),
    ],
)
async def test_what_is_no_tenant(http: Http, name: str, body: object, status: int) -> None:
    answer = await http.admin("PUT", f"/tenants/{name.replace(' ', '%20')}", body)
    assert answer.status == status
    assert answer.reason


async def test_namespaces(http: Http) -> None:
    await http.done("PUT", "/tenants/mine", INFO)
    await http.done("PUT", "/namespaces/mine/one")
    await http.done(
        "PUT", "/namespaces/mine/two", {"bundles": {"numBundles": 2}, "message_ttl_in_seconds": 7}
    )
    assert await http.get("/namespaces/mine") == ["mine/one", "mine/two"]
    policies = await http.get("/namespaces/mine/two")
    assert policies["replication_clusters"] == ["standalone"]
    assert policies["bundles"] == {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2}
    assert policies["message_ttl_in_seconds"] == 7
    assert "retention_policies" not in policies
    assert (await http.get("/namespaces/mine/one/bundles"))["numBundles"] == 4
    assert (await http.admin("PUT", "/namespaces/mine/one")).status == 409
    assert (await http.admin("PUT", "/namespaces/nobody/one")).status == 404
    assert (await http.admin("GET", "/namespaces/mine/three")).status == 404
    assert (await http.admin("DELETE", "/tenants/mine")).status == 409
    await http.done("PUT", "/persistent/mine/one/t")
    assert (await http.admin("DELETE", "/namespaces/mine/one")).status == 409
    assert (await http.admin("DELETE", "/namespaces/mine/one?force=true")).status == 405
    assert (await http.admin("DELETE", "/tenants/mine?force=true")).status == 405
    await http.done("POST", "/brokers/configuration/forceDeleteNamespaceAllowed/true")
    await http.done("DELETE", "/namespaces/mine/one?force=true")
    await http.done("PUT", "/persistent/mine/two/t")
    await http.done("POST", "/brokers/configuration/forceDeleteTenantAllowed/true")
    await http.done("DELETE", "/tenants/mine?force=true")
    assert await http.get("/tenants") == ["public", "pulsar"]


async def test_clients_that_make_their_topics_again_do_not_keep_a_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with http_broker(tmp_path, forceDeleteNamespaceAllowed="true") as http:
        await http.done("PUT", "/namespaces/public/one")
        await http.done("PUT", "/persistent/public/one/t")
        deleted: list[TopicName] = []
        delete = Topics.delete

        async def delete_and_come_back(topics: Topics, name: TopicName, *, force: bool = False) -> None:
            await delete(topics, name, force=force)
            deleted.append(name)
            if len(deleted) < 3:
                await http.done("PUT", "/persistent/public/one/t")

        monkeypatch.setattr(Topics, "delete", delete_and_come_back)
        await http.done("DELETE", "/namespaces/public/one?force=true")
        assert len(deleted) == 3
        assert await http.get("/namespaces/public") == ["public/default"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"bundles": {"numBundles": -1}}, 412),
        ({"bundles": {"numBundles": 1 << 30}}, 412),
        ({"bundles": {"boundaries": ["0x0", "x"]}}, 412),
        ({"bundles": {"boundaries": ["0x00000000", "0x10000000"]}}, 412),
        ({"replication_clusters": ["elsewhere"]}, 403),
        ({"retention_policies": 5}, 400),
    ],
)
async def test_what_is_no_namespace(http: Http, body: object, status: int) -> None:
    assert (await http.admin("PUT", "/namespaces/public/n", body)).status == status


async def test_limits_of_the_broker(tmp_path: Path) -> None:
    async with http_broker(tmp_path, maxTenants="3", maxNamespacesPerTenant="2") as http:
        await http.done("PUT", "/tenants/a", INFO)
        assert (await http.admin("PUT", "/tenants/b", INFO)).status == 412
        await http.done("PUT", "/namespaces/public/a")
        assert (await http.admin("PUT", "/namespaces/public/b")).status == 412


RETENTION = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 20}
POLICIES: list[tuple[str, Any]] = [
    ("messageTTL", 30),
    ("subscriptionExpirationTime", 5),
    ("retention", RETENTION),
    ("deduplication", True),
    (
        "autoTopicCreation",
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
    ),
    ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}),
    ("delayedDelivery", {"active": False, "tickTime": 50, "maxDeliveryDelayInMillis": 0}),
    (
        "inactiveTopicPolicies",
        {
            "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
            "maxInactiveDurationSeconds": 5,
            "deleteWhileInactive": True,
        },
    ),
    ("maxProducersPerTopic", 1),
    ("maxConsumersPerTopic", 2),
    ("maxConsumersPerSubscription", 3),
    ("maxUnackedMessagesPerConsumer", 4),
    ("maxUnackedMessagesPerSubscription", 5),
    ("maxSubscriptionsPerTopic", 6),
    ("maxTopicsPerNamespace", 7),
    ("subscriptionTypesEnabled", ["Shared"]),
    ("publishRate", {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}),
    (
        "dispatchRate",
        {
            "dispatchThrottlingRateInMsg": 1,
            "dispatchThrottlingRateInByte": 2,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 1,
        },
    ),
    (
        "subscriptionDispatchRate",
        {
            "dispatchThrottlingRateInMsg": 1,
            "dispatchThrottlingRateInByte": 2,
            "relativeToPublishRate": True,
            "ratePeriodInSecond": 3,
        },
    ),
    ("subscribeRate", {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 9}),
    ("persistence", {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 2}),
]


async def test_policies_come_and_go(http: Http) -> None:
    base = "/namespaces/public/default"
    for path, value in POLICIES:
        before = await http.admin("GET", f"{base}/{path}")
        assert before.status == 204 or before.json in ([], 0), path
        await http.done("POST", f"{base}/{path}", value)
        assert await http.get(f"{base}/{path}") == value
    await http.done("POST", f"{base}/encryptionRequired", True)
    policies = http.node._http._services.pulsar.catalog.policies(Namespace("public", "default"))  # type: ignore[union-attr]
    assert policies.encryption_required
    assert policies.max_topics_per_namespace == 7
    for path, _ in POLICIES:
        await http.done("DELETE", f"{base}/{path}")
        after = await http.admin("GET", f"{base}/{path}")
        assert after.status == 204 or after.json in ([], 0), path
    assert (await http.admin("GET", "/namespaces/public/none/retention")).status == 404
    assert (await http.admin("POST", "/namespaces/public/none/retention", RETENTION)).status == 404


@pytest.mark.parametrize(
    ("path", "value", "status"),
    [
        ("messageTTL", -1, 412),
        ("messageTTL", "soon", 400),
        ("messageTTL", 1 << 31, 400),
        ("retention", {"retentionTimeInMinutes": 10**18, "retentionSizeInMB": -1}, 400),
        ("retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": 10**18}, 400),
        ("maxProducersPerTopic", -5, 412),
        ("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}, 412),
        ("retention", {"retentionTimeInMinutes": -2, "retentionSizeInMB": 5}, 412),
        ("autoTopicCreation", {"allowAutoTopicCreation": True}, 412),
        ("autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "partitioned"}, 412),
        ("autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "round"}, 400),
        ("autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": ""}, 412),
        ("inactiveTopicPolicies", {"maxInactiveDurationSeconds": 0}, 412),
        ("subscriptionTypesEnabled", ["Exclusiv"], 412),
        ("persistence", {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2}, 412),
        ("publishRate", None, 400),
        ("backlogQuota", {"limitSize": 5}, 400),
        ("backlogQuota", {"limitSize": 5, "policy": "cry"}, 400),
        ("backlogQuota?backlogQuotaType=x", {"limitSize": 5, "policy": "producer_exception"}, 400),
        ("replication", ["elsewhere"], 403),
        ("replication", [], 412),
    ],
)
async def test_values_that_no_policy_has(http: Http, path: str, value: object, status: int) -> None:
    answer = await http.admin("POST", f"/namespaces/public/default/{path}", value)
    assert answer.status == status
    assert answer.reason


async def test_go_clients_forbid_creation_without_a_type(http: Http) -> None:
    path = "/namespaces/public/default/autoTopicCreation"
    await http.done("POST", path, {"allowAutoTopicCreation": False, "topicType": ""})
    assert (await http.get(path))["allowAutoTopicCreation"] is False


async def test_backlog_quotas_go_with_retention(http: Http) -> None:
    base = "/namespaces/public/default"
    small = {"limitSize": 1 << 20, "limitTime": -1, "policy": "producer_exception"}
    await http.done("POST", f"{base}/backlogQuota", small)
    aged = {"limitTime": 60, "policy": "consumer_backlog_eviction"}
    await http.done("POST", f"{base}/backlogQuota?backlogQuotaType=message_age", aged)
    quotas = await http.get(f"{base}/backlogQuotaMap")
    assert quotas["destination_storage"]["limitSize"] == quotas["destination_storage"]["limit"] == 1 << 20
    assert quotas["message_age"]["limitTime"] == 60
    too_little = {"retentionTimeInMinutes": 5, "retentionSizeInMB": 1}
    assert (await http.admin("POST", f"{base}/retention", too_little)).status == 412
    await http.done("POST", f"{base}/retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 2})
    large = {**small, "limitSize": 2 << 20}
    assert (await http.admin("POST", f"{base}/backlogQuota", large)).status == 412
    await http.done("DELETE", f"{base}/backlogQuota")
    assert list(await http.get(f"{base}/backlogQuotaMap")) == ["message_age"]


async def test_properties(http: Http) -> None:
    base = "/namespaces/public/default"
    await http.done("PUT", f"{base}/properties", {"a": "1", "b": "2"})
    await http.done("PUT", f"{base}/property/c/3%2F4")
    assert await http.get(f"{base}/properties") == {"a": "1", "b": "2", "c": "3/4"}
    assert (await http.admin("GET", f"{base}/property/a")).body == b"1"
    await http.done("DELETE", f"{base}/property/a")
    assert (await http.admin("GET", f"{base}/property/a")).status == 204
    await http.done("DELETE", f"{base}/properties")
    assert await http.get(f"{base}/properties") == {}
