"""Query positions: where a query begins and ends, from the offset options to offsets.

    latest, earliest                          every partition
    {"orders": {"0": 23, "1": -2}}            by partition; -1 is the latest, -2 the earliest
    a time in ms, for all or by partition     the first offset at or after it

Times win over offsets, one time for all over times by partition, as in Spark's Kafka source.  In a
checkpoint an offset is {"orders": {"0": 23, "1": 5}}, in the same form.

`position_of` reads options into a `Position` without asking anybody; `resolve` asks the cluster.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from anabranch.base.errors import Invalid
from anabranch.client.cluster import EARLIEST, LATEST, Offsets
from anabranch.client.destinations import TopicPartition
from anabranch.spark.options import Options

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_LARGEST = 1 << 63


class KnowsOffsets(Protocol):
    """A cluster, or one with the history that it has no more."""

    def offsets_at(self, times: Mapping[TopicPartition, int], *, committed: bool = False) -> Offsets: ...


class Position(NamedTuple):
    """One end of what is to be read."""

    option: str
    everywhere: int | None = None
    by_partition: Offsets | None = None
    is_time: bool = False
    latest_if_none: bool = True
    """If no record is as late as the time: the end of the partition, else it is an error."""


def starting(options: Options, *, streaming: bool) -> Position:
    default = "latest" if streaming else "earliest"
    found = _position(options, "starting", default)
    strategy = options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    if not streaming:
        _refuse(found, LATEST, "latest", "would read nothing")
    return found._replace(latest_if_none=strategy == "latest")


def ending(options: Options) -> Position:
    found = _position(options, "ending", "latest")
    _refuse(found, EARLIEST, "earliest", "would read nothing")
    return found


def _position(options: Options, end: str, default: str) -> Position:
    everywhere = options.whole(f"{end}Timestamp", least=0)
    if everywhere is not None:
        return Position(f"{end}Timestamp", everywhere, is_time=True)
    name = f"{end}OffsetsByTimestamp"
    if (text := options.text(name)) is not None:
        return Position(name, by_partition=_parsed(name, text, least=0), is_time=True)
    name = f"{end}Offsets"
    text = options.text(name) or default
    if text.lower() in _WORDS:
        return Position(name, _WORDS[text.lower()])
    return Position(name, by_partition=_parsed(name, text, least=EARLIEST))


def _refuse(position: Position, value: int, word: str, why: str) -> None:
    values = {position.everywhere} if position.by_partition is None else set(position.by_partition.values())
    if not position.is_time and value in values:
        raise Invalid(f"{position.option} cannot be {word} ({value}) in a batch query: it {why}")


def _parsed(option: str, text: str, least: int) -> Offsets:
    try:
        found = from_json(json.loads(text))
    except (json.JSONDecodeError, Invalid):
        found = None
    if found is None or any(not least <= offset < _LARGEST for offset in found.values()):
        example = '{"topic": {"0": 23, "1": 345}}'
        words = "earliest, latest or " if not option.endswith("Timestamp") else ""
        raise Invalid(f"{option} is {text!r}, not {words}JSON such as {example}")
    return found


def from_json(document: Any) -> Offsets:
    """Offsets as they stand in a checkpoint.  Invalid if they are none."""
    found: Offsets = {}
    if not isinstance(document, dict):
        raise Invalid(f"{document!r} is not a table of topics")
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            raise Invalid(f"{partitions!r} is not a table of partitions")
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int:
                raise Invalid(f"{partition!r}: {offset!r} is not a partition and its offset")
            found[TopicPartition(topic, int(partition))] = offset
    return found


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as they stand in a checkpoint."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def resolve(
    position: Position, partitions: Iterable[TopicPartition], cluster: KnowsOffsets, *, committed: bool
) -> Offsets:
    """The offset of each of `partitions`."""
    wanted = list(partitions)
    asked = position.by_partition
    if asked is None:
        assert position.everywhere is not None
        asked = dict.fromkeys(wanted, position.everywhere)
    elif asked.keys() != set(wanted):
        given, there = _listed(asked), _listed(wanted)
        raise Invalid(
            f"{position.option} must name every partition, with -1 for the latest and -2 for the earliest: "
            f"it names {given}; there are {there}"
        )
    times = asked if position.is_time else {one: at for one, at in asked.items() if at in (EARLIEST, LATEST)}
    found = dict(asked) | cluster.offsets_at(times, committed=committed)
    late = [one for one in times if found[one] < 0]
    if late and not position.latest_if_none:
        raise Invalid(
            f"{position.option}: no record of {_listed(late)} is as late; set "
            "startingOffsetsByTimestampStrategy to latest to begin at the end there"
        )
    return found | cluster.offsets_at(dict.fromkeys(late, LATEST), committed=committed)


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(one) for one in sorted(partitions)) or "none"
