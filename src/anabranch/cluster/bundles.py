"""Bundles: a namespace is cut into ranges of the hash of topic names, which brokers own one by one.

    0x00000000  0x40000000  0x80000000  0xc0000000  0xffffffff        four bundles, five boundaries

The last boundary belongs to the last bundle.
"""

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from anabranch.base.errors import Invalid
from anabranch.base.ids import TopicName
from anabranch.meta.policies import Bundles

MAX_BUNDLES = 1 << 16  # Pulsar takes no more
_END = 0xFFFFFFFF


def equal_bundles(count: int) -> Bundles:
    """As many bundles of the same size.  Invalid if that is no number of bundles."""
    if not 1 <= count <= MAX_BUNDLES:
        raise Invalid(f"a namespace has 1 to {MAX_BUNDLES} bundles, not {count}")
    step = (_END + 1) // count
    boundaries = [f"0x{index * step:08x}" for index in range(count)]
    return Bundles([*boundaries, f"0x{_END:08x}"], count)


def bundle_names(boundaries: Sequence[str]) -> set[str]:
    return {f"{first}_{end}" for first, end in pairwise(boundaries)}


def split(bundles: Bundles, bundle: str, positions: Sequence[int] = ()) -> Bundles:
    """`bundle` cut into two halves, or at `positions`.  Invalid if it cannot be."""
    first, _, end = bundle.partition("_")
    if (first, end) not in pairwise(bundles.boundaries):
        raise Invalid(f"Cannot find bundle {bundle[:100]} in the bundles list")
    low, high = int(first, 16), int(end, 16)
    cuts = sorted(set(positions)) if positions else [low + (high - low) // 2]
    if not all(low < cut < high for cut in cuts):
        raise Invalid(f"bundle {bundle} cannot be split there: a cut lies between its boundaries")
    at = bundles.boundaries.index(first) + 1
    boundaries = [*bundles.boundaries[:at], *(f"0x{cut:08x}" for cut in cuts), *bundles.boundaries[at:]]
    if len(boundaries) - 1 > MAX_BUNDLES:
        raise Invalid(f"a namespace has {MAX_BUNDLES} bundles at most")
    return Bundles(boundaries, len(boundaries) - 1)


def bundle_of(bundles: Bundles, name: TopicName) -> str:
    """The bundle that a topic, or a partition by its own name, is in: `0x40000000_0x80000000`."""
    boundaries = [int(text, 16) for text in bundles.boundaries]
    index = bisect_right(boundaries, zlib.crc32(name.pulsar.encode())) - 1
    index = min(index, len(boundaries) - 2)
    return f"{bundles.boundaries[index]}_{bundles.boundaries[index + 1]}"
