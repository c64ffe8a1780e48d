"""Configuration: one small frozen class per part, declared option by option.

A part writes down what it can be told, once:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class TopicsConfig:
        num_partitions: int = option("num.partitions", Kind.INT, 1, at_least(1), "Partitions of a new topic.")

and everything else follows from the declaration: `section(TopicsConfig, {"num.partitions": "3"})` builds
the class from strings, `options_of(TopicsConfig)` lists the options for whoever describes, documents or
checks them.  Nobody sees another part's options, and an option that is not declared does not exist.

Names, types, defaults and bounds are Kafka's where Kafka has the option.  Strings are read and written as
Kafka's ConfigDef does it, because clients compare them:

    boolean  "true" / "false" in any case          list    "a,b": trimmed, without repeats, "" is no item
    numbers  decimal, with a sign or without       double  written as Java does: 0.5, 1.0E10

A value that is not legal raises InvalidConfig in Kafka's words: the value, the option, what is allowed.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, TypeVar

from anabranch.base.errors import InvalidConfig

Check = Callable[[Any], str | None]
"""Says what is wrong with a value, or None."""

S = TypeVar("S")

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

_WHOLE = re.compile(r"[+-]?\d+")
_OPTION = "option"


class Kind(IntEnum):
    """The type of an option, numbered as ConfigType in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Source(IntEnum):
    """Where a value comes from, numbered as ConfigSource in DescribeConfigs; the lower of two wins."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


_BITS = {Kind.SHORT: 15, Kind.INT: 31, Kind.LONG: 63}


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    kind: Kind
    default: Any
    """None: unset, and something else decides."""
    doc: str
    check: Check | None = None
    dynamic: bool = False
    """May be changed while the broker runs."""
    internal: bool = False
    """Not shown by DescribeConfigs unless it was set."""

    @property
    def sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    def parse(self, text: str) -> Any:
        """The value that `text` spells.  InvalidConfig if it is not one, or not a legal one."""
        value = _PARSERS[self.kind](text.strip(), self)
        wrong = self.check(value) if self.check else None
        if wrong:
            raise self.refuse(text if self.kind is not Kind.LIST else ",".join(value), wrong)
        return value

    def refuse(self, shown: object, why: str) -> InvalidConfig:
        shown = "[hidden]" if self.sensitive else shown
        return InvalidConfig(f"Invalid value {shown} for configuration {self.name}: {why}")

    def dump(self, value: Any) -> str | None:
        """`value` as Kafka writes it."""
        if value is None:
            return None
        if self.kind is Kind.BOOLEAN:
            return "true" if value else "false"
        if self.kind is Kind.DOUBLE:
            return _java_double(value)
        if self.kind is Kind.LIST:
            return ",".join(value)
        return str(value)


def option(
    name: str,
    kind: Kind,
    default: Any,
    check: Check | None,
    doc: str,
    *,
    dynamic: bool = False,
    internal: bool = False,
) -> Any:
    """Declare an attribute of a section."""
    return same_option(Option(name, kind, default, doc, check, dynamic, internal))


def same_option(declared: Option) -> Any:
    """Declare an attribute of a section by an option that exists already."""
    return field(default=declared.default, metadata={_OPTION: declared})


def options_of(section_class: Any) -> dict[str, Option]:
    """The options of a section by attribute, in the order of declaration."""
    return {f.name: f.metadata[_OPTION] for f in fields(section_class) if _OPTION in f.metadata}


def section(section_class: type[S], values: Mapping[str, str]) -> S:
    """The section as `values` (option name to string) says, defaults elsewhere.  InvalidConfig if illegal."""
    given = {
        attribute: declared.parse(values[declared.name])
        for attribute, declared in options_of(section_class).items()
        if declared.name in values
    }
    return section_class(**given)


def closest(name: str, known: Collection[str]) -> str:
    """`; did you mean ...?`, or nothing if no known name is near."""
    from difflib import get_close_matches  # only when somebody has made a mistake

    near = get_close_matches(name, known, n=3, cutoff=0.7)
    return f"; did you mean {' or '.join(near)}?" if near else ""


# Checks


def at_least(least: float) -> Check:
    return lambda value: None if value >= least else f"Value must be at least {least}"


def between(least: float, most: float) -> Check:
    def check(value: Any) -> str | None:
        if not value >= least:
            return f"Value must be at least {least}"
        return None if value <= most else f"Value must be no more than {most}"

    return check


def one_of(*allowed: str) -> Check:
    return lambda value: None if value in allowed else f"String must be one of: {', '.join(allowed)}"


def some_of(*allowed: str) -> Check:
    """For a list: every item is one of `allowed`."""
    return lambda items: (
        None if set(items) <= set(allowed) else f"String must be one of: {', '.join(allowed)}"
    )


# Strings to values and back


def _boolean(text: str, declared: Option) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise declared.refuse(text, "Expected value to be either true or false")
    return lowered == "true"


def _whole_number(text: str, declared: Option) -> int:
    limit = 1 << _BITS[declared.kind]
    # The length first: Python refuses, with an error of its own, to read a number of thousands of digits.
    if len(text) <= 64 and _WHOLE.fullmatch(text):
        value = int(text)
        if -limit <= value < limit:
            return value
    raise declared.refuse(text, f"Not a number of type {declared.kind.name}")


def _double(text: str, declared: Option) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value != value or "_" in text:
        raise declared.refuse(text, "Not a number of type DOUBLE")
    return value


def _list(text: str, declared: Option) -> tuple[str, ...]:
    if not text:
        return ()
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise InvalidConfig(f"Configuration '{declared.name}' values must not be empty.")
    return tuple(dict.fromkeys(items))


def _text(text: str, declared: Option) -> str:
    return text


_PARSERS: dict[Kind, Callable[[str, Option], Any]] = {
    Kind.BOOLEAN: _boolean,
    Kind.STRING: _text,
    Kind.INT: _whole_number,
    Kind.SHORT: _whole_number,
    Kind.LONG: _whole_number,
    Kind.DOUBLE: _double,
    Kind.LIST: _list,
    Kind.CLASS: _text,
    Kind.PASSWORD: _text,
}


def _java_double(value: float) -> str:
    """Java's Double.toString: plain from 0.001 up to ten million, else with an exponent."""
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    shortest = next(text for places in range(1, 18) if float(text := f"{value:.{places}e}") == value)
    mantissa, _, exponent = shortest.partition("e")
    return f"{mantissa}E{int(exponent)}"
