"""Values that a table with expectations cannot take, whatever reads them: dead letters, and none is lost."""

import json
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer

from anabranch.pipelines.project import create
from tests.pipelines.conftest import finish, letters_in, on_spark, rows_of
from tests.spark.conftest import Topics
from tests.support.broker import BrokerProcess

DEFINITIONS = """
from anabranch import pipelines as ab

@ab.table(dead_letters="payments-dead")
@ab.expect("is positive", "amount > 0")
def payments():
    return ab.read_topic("payments", "registry")

@ab.table
def documents():
    return ab.read_topic("documents", "number bigint, note string")
"""
SCHEMA = {"type": "record", "name": "Payment", "fields": [{"name": "amount", "type": "long"}]}
DOCUMENTS = {
    b'{"number": 1}': None,
    b'{"number": 2, "note": "\xc3\xa9"}\n': None,
    b'{"number": 3}\n{"number": 4}': "several",
    b'{"number": 5} and more': "more",
    b'{"number": 6, "note": "\xff"}': "not UTF-8",
    b"": "nothing",
}


def register(broker: BrokerProcess, subject: str) -> bytes:
    """The schema's frame: what stands before a value."""
    body = json.dumps({"schema": json.dumps(SCHEMA)}).encode()
    request = urllib.request.Request(
        f"{broker.admin}/subjects/{subject}/versions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return b"\0" + int(json.load(answer)["id"]).to_bytes(4, "big")


def test_every_value_is_a_row_or_a_dead_letter(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = Topics(broker.bootstrap)
    for name in ("payments", "payments-dead", "documents", "documents-dead-letters"):
        topics.create(1, name)
    frame = register(broker, "payments-value")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    unknown = b"\0\x7f\xff\xff\xff\x0a"
    for key, value in {"good": b"\x0a", "less": b"\x09", "long": b"\x0a\x0a"}.items():
        producer.produce("payments", frame + value, key=key, headers={"from": b"test"})
    for key, whole in {"none": None, "plain": b"5", "unknown": unknown}.items():
        producer.produce("payments", whole, key=key)
    for document in DOCUMENTS:
        producer.produce("documents", document)
    assert producer.flush(30) == 0

    monkeypatch.setenv("ANABRANCH_HTTP", broker.admin)
    made = create(tmp_path / "values", example=False)
    for file in made.files():
        file.unlink()
    (made.folder / "transformations" / "values.py").write_text(DEFINITIONS)
    code, _, complained = finish(on_spark(made.folder, broker.bootstrap, "run", "--json"))
    assert (code, complained) == (0, "")

    assert made.local_storage is not None
    tables = made.local_storage / "tables"
    assert rows_of(tables / "payments") == [{"amount": 5}]
    letters = {letter.key: letter for letter in letters_in(broker.bootstrap, "payments-dead")}
    assert {key: letter.value for key, letter in letters.items()} == {
        "less": b'{"amount":-5}',
        "long": frame + b"\x0a\x0a",
        "none": b"",
        "plain": b"5",
        "unknown": unknown,
    }
    reasons = {key: letter.headers["dead-letter.reason"] for key, letter in letters.items()}
    assert reasons.pop("unknown").startswith("the value: its schema is not to be had")
    assert reasons == {
        "less": "is positive",
        "long": "the value: there is more after its end",
        "none": "there is no value",
        "plain": "the value: it does not begin with the id of a schema",
    }
    assert letters["less"].headers["from"] == letters["long"].headers["from"] == "test"

    numbers = sorted((row["number"], row["note"]) for row in rows_of(tables / "documents"))
    assert numbers == [(1, None), (2, "é")]
    dead = letters_in(broker.bootstrap, "documents-dead-letters")
    assert [letter.value for letter in dead] == [one for one, wrong in DOCUMENTS.items() if wrong]
