"""Our decoder and encoder against kio's own writer and reader, at every API and version we serve.

kio is the oracle: what its writer makes of a random message our decoder must read, and what our encoder
makes of a random answer must be, byte for byte, what kio's writer makes of it.
"""

import datetime
from dataclasses import MISSING, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional

from anabranch.wire.kafka.decoder import decode
from anabranch.wire.kafka.encoder import encoder
from anabranch.wire.kafka.schema import newest_version, request_schema, response_schema
from tests.wire.kafka_apis import EVERY_VERSION, IDS
from tests.wire.kafka_messages import FEW, assert_read, entity_of, plain, written


def assert_complete(got: Any, newest: Any) -> None:
    """Every field of the newest version is there, at every depth."""
    for field in fields(newest):
        value = getattr(got, field.name)
        kind = classify_field(field)
        if isinstance(kind, EntityField | EntityTupleField):
            for item in value or () if kind.is_array else (value,) if value is not None else ():
                assert_complete(item, kind.type_)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION, ids=IDS)
@FEW
@given(data=st.data())
def test_requests_are_read_as_kio_wrote_them(key: int, version: int, data: st.DataObject) -> None:
    entity = data.draw(entity_of(request_schema(key, version)))
    body = written(entity)
    got = decode(key, version, memoryview(b"head" + body), 4)
    assert_read(got, entity)
    assert_complete(got, request_schema(key, newest_version(key)))


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION, ids=IDS)
@FEW
@given(data=st.data())
def test_answers_are_written_as_kio_would(key: int, version: int, data: st.DataObject) -> None:
    schema = response_schema(key, version)
    entity = data.draw(entity_of(schema))
    out = bytearray(b"head")
    encoder(key, version)(out, plain(entity))
    read, size = entity_reader(schema)(bytes(out), 4)
    assert (read, size) == (entity, len(out) - 4)
    assert bytes(out[4:]) == written(entity)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION, ids=IDS)
def test_an_answer_without_options_is_written(key: int, version: int) -> None:
    """Fields with a default, the throttle time and the error code may be left out."""
    schema = response_schema(key, version)
    needed = {}
    for field in fields(schema):
        kafka_type = field.metadata.get("kafka_type")
        optional = field.default is not MISSING or is_optional(field) or get_field_tag(field) is not None
        if not optional and kafka_type not in ("timedelta_i32", "error_code"):
            kind = classify_field(field)
            needed[field.name] = (
                [] if kind.is_array else {"string": "", "bool": False}.get(str(kafka_type), 0)
            )
    out = bytearray()
    encoder(key, version)(out, needed)
    read, size = entity_reader(schema)(bytes(out), 0)
    assert size == len(out)
    assert getattr(read, "throttle_time", datetime.timedelta()) == datetime.timedelta()
    assert getattr(read, "error_code", 0) == 0
