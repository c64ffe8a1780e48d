"""Whatever somebody sends as a schema: it is one, or InvalidSchema; so is comparing two of them."""

import json
from base64 import b64encode
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from anabranch.schemas.errors import InvalidSchema
from anabranch.schemas.reading import formatted, read, why_not
from anabranch.schemas.schema import AVRO, JSON, PROTOBUF, Schema
from anabranch.schemas.strategy import Strategy
from tests.unit.records.strategies import seeded

WORDS = st.sampled_from(
    [
        *("type", "name", "namespace", "fields", "items", "values", "symbols", "size", "default", "aliases"),
        *(
            "record",
            "enum",
            "fixed",
            "array",
            "map",
            "null",
            "int",
            "string",
            "long",
            "a.B",
            "B",
            "logicalType",
        ),
        *("object", "properties", "required", "$ref", "$id", "$schema", "#", "#/a", "oneOf", "allOf", "not"),
        *("enum", "const", "additionalProperties", "patternProperties", "dependencies", "minimum", "if"),
        *(
            "http://json-schema.org/draft-04/schema#",
            "https://json-schema.org/draft/2020-12/schema",
            "^a",
            "",
        ),
        *("prefixItems", "unevaluatedItems", "multipleOf", "decimal", "precision", "scale", "doc", "order"),
    ]
)
SCALARS = st.one_of(
    WORDS, st.none(), st.booleans(), st.integers(-2, 1 << 70), st.floats(allow_nan=False), st.text(max_size=3)
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=5)),
    max_leaves=25,
)


def likely(inner: Any) -> Any:
    """What is an Avro schema more often than not."""
    field = st.fixed_dictionaries(
        {"name": WORDS, "type": inner}, optional={"default": SCALARS, "aliases": ANYTHING}
    )
    record = st.fixed_dictionaries(
        {"type": st.just("record"), "name": WORDS, "fields": st.lists(field, max_size=3)},
        optional={"namespace": WORDS, "doc": SCALARS},
    )
    wrapped = [
        st.fixed_dictionaries({"type": st.just(kind), name: inner})
        for kind, name in (("array", "items"), ("map", "values"))
    ]
    return st.one_of(record, *wrapped, st.lists(inner, max_size=3))


AVRO_LIKE = st.recursive(WORDS, likely, max_leaves=12)


def try_out(schemas: list[Schema]) -> None:
    kept = []
    for schema in schemas:
        try:
            kept.append(read(schema, {}).schema)
            kept.append(read(schema, {}, normalize=True).schema)
            formatted(kept[-1], {}, "resolved")
        except InvalidSchema:
            continue
    for new in kept:
        for old in kept:
            try:
                why_not(new, old, ({}, {}), Strategy.FULL, lenient=False)
            except InvalidSchema:
                continue


@seeded(150)
@given(st.lists(st.one_of(ANYTHING, AVRO_LIKE), min_size=2, max_size=2), st.sampled_from([AVRO, JSON]))
def test_json_of_any_kind(told: list[Any], type: str) -> None:
    try_out([Schema(json.dumps(one), type) for one in told])


@seeded(150)
@given(st.lists(st.binary(max_size=60), min_size=2, max_size=2))
def test_descriptors_of_any_kind(told: list[bytes]) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="f", syntax="proto3")
    file.message_type.add(name="M")
    whole = file.SerializeToString()
    try_out([Schema(b64encode(whole + one).decode(), PROTOBUF) for one in told])


@pytest.mark.parametrize("type", [AVRO, JSON])
@given(text=st.text(max_size=40))
@seeded(50)
def test_text_of_any_kind(type: str, text: str) -> None:
    try_out([Schema(text, type)])
