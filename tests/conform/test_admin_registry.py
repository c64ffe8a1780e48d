"""The registry that Kafka's users know, over HTTP: what is answered, by which numbers it is refused."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.http import Http, http_broker
from tests.support.stalls import Stalls

MEDIA = "application/vnd.schemaregistry.v1+json"


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Http]:
    async with http_broker(tmp_path) as broker:
        yield broker


def avro(*fields: str, **optional: Any) -> dict[str, Any]:
    told: list[dict[str, Any]] = [{"name": field, "type": "int"} for field in fields]
    told += [{"name": field, "type": "int", "default": value} for field, value in optional.items()]
    return {"schema": json.dumps({"type": "record", "name": "R", "fields": told})}


async def ask(http: Http, method: str, path: str, body: object = None) -> Any:
    """What is answered; of a refusal its number."""
    answer = await http.ask(method, path, body)
    assert answer.headers["content-type"] == MEDIA, answer
    told = answer.json
    if answer.status == 200:
        return told
    code = told["error_code"]
    assert told["message"]
    assert (code if code < 1000 else code // 100) == answer.status
    return code


async def test_registering_and_finding(http: Http) -> None:
    versions = "/subjects/orders-value/versions"
    first = await ask(http, "POST", versions, avro("a"))
    assert (first["id"], first["version"], first["subject"]) == (1, 1, "orders-value")
    assert (await ask(http, "POST", versions, avro("a", b=0)))["id"] == 2
    assert (await ask(http, "POST", f"{versions}?normalize=true", avro("a")))["id"] == 1
    assert await ask(http, "GET", "/subjects") == ["orders-value"]
    assert await ask(http, "GET", "/subjects?subjectPrefix=x") == []
    assert await ask(http, "GET", versions) == [1, 2]
    assert await ask(http, "GET", f"{versions}?offset=1&limit=5") == [2]
    latest = await ask(http, "GET", f"{versions}/latest")
    assert latest == {**latest, "version": 2, "id": 2, "subject": "orders-value"}
    assert "schemaType" not in latest
    assert (await http.ask("GET", f"{versions}/1/schema")).json["name"] == "R"
    assert (await ask(http, "POST", "/subjects/orders-value", avro("a")))["version"] == 1
    by_id = await ask(http, "GET", "/schemas/ids/1?fetchMaxId=true")
    assert by_id["maxId"] == 2
    assert by_id["schema"] == '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    assert (await http.ask("GET", "/schemas/ids/1/schema")).json["name"] == "R"
    assert (await ask(http, "GET", f"/schemas/guids/{first['guid']}"))["schema"] == by_id["schema"]
    assert await ask(http, "GET", "/schemas/ids/1/subjects") == ["orders-value"]
    assert await ask(http, "GET", "/schemas/ids/2/versions") == [{"subject": "orders-value", "version": 2}]
    assert await ask(http, "GET", "/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    assert [one["version"] for one in await ask(http, "GET", "/schemas")] == [1, 2]
    assert [one["version"] for one in await ask(http, "GET", "/schemas?latestOnly=true")] == [2]
    assert await ask(http, "GET", "/contexts") == ["."]
    assert (await ask(http, "GET", "/v1/metadata/version"))["version"]
    assert (await ask(http, "GET", "/v1/metadata/id"))["scope"]["clusters"]["kafka-cluster"]


async def test_refusals(http: Http) -> None:
    await ask(http, "POST", "/subjects/s/versions", avro("a"))
    refused = {
        ("GET", "/subjects/none/versions"): 40401,
        ("GET", "/subjects/none/versions/1"): 40401,
        ("GET", "/subjects/s/versions/7"): 40402,
        ("GET", "/subjects/s/versions/0"): 42202,
        ("GET", "/subjects/s/versions/first"): 42202,
        ("GET", "/subjects/s/versions/99999999999"): 42202,
        ("GET", "/subjects/s/versions/" + "0" * 10 + "1" * 5000): 42202,
        ("GET", "/schemas/ids/7"): 40403,
        ("GET", "/schemas/ids/99999999999999999999"): 404,
        ("GET", "/schemas/ids/7/versions"): 40403,
        ("GET", "/schemas/guids/nothing"): 40403,
        ("GET", "/config/s"): 40408,
        ("GET", "/mode/s"): 40409,
        ("DELETE", "/subjects/none"): 40401,
        ("DELETE", "/subjects/s?permanent=true"): 40405,
        ("DELETE", "/subjects/s/versions/1?permanent=true"): 40407,
        ("DELETE", "/config/s"): 40401,
        ("DELETE", "/mode/s"): 40401,
        ("GET", "/subjects/%0A/versions"): 42208,
    }
    for (method, path), code in refused.items():
        assert await ask(http, method, path) == code, path
    posted: list[tuple[str, str, object, int]] = [
        ("POST", "/subjects/s/versions", avro("b"), 409),
        ("POST", "/subjects/s/versions", {"schema": "{"}, 42201),
        ("POST", "/subjects/s/versions", {}, 42201),
        ("POST", "/subjects/s/versions", None, 400),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "schemaType": "THRIFT"}, 42201),
        ("POST", "/subjects/s/versions", {"schema": "x" * 300_000}, 42209),
        ("POST", "/subjects/s/versions", {**avro("c"), "id": 7}, 42205),
        ("POST", "/subjects/s/versions", {"schema": 7}, 400),
        ("POST", "/subjects/none", avro("a"), 40401),
        ("POST", "/subjects/s", avro("b"), 40403),
        ("PUT", "/config", {"compatibility": "SOMETIMES"}, 42203),
        ("PUT", "/config", {"compatibilityPolicy": "SOMETIMES"}, 422),
        ("PUT", "/config/s", {"defaultMetadata": {"properties": {"a": "b"}}}, 422),
        ("PUT", "/mode", {"mode": "SOMETIMES"}, 42204),
        ("PUT", "/mode", {"mode": "IMPORT"}, 42205),
    ]
    for method, path, body, code in posted:
        assert await ask(http, method, path, body) == code, (path, str(body)[:80])


async def test_deleting(http: Http) -> None:
    await ask(http, "POST", "/subjects/s/versions", avro("a"))
    await ask(http, "POST", "/subjects/s/versions", avro("a", b=0))
    assert await ask(http, "DELETE", "/subjects/s/versions/latest") == 2
    assert await ask(http, "GET", "/subjects/s/versions?deleted=true") == [1, 2]
    assert (await ask(http, "GET", "/subjects/s/versions/2?deleted=true"))["deleted"]
    assert await ask(http, "DELETE", "/subjects/s") == [1]
    assert await ask(http, "GET", "/subjects") == []
    assert await ask(http, "GET", "/subjects?deletedOnly=true") == ["s"]
    assert await ask(http, "DELETE", "/subjects/s") == 40404
    assert await ask(http, "DELETE", "/subjects/s?permanent=true") == [1, 2]
    assert await ask(http, "DELETE", "/subjects/s") == 40401


async def test_levels_and_modes(http: Http) -> None:
    assert (await ask(http, "GET", "/config"))["compatibilityLevel"] == "BACKWARD"
    await ask(http, "POST", "/subjects/s/versions", avro("a"))
    check = "/compatibility/subjects/s/versions"
    assert await ask(http, "POST", f"{check}/latest", avro("b")) == {"is_compatible": False}
    told = await ask(http, "POST", f"{check}?verbose=true", avro("b"))
    assert any("READER_FIELD_MISSING_DEFAULT_VALUE" in line for line in told["messages"])
    assert await ask(http, "PUT", "/config/s", {"compatibility": "none"}) == {"compatibility": "none"}
    assert (await ask(http, "GET", "/config/s"))["compatibilityLevel"] == "NONE"
    assert await ask(http, "POST", check, avro("b")) == {"is_compatible": True}
    assert (await ask(http, "DELETE", "/config/s"))["compatibilityLevel"] == "NONE"
    await ask(http, "PUT", "/config", {"compatibility": "FORWARD", "normalize": True})
    assert await ask(http, "POST", check, avro("a", "b")) == {"is_compatible": True}
    effective = await ask(http, "GET", "/config/s?defaultToGlobal=true")
    assert effective == {"compatibilityLevel": "FORWARD", "normalize": True}
    await ask(http, "DELETE", "/config")
    assert (await ask(http, "GET", "/config"))["compatibilityLevel"] == "BACKWARD"
    assert await ask(http, "PUT", "/mode/s", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert await ask(http, "POST", "/subjects/s/versions", avro("a", b=0)) == 42205
    assert await ask(http, "DELETE", "/mode/s") == {"mode": "READONLY"}
    assert await ask(http, "GET", "/mode/s?defaultToGlobal=true") == {"mode": "READWRITE"}
    await ask(http, "PUT", "/mode?force=true", {"mode": "IMPORT"})
    assert (await ask(http, "POST", "/subjects/t/versions", {**avro("z"), "id": 50, "version": 3}))[
        "version"
    ] == 3
    assert await ask(http, "PUT", "/mode", {"mode": "IMPORT"}) == {"mode": "IMPORT"}, "it is so already"
    assert await ask(http, "PUT", "/mode/t", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert await ask(http, "DELETE", "/mode") == {"mode": "IMPORT"}


async def test_other_names_and_metadata(http: Http) -> None:
    await ask(http, "POST", "/subjects/s/versions", {**avro("a"), "metadata": {"properties": {"v": "1"}}})
    await ask(
        http, "POST", "/subjects/s/versions", {**avro("a", b=0), "metadata": {"properties": {"v": "2"}}}
    )
    await ask(http, "PUT", "/config/other", {"alias": "s"})
    assert (await ask(http, "GET", "/subjects/other/versions/latest"))["subject"] == "s"
    found = await ask(http, "GET", "/subjects/s/metadata?key=v&value=1")
    assert (found["version"], found["metadata"]) == (1, {"properties": {"v": "1"}})
    assert await ask(http, "GET", "/subjects/s/metadata?key=v&value=3") == 40403


async def test_one_registry(http: Http) -> None:
    """What Pulsar's face sees of Kafka's, and the reverse; whose rules hold."""
    topic, schemas = "/persistent/public/default/orders", "/schemas/public/default/orders"
    await http.done("PUT", topic)
    posted = {"type": "AVRO", "schema": avro("a")["schema"], "properties": {}}
    assert (await http.admin("POST", f"{schemas}/schema", posted)).status == 200
    assert (await ask(http, "GET", "/subjects/orders-value/versions/1"))["id"] == 1
    assert (await ask(http, "POST", "/subjects/orders-value/versions", avro("a", b=0)))["version"] == 2
    assert (await http.get(f"{schemas}/schema"))["version"] == 1
    more = {**posted, "schema": avro("a", "b", "c")["schema"]}
    assert (await http.admin("POST", f"{schemas}/schema", more)).status == 409
    await ask(http, "PUT", "/config/orders-value", {"compatibility": "FORWARD"})
    assert (await http.admin("POST", f"{schemas}/schema", more)).status == 200
    await ask(http, "DELETE", "/config/orders-value")
    policy = "/namespaces/public/default/schemaCompatibilityStrategy"
    await http.done("PUT", policy, "ALWAYS_INCOMPATIBLE")
    assert await ask(http, "POST", "/subjects/orders-value/versions", avro("a", "b", "c", d=0)) == 409
    level = await ask(http, "GET", "/config/orders-value?defaultToGlobal=true")
    assert level == {"compatibilityLevel": "FULL_TRANSITIVE"}
    assert (await ask(http, "POST", "/subjects/alone/versions", avro("a")))["version"] == 1
    await http.done("DELETE", topic)
    assert await ask(http, "GET", "/subjects/orders-value/versions") == 40401
    assert await ask(http, "GET", "/subjects") == ["alone"]


def tangled(title: str) -> dict[str, Any]:
    """Everything in it refers to everything in it."""
    names = [f"n{n}" for n in range(40)]
    each = {
        name: {"oneOf": [{"not": {"$ref": f"#/definitions/{other}"}} for other in names]} for name in names
    }
    text = json.dumps({"title": title, "definitions": each, "$ref": "#/definitions/n0"})
    return {"schema": text, "schemaType": "JSON"}


async def test_it_goes_on_serving_while_somebody_wants_to_hurt_it(http: Http) -> None:
    await ask(http, "POST", "/subjects/s/versions", tangled("one"))
    hurting = [
        tangled("another"),
        {"schema": '{"type":"array","items":' * 10_000},
        {"schema": "message M {" * 20_000, "schemaType": "PROTOBUF"},
    ]
    under_way = [
        asyncio.ensure_future(ask(http, "POST", "/subjects/s/versions", body)) for body in hurting * 2
    ]
    slowest_s = 0.0
    with Stalls() as stalls:
        while not all(one.done() for one in under_way):
            began = time.monotonic()
            assert await ask(http, "GET", "/subjects/s/versions") == [1]
            slowest_s = max(slowest_s, time.monotonic() - began)
            await asyncio.sleep(0.02)
    assert {one.result() for one in under_way} == {42201}
    assert slowest_s < 2 + stalls.longest_s
