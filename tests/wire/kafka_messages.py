"""Random messages of any schema, and how kio's objects compare with ours."""

import datetime
import io
from dataclasses import Field, fields
from functools import cache
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from kio.serial import entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

from anabranch.wire.kafka.schema import ErrorCode

FEW = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def milliseconds(bits: int) -> st.SearchStrategy[datetime.timedelta]:
    most = (1 << min(bits, 48) - 1) - 1
    return st.integers(0, most).map(lambda ms: datetime.timedelta(milliseconds=ms))


PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": whole(8),
    "int16": whole(16),
    "int32": whole(32),
    "int64": whole(64),
    "uint16": st.integers(0, (1 << 16) - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=12),
    "bytes": st.binary(max_size=40),
    "records": st.binary(max_size=200),
    "uuid": st.uuids() | st.none(),
    "error_code": st.sampled_from(list(ErrorCode)),
    "timedelta_i32": milliseconds(32),
    "timedelta_i64": milliseconds(64),
    "datetime_i64": st.integers(0, 1 << 40).map(
        lambda ms: (
            datetime.datetime.fromtimestamp(ms // 1000, datetime.UTC)
            + datetime.timedelta(milliseconds=ms % 1000)
        )
    ),
}


def value_of(field: "Field[Any]") -> st.SearchStrategy[Any]:
    kind = classify_field(field)
    if isinstance(kind, EntityField | EntityTupleField):
        one = entity_of(kind.type_)
    else:
        one = PRIMITIVES[field.metadata["kafka_type"]]
    value = st.lists(one, max_size=3).map(tuple) if kind.is_array else one
    return value | st.none() if is_optional(field) else value


@cache
def entity_of(schema: Any) -> st.SearchStrategy[Any]:
    return st.builds(schema, **{field.name: value_of(field) for field in fields(schema)})


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def plain(value: Any) -> Any:
    """A message as the decoder would give it, and as the encoder takes it."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, ErrorCode):
        return int(value)
    if hasattr(value, "__flexible__"):
        values = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        times = {field.name for field in fields(value) if field.metadata.get("kafka_type") == "datetime_i64"}
        return {name: -1 if item is None and name in times else item for name, item in values.items()}
    return value


def assert_read(got: Any, meant: Any) -> None:
    """`got`, from the decoder, is what the kio entity `meant` says; it may have more fields."""
    if isinstance(meant, tuple):
        assert len(got) == len(meant)
        for ours, theirs in zip(got, meant, strict=True):
            assert_read(ours, theirs)
    elif hasattr(meant, "__flexible__"):
        for field in fields(meant):
            assert_read(getattr(got, field.name), getattr(meant, field.name))
    else:
        assert (bytes(got) if isinstance(got, memoryview) else got) == plain(meant)
