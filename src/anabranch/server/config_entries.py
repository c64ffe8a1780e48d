"""Config entries of DescribeConfigs: each option's value, where it comes from, what it stands over.

A value's synonyms are everything that was set for it, strongest first, down to the default:

    retention.ms = 1000        topic                  retention.ms = 1000
                               all brokers            log.retention.ms = 5000
                               the broker's file      log.retention.hours = 24
                               default                log.retention.hours = 168

Kafka's rule for where a broker's part of that list starts is kept: at the first that has the option's own
name (for a topic's option, its first synonym's), so that log.retention.hours=24 alone is not shown for
retention.ms, whose source then reads as the default.  Entries come in order of their names (Kafka's come in
the order of a hash table).
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import dropwhile
from typing import NamedTuple

from anabranch.base.config import Kind, Option, Source
from anabranch.groups.group_options import GROUP_OPTIONS, option_of_broker
from anabranch.log.config import SYNONYMS, TOPIC_OPTIONS, topic_value
from anabranch.server.config import BROKER_OPTIONS, Layers, Overrides
from anabranch.server.config_client_metrics import CLIENT_METRICS_OPTIONS


class SynonymEntry(NamedTuple):
    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """Named as in the answer of DescribeConfigs."""

    name: str
    value: str | None
    config_source: Source
    read_only: bool
    is_sensitive: bool
    synonyms: tuple[SynonymEntry, ...]
    config_type: Kind
    documentation: str | None


def topic_entries(layers: Layers, topic_overrides: Overrides) -> list[Entry]:
    """Every option of a topic with these overrides on a broker with these layers."""
    broker = layers.merged()
    return [
        _topic_entry(declared, layers, topic_overrides, broker)
        for name, declared in sorted(TOPIC_OPTIONS.items())
        if not declared.internal or name in topic_overrides
    ]


def broker_entries(layers: Layers) -> list[Entry]:
    """Every option of a broker, and what was set for it that is no option."""
    values = layers.merged()
    shown = {name for name, declared in BROKER_OPTIONS.items() if not declared.internal}
    return [
        _broker_entry(name, values.get(name), _chain(layers, name)) for name in sorted(shown | values.keys())
    ]


def default_broker_entries(layers: Layers) -> list[Entry]:
    """What was set for all brokers."""
    return [
        _broker_entry(name, text, (SynonymEntry(name, text, Source.DYNAMIC_DEFAULT_BROKER),))
        for name, text in sorted(layers.dynamic_default.items())
    ]


def client_metrics_entries(overrides: Overrides) -> list[Entry]:
    return [
        _own_entry(CLIENT_METRICS_OPTIONS[name], overrides, Source.CLIENT_METRICS)
        for name in sorted(CLIENT_METRICS_OPTIONS)
    ]


def group_entries(layers: Layers, overrides: Overrides) -> list[Entry]:
    """Every option of a group with these overrides on a broker with these layers."""
    return [_group_entry(GROUP_OPTIONS[name], layers, overrides) for name in sorted(GROUP_OPTIONS)]


def logger_entries(levels: Mapping[str, str]) -> list[Entry]:
    return [
        Entry(name, level, Source.BROKER_LOGGER, False, False, (), Kind.UNKNOWN, "")
        for name, level in sorted(levels.items())
    ]


def _topic_entry(declared: Option, layers: Layers, overrides: Overrides, broker: Overrides) -> Entry:
    value = declared.dump(topic_value(declared, overrides, broker))
    chain = SYNONYMS[declared.name]
    synonyms = _chain(layers, chain[0].option.name) if chain else ()
    if declared.name in overrides:
        synonyms = (SynonymEntry(declared.name, value, Source.TOPIC), *synonyms)
    return _entry(declared, value, synonyms, read_only=False)


def _group_entry(declared: Option, layers: Layers, overrides: Overrides) -> Entry:
    of_broker = option_of_broker(declared.name)
    default = SynonymEntry(declared.name, declared.dump(declared.default), Source.DEFAULT)
    synonyms = (default,) if of_broker is None else _chain(layers, of_broker)
    if declared.name in overrides:
        own = declared.dump(declared.parse(overrides[declared.name]))
        synonyms = (SynonymEntry(declared.name, own, Source.GROUP), *synonyms)
    return _entry(declared, synonyms[0].value, synonyms, read_only=False)


def _broker_entry(name: str, text: str | None, synonyms: tuple[SynonymEntry, ...]) -> Entry:
    declared = BROKER_OPTIONS.get(name)
    if declared is None:  # nobody knows whether it is a secret
        hidden = tuple(synonym._replace(value=None) for synonym in synonyms)
        return Entry(name, None, hidden[0].source, True, True, hidden, Kind.UNKNOWN, None)
    value = declared.dump(declared.default if text is None else declared.parse(text))
    return _entry(declared, value, synonyms, read_only=not declared.dynamic)


def _own_entry(declared: Option, overrides: Overrides, source: Source) -> Entry:
    """For a resource whose options no broker option stands behind."""
    text = overrides.get(declared.name)
    value = declared.dump(declared.default if text is None else declared.parse(text))
    synonyms = () if text is None else (SynonymEntry(declared.name, value, source),)
    return _entry(declared, value, synonyms, read_only=False)


def _entry(
    declared: Option, value: str | None, synonyms: tuple[SynonymEntry, ...], *, read_only: bool
) -> Entry:
    if declared.sensitive:
        value, synonyms = None, tuple(synonym._replace(value=None) for synonym in synonyms)
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return Entry(
        declared.name, value, source, read_only, declared.sensitive, synonyms, declared.kind, declared.doc
    )


def _chain(layers: Layers, name: str) -> tuple[SynonymEntry, ...]:
    """What was set for a broker option and those that stand behind it, from the first of its own name on."""
    names = _SAME_TIME.get(name, (name,))
    return tuple(dropwhile(lambda synonym: synonym.name != name, _set_for(names, layers)))


def _set_for(names: Iterable[str], layers: Layers) -> Iterator[SynonymEntry]:
    for values, source in (
        (layers.dynamic_broker, Source.DYNAMIC_BROKER),
        (layers.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
        (layers.static, Source.STATIC_BROKER),
        (_DEFAULTS, Source.DEFAULT),
    ):
        for name in names:
            if name in values:
                yield SynonymEntry(name, values[name], source)


_SAME_TIME: Mapping[str, tuple[str, ...]] = {
    synonym.option.name: tuple(other.option.name for other in chain)
    for chain in SYNONYMS.values()
    for synonym in chain
}
_DEFAULTS: Mapping[str, str] = {
    name: text
    for name, declared in BROKER_OPTIONS.items()
    if (text := declared.dump(declared.default)) is not None
}
