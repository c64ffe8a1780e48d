"""Bitmaps as numbers, against going over their members."""

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from anabranch.subscriptions.bitmaps import bits_of, narrow
from tests.unit.records.strategies import seeded

CONTAINER = 1 << 16

few = st.lists(st.integers(0, 5 * CONTAINER), max_size=100).map(
    lambda members: [(at, at + 1, 1) for at in members]
)
"""Ranges: start, end, step."""
ranges = st.lists(
    st.builds(
        lambda start, length, step: (start, start + length, step),
        st.integers(0, 5 * CONTAINER),
        st.sampled_from((1, 7, 8, 9, 100, 5000, CONTAINER, 2 * CONTAINER)),
        st.sampled_from((1, 1, 2, 3, 70)),
    ),
    max_size=6,
)


def made_of(parts: list[tuple[int, int, int]]) -> BitMap:
    bitmap = BitMap()
    for start, end, step in parts:
        if step == 1:
            bitmap.add_range(start, end)  # which makes runs
        else:
            bitmap |= BitMap(range(start, end, step))
    return bitmap


def plainly(bitmap: BitMap) -> int:
    bits = bytearray(CONTAINER)
    for at in bitmap:
        bits[at // 8] |= 1 << at % 8
    return int.from_bytes(bits, "little")


@seeded(100)
@given(few | ranges, st.booleans())
def test_a_bitmap_is_a_number(parts: list[tuple[int, int, int]], with_runs: bool) -> None:
    bitmap = made_of(parts)
    if with_runs:
        bitmap.run_optimize()
    assert bits_of(bitmap) == plainly(bitmap)


@seeded(50)
@given(few | ranges)
def test_a_bitmap_of_large_numbers_becomes_one_of_small_ones(parts: list[tuple[int, int, int]]) -> None:
    bitmap, base = made_of(parts), (7 << 32) - 2 * CONTAINER
    assert narrow(BitMap64(base + at for at in bitmap).shift(-base)) == bitmap
