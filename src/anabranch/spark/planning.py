"""Read planning: how much is read next, and by how many tasks, from offsets alone.

    limited     a micro-batch up to a limit of records: each partition gets a share by how far it is behind
    divided     ranges into more and smaller ones, in proportion, when more tasks are wanted than partitions
    gathered    ranges into fewer tasks, when there is too little in each to be worth one

All depend on nothing but their arguments, so a micro-batch that is run again is cut in the same way.
"""

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise

from anabranch.client.cluster import Offsets
from anabranch.client.destinations import TopicPartition
from anabranch.spark.ranges import Range


def ranges_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[Range]:
    """What lies between, partition by partition; those of `end` that `start` lacks begin at 0."""
    ranges = [Range(one, start.get(one, 0), end[one]) for one in sorted(end)]
    return [one for one in ranges if one.size]


def limited(start: Offsets, latest: Offsets, most: int) -> Offsets:
    """`latest`, or as much of it as `most` records allow, split by how far each partition is behind."""
    behind = {one: max(0, end - start.get(one, 0)) for one, end in latest.items()}
    total = sum(behind.values())
    if total <= most:
        return latest
    limits: Offsets = {}
    for one, end in latest.items():
        share = most * behind[one] / total
        # Who is only a little behind still gets on: a share of less than a record is one.
        size = math.ceil(share) if share < 1 else math.floor(share)
        limits[one] = min(end, start.get(one, 0) + size)
    return limits


def behind(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """How many offsets there are to read."""
    return sum(one.size for one in ranges_between(start, latest))


def divided(ranges: Iterable[Range], least: int | None, most_records: int | None) -> list[Range]:
    """At least `least` ranges and none of more than `most_records`, where there are offsets enough."""
    whole = [one for one in ranges if one.size]
    if most_records is not None:
        whole = [part for one in whole for part in _parts(one, math.ceil(one.size / most_records))]
    if least is None or least <= len(whole):
        return whole
    total = sum(one.size for one in whole)
    return [part for one in whole for part in _parts(one, math.ceil(one.size / total * least))]


def gathered(ranges: Iterable[Range], least_records: int) -> list[list[Range]]:
    """The ranges of each task: neighbours together until a task has `least_records`."""
    tasks: list[list[Range]] = []
    room = 0
    for one in ranges:
        if room <= 0:
            tasks.append([])
            room = least_records
        tasks[-1].append(one)
        room -= one.size
    return tasks


def _parts(whole: Range, count: int) -> list[Range]:
    count = min(count, whole.size)
    edges = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [Range(whole.partition, start, end) for start, end in pairwise(edges)]
