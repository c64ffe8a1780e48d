from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.config_properties import parse_properties
from anabranch.base.errors import InvalidConfig
from tests.unit.records.strategies import seeded


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=b", {"a": "b"}),
        ("  a.b = c d  \n", {"a.b": "c d"}),
        ("a: b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a=", {"a": ""}),
        ("a", {"a": ""}),
        ("# no\n! no\n\n \t\na=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("listeners=PLAINTEXT://127.0.0.1:9092", {"listeners": "PLAINTEXT://127.0.0.1:9092"}),
        ("a=b=c", {"a": "b=c"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u0041\\tB\\q", {"a": "A\tBq"}),
        ("a=b\\", {"a": "b"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
    ],
)
def test_java_properties(text: str, entries: dict[str, str]) -> None:
    assert parse_properties(text) == entries


def test_a_name_set_twice_is_named_with_its_line() -> None:
    with pytest.raises(InvalidConfig, match="line 3: a is set twice"):
        parse_properties("a=1\n\na=2")


@seeded()
@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidConfig):
        parse_properties(text)
