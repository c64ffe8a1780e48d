from dataclasses import FrozenInstanceError, dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.config import (
    INT_MAX,
    LONG_MAX,
    Kind,
    Option,
    at_least,
    between,
    closest,
    one_of,
    option,
    options_of,
    section,
    some_of,
)
from anabranch.base.errors import InvalidConfig
from tests.unit.records.strategies import seeded


def declared(kind: Kind, check=None, default=None) -> Option:
    return Option("some.name", kind, default, "What it does.", check)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, "true", True),
        (Kind.BOOLEAN, " FALSE ", False),
        (Kind.INT, "+5", 5),
        (Kind.INT, " -2147483648 ", -INT_MAX - 1),
        (Kind.SHORT, "32767", 32767),
        (Kind.LONG, "9223372036854775807", LONG_MAX),
        (Kind.DOUBLE, "1e-1", 0.1),
        (Kind.STRING, " a b ", "a b"),
        (Kind.LIST, "", ()),
        (Kind.LIST, " b , a,b ", ("b", "a")),
    ],
)
def test_reads_what_kafka_reads(kind: Kind, text: str, value: object) -> None:
    assert declared(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (Kind.BOOLEAN, "yes", "Expected value to be either true or false"),
        (Kind.INT, "2147483648", "Not a number of type INT"),
        (Kind.INT, "1_0", "Not a number of type INT"),
        (Kind.INT, "", "Not a number of type INT"),
        (Kind.INT, "9" * 5000, "Not a number of type INT"),
        (Kind.SHORT, "32768", "Not a number of type SHORT"),
        (Kind.LONG, "1.5", "Not a number of type LONG"),
        (Kind.DOUBLE, "x", "Not a number of type DOUBLE"),
        (Kind.DOUBLE, "NaN", "Not a number of type DOUBLE"),
        (Kind.DOUBLE, "1_0", "Not a number of type DOUBLE"),
    ],
)
def test_refuses_in_kafkas_words(kind: Kind, text: str, why: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        declared(kind).parse(text)
    assert str(caught.value) == f"Invalid value {text} for configuration some.name: {why}"


def test_an_empty_item_of_a_list_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="values must not be empty"):
        declared(Kind.LIST).parse("a,,b")


@pytest.mark.parametrize(
    ("check", "kind", "text", "why"),
    [
        (at_least(1), Kind.INT, "0", "Value must be at least 1"),
        (between(0, 1), Kind.DOUBLE, "1.5", "Value must be no more than 1"),
        (between(0, 1), Kind.DOUBLE, "-0.1", "Value must be at least 0"),
        (one_of("a", "b"), Kind.STRING, "A", "String must be one of: a, b"),
        (some_of("a", "b"), Kind.LIST, "c", "String must be one of: a, b"),
    ],
)
def test_checks_say_what_is_allowed(check, kind: Kind, text: str, why: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        declared(kind, check).parse(text)
    assert str(caught.value) == f"Invalid value {text} for configuration some.name: {why}"


def test_a_password_is_not_in_the_complaint() -> None:
    secret = declared(Kind.PASSWORD, lambda value: "Too short")
    assert secret.sensitive
    with pytest.raises(InvalidConfig) as caught:
        secret.parse("hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1, "1.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1e-4, "1.0E-4"),
        (-2.5e-7, "-2.5E-7"),
        (9999999.0, "9999999.0"),
        (float("inf"), "Infinity"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert declared(Kind.DOUBLE).dump(value) == text


@seeded()
@given(st.floats(allow_nan=False))
def test_a_double_survives_its_string(value: float) -> None:
    kind = declared(Kind.DOUBLE)
    text = kind.dump(value)
    assert text is not None
    assert kind.parse(text) == value


def test_values_are_written_as_kafka_writes_them() -> None:
    assert declared(Kind.BOOLEAN).dump(True) == "true"
    assert declared(Kind.LIST).dump(("a", "b")) == "a,b"
    assert declared(Kind.LONG).dump(-1) == "-1"
    assert declared(Kind.LONG).dump(None) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pump:
    litres: int = option("pump.litres", Kind.INT, 7, at_least(1), "How much.")
    colours: tuple[str, ...] = option("pump.colours", Kind.LIST, ("red",), None, "Which.")


def test_a_section_is_built_from_strings() -> None:
    assert Pump() == section(Pump, {}) == Pump(litres=7, colours=("red",))
    pump = section(Pump, {"pump.litres": "3", "other.name": "x"})
    assert pump == Pump(litres=3)
    with pytest.raises(FrozenInstanceError):
        pump.litres = 4  # type: ignore[misc]
    with pytest.raises(InvalidConfig, match=r"pump\.litres"):
        section(Pump, {"pump.litres": "0"})


def test_the_options_of_a_section() -> None:
    options = options_of(Pump)
    assert list(options) == ["litres", "colours"]
    assert options["litres"].name == "pump.litres"
    assert options["litres"].doc == "How much."


def test_a_mistyped_name_is_recognised() -> None:
    assert closest("pump.liters", ["pump.litres", "pump.colours"]).startswith("; did you mean pump.litres")
    assert closest("zebra", ["pump.litres"]) == ""
