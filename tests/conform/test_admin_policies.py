"""What pulsar-admin sets, reads and takes back, beyond the everyday; words and numbers are Pulsar's."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conform.test_admin_topics import numbered, send
from tests.support.http import Http, http_broker

NAMESPACE = "/namespaces/public/default"
TOPIC = "/persistent/public/default/t"
RATE = {
    "dispatchThrottlingRateInMsg": 5,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Http]:
    async with http_broker(tmp_path) as broker:
        await broker.done("PUT", TOPIC)
        yield broker


@pytest.mark.parametrize(
    ("method", "path", "value", "wrong", "refusal"),
    [
        ("PUT", "compactionThreshold", 100, -1, "compactionThreshold must be 0 or more"),
        ("POST", "deduplicationSnapshotInterval", 60, -1, "interval must be greater than or equal to 0"),
        ("POST", "subscriptionExpirationTime", 3, -1, "Invalid value for subscription expiration time"),
        ("POST", "replicatorDispatchRate", RATE, None, None),
        ("POST", "dispatcherPauseOnAckStatePersistent", True, None, None),
        ("POST", "antiAffinity", "apart", None, None),
    ],
)
async def test_policies_of_namespaces(
    http: Http, method: str, path: str, value: Any, wrong: Any, refusal: str | None
) -> None:
    await http.done(method, f"{NAMESPACE}/{path}", value)
    assert await http.get(f"{NAMESPACE}/{path}") == value
    if refusal is not None:
        refused = await http.admin(method, f"{NAMESPACE}/{path}", wrong)
        assert (refused.status, refused.reason) == (412, refusal)
    await http.done("DELETE", f"{NAMESPACE}/{path}")
    assert (await http.admin("GET", f"{NAMESPACE}/{path}")).body in (b"", b"false")


@pytest.mark.parametrize(
    ("path", "value", "wrong", "refusal"),
    [
        ("compactionThreshold", 100, -1, "Invalid value for compactionThreshold"),
        ("deduplicationSnapshotInterval", 60, -1, "interval must be 0 or more"),
        ("subscriptionExpirationTime", 3, -1, "Invalid value for subscription expiration time"),
        ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}, None, None),
        ("replicatorDispatchRate", RATE, None, None),
        ("dispatcherPauseOnAckStatePersistent", True, None, None),
        ("s/dispatchRate", RATE, None, None),
        (
            "replication",
            ["standalone"],
            ["elsewhere"],
            "Can not remove local cluster from the local topic-level replication clusters policy",
        ),
    ],
)
async def test_policies_of_topics(http: Http, path: str, value: Any, wrong: Any, refusal: str | None) -> None:
    await http.done("POST", f"{TOPIC}/{path}", value)
    assert await http.get(f"{TOPIC}/{path}") == value
    if refusal is not None:
        refused = await http.admin("POST", f"{TOPIC}/{path}", wrong)
        assert (refused.status, refused.reason) == (412, refusal)
    await http.done("DELETE", f"{TOPIC}/{path}")
    assert (await http.admin("GET", f"{TOPIC}/{path}")).status == 204


async def test_what_holds_for_a_topic(http: Http) -> None:
    await http.done("PUT", f"{NAMESPACE}/compactionThreshold", 5 << 30)
    assert await http.get(f"{TOPIC}/compactionThreshold?applied=true") == 5 << 30
    assert (await http.admin("PUT", f"{NAMESPACE}/compactionThreshold", 1 << 63)).status == 400
    await http.done("PUT", f"{NAMESPACE}/compactionThreshold", 1000)
    assert await http.get(f"{TOPIC}/compactionThreshold?applied=true") == 1000
    await http.done("POST", f"{TOPIC}/compactionThreshold", 0)
    assert await http.get(f"{TOPIC}/compactionThreshold?applied=true") == 0
    await http.done("POST", f"{TOPIC}/subscriptionDispatchRate", RATE)
    assert (await http.get(f"{TOPIC}/s/dispatchRate?applied=true"))["dispatchThrottlingRateInMsg"] == 5
    await http.done("POST", f"{TOPIC}/s/dispatchRate", RATE | {"dispatchThrottlingRateInMsg": 9})
    assert (await http.get(f"{TOPIC}/s/dispatchRate?applied=true"))["dispatchThrottlingRateInMsg"] == 9
    assert (await http.get(f"{TOPIC}/r/dispatchRate?applied=true"))["dispatchThrottlingRateInMsg"] == 5
    assert await http.get(f"{TOPIC}/schemaCompatibilityStrategy?applied=true") == "FULL"
    assert await http.get(f"{TOPIC}/schemaValidationEnforced?applied=true") is False
    assert await http.get(f"{TOPIC}/replication?applied=true") == ["standalone"]


async def test_who_is_not_there_is_said_in_pulsars_words(http: Http) -> None:
    for namespace, reason in (
        ("public/none", "Namespace does not exist"),
        ("none/x", "Tenant does not exist"),
    ):
        refused = await http.admin("POST", f"/namespaces/{namespace}/messageTTL", 3)
        assert (refused.status, refused.reason) == (404, reason)


async def test_permissions(http: Http) -> None:
    await http.done("POST", f"{NAMESPACE}/permissions/clerk", ["produce", "consume"])
    await http.done("POST", f"{TOPIC}/permissions/clerk", ["functions"])
    await http.done("POST", f"{TOPIC}/permissions/guest", ["consume"])
    assert await http.get(f"{NAMESPACE}/permissions") == {"clerk": ["produce", "consume"]}
    assert await http.get(f"{TOPIC}/permissions") == {
        "clerk": ["consume", "functions", "produce"],
        "guest": ["consume"],
    }
    assert (await http.admin("POST", f"{NAMESPACE}/permissions/x", ["nonsense"])).status == 400
    await http.done("DELETE", f"{TOPIC}/permissions/guest")
    await http.done("DELETE", f"{TOPIC}/permissions/clerk")
    await http.done("DELETE", f"{NAMESPACE}/permissions/clerk")
    assert await http.get(f"{TOPIC}/permissions") == {}
    await http.done("POST", f"{NAMESPACE}/permissions/subscription/s", ["a", "b"])
    await http.done("DELETE", f"{NAMESPACE}/permissions/s/a")
    assert await http.get(f"{NAMESPACE}/permissions/subscription") == {"s": ["b"]}
    await http.done("DELETE", f"{NAMESPACE}/permissions/s/b")
    assert await http.get(f"{NAMESPACE}/permissions/subscription") == {}
    await http.done("POST", f"{NAMESPACE}/subscriptionAuthMode", "Prefix")
    assert await http.get(f"{NAMESPACE}/subscriptionAuthMode") == "Prefix"


async def test_bundles_are_split(http: Http) -> None:
    await http.done("PUT", f"{NAMESPACE}/0x00000000_0x40000000/split?unload=true")
    boundaries = ["0x00000000", "0x20000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]
    assert (await http.get(f"{NAMESPACE}/bundles"))["boundaries"] == boundaries
    by = "splitAlgorithmName=specified_positions_divide"
    await http.done("PUT", f"{NAMESPACE}/0x20000000_0x40000000/split?{by}", [0x30000000, 0x38000000])
    assert (await http.get(f"{NAMESPACE}/bundles"))["numBundles"] == 7
    for bundle, positions in (("0x1_0x2", None), ("0x00000000_0x20000000", [1 << 40])):
        refused = await http.admin("PUT", f"{NAMESPACE}/{bundle}/split?{by}", positions)
        assert refused.status == 412


async def test_messages_counted_found_and_let_go(http: Http) -> None:
    await send(http, "t", numbered(5))
    await http.done("PUT", f"{TOPIC}/subscription/s", {"ledgerId": -1, "entryId": -1})
    await http.done("POST", f"{TOPIC}/subscription/s/skip/2")
    found = (await http.admin("POST", f"{TOPIC}/subscription/s/analyzeBacklog")).json
    assert (found["entries"], found["messages"], found["aborted"]) == (3, 3, False)
    assert (found["firstMessageId"], found["lastMessageId"]) == ("0:2", "0:4")
    assert (await http.admin("POST", f"{TOPIC}/subscription/none/analyzeBacklog")).status == 404
    assert (await http.get(f"{TOPIC}/getMessageIdByIndex?index=3"))["entryId"] == 3
    assert (await http.admin("GET", f"{TOPIC}/getMessageIdByIndex?index=-1")).status == 412
    assert (await http.admin("GET", f"{TOPIC}/getMessageIdByIndex?index=9")).status == 404
    assert (await http.admin("GET", f"{TOPIC}/subscription/new/position/1")).body == b"message 0"
    assert await http.get(f"{TOPIC}/subscriptions") == ["new", "s"]
    await http.done("DELETE", f"{TOPIC}/subscription/new")
    await http.done("POST", f"{TOPIC}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    await http.done("POST", f"{TOPIC}/trim")
    assert (await http.get(f"{TOPIC}/internalStats"))["numberOfEntries"] == 5  # a subscription holds them
    await http.done("POST", f"{TOPIC}/subscription/s/skip_all")
    await http.done("POST", f"{TOPIC}/trim")
    assert (await http.get(f"{TOPIC}/internalStats"))["numberOfEntries"] == 0


async def test_compaction(http: Http) -> None:
    assert await http.get(f"{TOPIC}/compaction") == {"status": "NOT_RUN", "lastError": ""}
    await send(http, "t", numbered(3))
    await http.done("PUT", f"{TOPIC}/compaction")
    refused = await http.admin("PUT", f"{TOPIC}/compaction")
    assert (refused.status, refused.reason) == (409, "Compaction already in progress")
    for _ in range(1800):
        if (await http.get(f"{TOPIC}/compaction"))["status"] != "RUNNING":
            break
        await asyncio.sleep(0.05)
    assert (await http.get(f"{TOPIC}/compaction"))["status"] == "SUCCESS"
    assert (await http.get(f"{TOPIC}/internalStats"))["compactedLedger"]["entries"] == 3
    stats = (await http.get("/broker-stats/topics"))["public/default"]
    ((_, topics),) = stats.items()
    assert topics["persistent"]["persistent://public/default/t"]["compaction"]
    assert (await http.admin("PUT", "/persistent/public/default/none/compaction")).status == 404


async def test_what_is_not_there_says_so(http: Http) -> None:
    for path in (f"{NAMESPACE}/offloadPolicies", f"{NAMESPACE}/entryFilters", f"{TOPIC}/shadowTopics"):
        assert (await http.admin("GET", path)).status == 204
    assert await http.get(f"{NAMESPACE}/offloadThreshold") == -1
    assert (await http.admin("PUT", f"{NAMESPACE}/offloadThreshold", 5)).status == 405
    refused = await http.admin("POST", f"{TOPIC}/entryFilters", {"entryFilterNames": "f"})
    assert (refused.status, refused.reason) == (400, "Entry filter 'f' not found")
    for path in ("failureDomains/x", "namespaceIsolationPolicies", "namespaceIsolationPolicies/brokers"):
        assert (await http.admin("GET", f"/clusters/standalone/{path}")).status == 404
    assert (await http.get("/resource-quotas"))["memory"] == 80.0
    assert (await http.get("/resource-quotas/public/default/0x00000000_0x40000000"))["dynamic"] is True
    assert (await http.admin("GET", "/resource-quotas/public/default/0x1_0x2")).status == 404
    assert await http.get("/bookies/all") == {"bookies": []}
    assert await http.get("/non-persistent/public/default/0x00000000_0x40000000") == []


@pytest.mark.parametrize("at", [NAMESPACE, TOPIC])
async def test_numbers_that_are_beyond_all_others_are_refused(http: Http, at: str) -> None:
    for path, body in (
        ("dispatchRate", {**RATE, "dispatchThrottlingRateInMsg": 10**400}),
        ("publishRate", {"publishThrottlingRateInMsg": 10**400}),
        ("subscribeRate", {"ratePeriodInSecond": 10**400}),
        ("persistence", {"managedLedgerMaxMarkDeleteRate": 10**400}),
    ):
        refused = await http.admin("POST", f"{at}/{path}", body)
        assert refused.status == 400, path
    await http.done("POST", f"{at}/dispatchRate", RATE)
    assert await http.get(f"{TOPIC}/subscriptions") == []
