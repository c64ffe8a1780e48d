"""Schemas: what producers and consumers bring is kept by version, and checked as the namespace says."""

import json
import time
from typing import Any

from pulsar.schema import Integer, JsonSchema, Record, String, StringSchema
from pulsar_transcript import Transcript, receive

API = "/admin/v2/schemas/public/default/"


class Plain(Record):
    _avro_namespace = "shop"
    id = Integer(required=True)


class Wider(Record):
    _avro_namespace = "shop"
    id = Integer(required=True)
    note = String(default="none", required_default=True)


class Stricter(Record):
    _avro_namespace = "shop"
    id = Integer(required=True)
    customer = String(required=True)


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)})


ID = {"name": "id", "type": "int"}
NOTE = {"name": "note", "type": "string", "default": "none"}
CUSTOMER = {"name": "customer", "type": "string"}


def shown(told: tuple[int, Any]) -> Any:
    """A schema as REST tells it, without the time."""
    status, said = told
    if isinstance(said, dict):
        said.pop("timestamp", None)
        for one in said.get("getSchemaResponses", ()):
            one.pop("timestamp", None)
    return [status, said]


def clients(say: Transcript) -> None:
    client = say.client
    say.section("what clients bring")
    topic = say.topic("json")
    rest = f"{API}{say.prefix}json"
    producer = client.create_producer(topic, schema=JsonSchema(Plain))
    say.line("kept", shown(say.rest("GET", f"{rest}/schema")))
    consumer = client.subscribe(topic, "s", schema=JsonSchema(Plain))
    producer.send(Plain(id=7))
    [message] = receive(consumer, 1)
    say.line("value", message.value().id)
    say.line("version", list(message.schema_version().encode("latin-1")))
    wider = say.attempt("wider", lambda: client.create_producer(topic, schema=JsonSchema(Wider)))
    wider.send(Wider(id=8))
    [message] = receive(consumer, 1)
    say.line("its version", list(message.schema_version().encode("latin-1")))
    say.attempt("stricter", lambda: client.create_producer(topic, schema=JsonSchema(Stricter)))
    say.attempt("another type", lambda: client.create_producer(topic, schema=StringSchema()))
    say.attempt("none", lambda: client.create_producer(topic))
    say.attempt("known again", lambda: client.create_producer(topic, schema=JsonSchema(Plain)))
    say.attempt("reader that cannot", lambda: client.subscribe(topic, "r", schema=JsonSchema(Stricter)))
    say.attempt("reader without", lambda: client.subscribe(topic, "w"))
    say.line("all", [len(shown(say.rest("GET", f"{rest}/schemas"))[1]["getSchemaResponses"])])

    say.section("primitives")
    topic = say.topic("text")
    consumer = client.subscribe(topic, "s", schema=StringSchema())
    say.line("of a consumer", shown(say.rest("GET", f"{API}{say.prefix}text/schema")))
    client.create_producer(topic, schema=StringSchema()).send("ä")
    say.line("value", [message.value() for message in receive(consumer, 1)])
    topic = say.topic("bytes")
    client.create_producer(topic).send(b"x")
    say.line("of bytes", shown(say.rest("GET", f"{API}{say.prefix}bytes/schema")))
    say.attempt("consumer of a topic with bytes", lambda: client.subscribe(topic, "s", schema=StringSchema()))
    say.attempt("producer too", lambda: client.create_producer(topic, schema=StringSchema()))


def administration(say: Transcript) -> None:
    say.section("administration")
    client = say.client
    client.create_producer(say.topic("orders"))
    rest = f"{API}{say.prefix}orders"

    def post(label: str, what: str, type: str, text: str) -> None:
        body = {"type": type, "schema": text, "properties": {"of": "us"}}
        say.line(label, shown(say.rest("POST", f"{rest}/{what}", body)))

    say.line("none yet", say.rest("GET", f"{rest}/schema"))
    post("first", "schema", "AVRO", avro(ID))
    post("again", "schema", "AVRO", avro(ID))
    post("wider", "schema", "AVRO", avro(ID, NOTE))
    post("stricter", "schema", "AVRO", avro(ID, CUSTOMER))
    post("another type", "schema", "STRING", "")
    post("nonsense", "schema", "AVRO", "{")
    post("wider is compatible", "compatibility", "AVRO", avro(ID, NOTE))
    post("version of the first", "version", "AVRO", avro(ID))
    say.line("latest", shown(say.rest("GET", f"{rest}/schema")))
    say.line("by version", shown(say.rest("GET", f"{rest}/schema/0")))
    say.line("beyond", shown(say.rest("GET", f"{rest}/schema/7")))
    say.line("all", shown(say.rest("GET", f"{rest}/schemas")))
    say.line("deleted", say.rest("DELETE", f"{rest}/schema"))
    say.line("gone", say.rest("GET", f"{rest}/schema"))
    post("another now", "schema", "AVRO", avro(CUSTOMER))
    say.line("no topic", say.rest("GET", f"{API}{say.prefix}nowhere/schema"))
    say.line("no namespace", say.rest("GET", "/admin/v2/schemas/public/nowhere/t/schema"))


def strategies(say: Transcript) -> None:
    say.section("strategies")
    for strategy in (
        "BACKWARD",
        "FORWARD",
        "FULL",
        "FULL_TRANSITIVE",
        "ALWAYS_COMPATIBLE",
        "ALWAYS_INCOMPATIBLE",
    ):
        space = f"{say.prefix}{strategy.lower()}"
        assert say.rest("PUT", f"/admin/v2/namespaces/public/{space}", {})[0] == 204
        told = say.rest("PUT", f"/admin/v2/namespaces/public/{space}/schemaCompatibilityStrategy", strategy)
        assert told[0] == 204
        say.client.create_producer(f"persistent://public/{space}/t")
        for label, fields in (
            ("first", (ID, NOTE)),
            ("less", (ID,)),
            ("more", (ID, NOTE, CUSTOMER)),
            ("optional", (ID, {**CUSTOMER, "default": ""})),
        ):
            body = {"type": "AVRO", "schema": avro(*fields), "properties": {}}
            said = say.rest("POST", f"/admin/v2/schemas/public/{space}/t/schema", body)
            say.line(f"{strategy} {label}", said)


def enforcement(say: Transcript) -> None:
    say.section("what a namespace asks for")
    space = f"{say.prefix}strict"
    base = f"/admin/v2/namespaces/public/{space}"
    assert say.rest("PUT", base, {})[0] == 204
    topic = f"persistent://public/{space}/t"
    producer = say.client.create_producer(topic, schema=JsonSchema(Plain))
    producer.close()
    say.line("schemas are asked for", say.rest("POST", f"{base}/schemaValidationEnforced", True)[0])
    say.line("no updates", say.rest("POST", f"{base}/isAllowAutoUpdateSchema", False)[0])
    time.sleep(1)  # Pulsar takes a moment to hear of it
    say.attempt("without", lambda: say.client.create_producer(topic))
    say.attempt("known", lambda: say.client.create_producer(topic, schema=JsonSchema(Plain)))
    say.attempt("new", lambda: say.client.create_producer(topic, schema=JsonSchema(Wider)))


def main() -> None:
    say = Transcript(__doc__)
    clients(say)
    administration(say)
    strategies(say)
    enforcement(say)
    say.client.close()


if __name__ == "__main__":
    main()
