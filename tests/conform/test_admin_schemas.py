"""Schemas of topics over HTTP.  What Pulsar answers is in tests/compat/pulsar_transcripts/schemas.txt."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.clock import SystemClock
from anabranch.base.executors import thread_pool
from anabranch.schemas.definition import Definition
from anabranch.schemas.registry import Registry
from anabranch.schemas.strategy import Strategy
from anabranch.schemas.subject_store import SubjectStore
from tests.support.http import Http, http_broker

TOPIC = "/persistent/public/default/orders"
SCHEMAS = "/schemas/public/default/orders"


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Http]:
    async with http_broker(tmp_path) as broker:
        await broker.done("PUT", TOPIC)
        yield broker


def avro(*fields: str) -> str:
    told = [{"name": name, "type": "int"} for name in fields]
    return json.dumps({"type": "record", "name": "R", "fields": told})


def posted(type: str, text: str = "", **properties: str) -> dict[str, Any]:
    return {"type": type, "schema": text, "properties": properties}


async def post(http: Http, what: str, body: dict[str, Any]) -> tuple[int, Any]:
    answer = await http.admin("POST", f"{SCHEMAS}/{what}", body)
    return answer.status, answer.json


async def test_a_key_and_a_value(http: Http) -> None:
    types = {"key.schema.type": "STRING", "value.schema.type": "AVRO"}
    text = json.dumps({"key": "", "value": json.loads(avro("a"))})
    assert await post(http, "schema", posted("KEY_VALUE", text, **types)) == (
        200,
        {"version": {"version": 0}},
    )
    told = await http.get(f"{SCHEMAS}/schema")
    assert (told["type"], json.loads(told["data"]), told["properties"]) == (
        "KEY_VALUE",
        json.loads(text),
        types,
    )
    assert (await post(http, "schema", posted("KEY_VALUE", "[]", **types)))[0] == 422


async def test_asking_whether(http: Http) -> None:
    assert (await post(http, "schema", posted("AVRO", avro("a"))))[0] == 200
    status, told = await post(http, "compatibility", posted("AVRO", avro("b")))
    assert (status, told) == (202, {"compatibility": False, "schemaCompatibilityStrategy": "FULL"})
    assert (await post(http, "version", posted("AVRO", avro("b"))))[0] == 404
    assert (await post(http, "schema", posted("AVRO", avro("b"))))[0] == 409


@pytest.mark.parametrize(
    "body",
    [posted("NOTHING"), posted("AVRO", "["), posted("KEY_VALUE", '{"key": "", "value": ""}')],
    ids=lambda body: body["type"],
)
async def test_what_is_no_schema(http: Http, body: dict[str, Any]) -> None:
    assert (await post(http, "schema", body))[0] == 422


async def test_deleting_so_that_versions_start_again(http: Http) -> None:
    assert (await http.admin("DELETE", f"{SCHEMAS}/schema")).status == 404
    await post(http, "schema", posted("STRING"))
    assert (await http.admin("DELETE", f"{SCHEMAS}/schema?force=true")).json == {"version": 1}
    assert await post(http, "schema", posted("INT32")) == (200, {"version": {"version": 0}})


async def test_schemas_go_with_their_topic(http: Http) -> None:
    assert (await post(http, "schema", posted("STRING")))[0] == 200
    await http.done("DELETE", TOPIC)
    assert (await http.admin("GET", f"{SCHEMAS}/schema")).status == 404
    await http.done("PUT", TOPIC)
    assert (await http.admin("GET", f"{SCHEMAS}/schema")).status == 404
    assert await post(http, "schema", posted("INT32")) == (200, {"version": {"version": 0}})


async def test_two_topics_of_one_name_share(http: Http) -> None:
    other = TOPIC.replace("/persistent", "/non-persistent")
    await http.done("PUT", f"{other}/partitions", 1)
    assert (await post(http, "schema", posted("STRING")))[0] == 200
    await http.done("DELETE", TOPIC)
    await http.done("PUT", TOPIC)
    assert (await http.get(f"{SCHEMAS}/schema"))["type"] == "STRING"
    await http.done("DELETE", TOPIC)
    await http.done("DELETE", f"{other}/partitions")
    await http.done("PUT", TOPIC)
    assert (await http.admin("GET", f"{SCHEMAS}/schema")).status == 404


async def test_topics_that_went_while_nobody_looked(tmp_path: Path) -> None:
    ghost = Definition("STRING")
    async with http_broker(tmp_path) as http:
        registry = Registry(SubjectStore(http.node.parts.store, SystemClock(), thread_pool))
        await registry.register(
            "ghost-value", ghost, Strategy.FULL, topic="persistent://public/default/ghost"
        )
        await registry.register("alone-value", ghost, Strategy.FULL)
    async with http_broker(tmp_path) as http:
        await http.done("PUT", TOPIC)  # the start is behind us
        subjects = SubjectStore(http.node.parts.store, SystemClock(), thread_pool)
        assert await subjects.subjects() == ["alone-value"]


async def test_what_is_damaged_stops_nobody(tmp_path: Path) -> None:
    async with http_broker(tmp_path) as http:
        await http.done("PUT", TOPIC)
        await http.node.parts.store.put("/schemas/subjects/orders-value", b"{")
    async with http_broker(tmp_path) as http:
        assert (await http.admin("GET", f"{SCHEMAS}/schema")).status == 500
        assert http.node.failed is not None
        assert not http.node.failed.done()
        await http.done("DELETE", TOPIC)
        assert (await http.get("/persistent/public/default")) == []


async def test_a_schema_may_come_before_its_topic(http: Http) -> None:
    early = "/schemas/public/default/early"
    assert (await http.admin("GET", f"{early}/schema")).status == 404
    answer = await http.admin("POST", f"{early}/schema", posted("AVRO", avro("a")))
    assert (answer.status, answer.json) == (200, {"version": {"version": 0}})
    assert (await http.get(f"{early}/schema"))["version"] == 0
    await http.done("PUT", "/persistent/public/default/early")
    assert (await http.get(f"{early}/schema"))["version"] == 0
    nowhere = await http.admin("POST", "/schemas/public/nowhere/t/schema", posted("AVRO", avro("a")))
    assert nowhere.status == 404
