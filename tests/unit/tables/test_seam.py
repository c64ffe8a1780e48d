"""A range is cut without gap or overlap, whatever the table."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anabranch.tables.seam import Slice, cut, in_time, packed
from anabranch.tables.snapshot import Lost, Span
from tests.unit.records.strategies import seeded
from tests.unit.tables.conftest import data_file, snapshot


def test_as_in_the_picture() -> None:
    files = [data_file(0, 100, 400), data_file(0, 400, 700), data_file(0, 700, 900)]
    found = cut(snapshot(*files, data_file(1)), 0, Span(0, 1200))
    assert found.before == Span(0, 100)
    assert found.slices == [Slice(file, file.span) for file in files]
    assert all(one.is_whole for one in found.slices)
    assert found.tail == Span(900, 1200)


def test_only_what_is_asked_for() -> None:
    files = [data_file(0, 100, 400), data_file(0, 400, 700), data_file(0, 700, 900)]
    found = cut(snapshot(*files), 0, Span(399, 401))
    assert [(one.file.first, one.span) for one in found.slices] == [
        (100, Span(399, 400)),
        (400, Span(400, 401)),
    ]
    assert not found.before.size
    assert not found.tail.size


def test_a_partition_that_the_table_does_not_know_is_the_logs() -> None:
    found = cut(snapshot(data_file(0)), 7, Span(3, 9))
    assert (found.before.size, found.slices, found.tail) == (0, [], Span(3, 9))


def test_what_was_lost_is_named_where_it_is_asked_for() -> None:
    table = snapshot(
        data_file(0, 0, 10), data_file(0, 15, 20), lost=[Lost(partition=0, start=10, end=15, noticed_ms=0)]
    )
    assert cut(table, 0, Span(0, 12)).lost == [Span(10, 12)]
    assert cut(table, 0, Span(15, 30)).lost == []


EDGES = st.lists(st.integers(0, 60), min_size=2, max_size=8, unique=True).map(sorted)


@seeded()
@given(EDGES, st.integers(0, 70), st.integers(0, 70))
def test_every_offset_is_somewhere_once(edges: list[int], one: int, other: int) -> None:
    files = [data_file(0, first, end) for first, end in pairwise(edges)]
    asked = Span(min(one, other), max(one, other))
    found = cut(snapshot(*files), 0, asked)
    parts = [found.before, *(one.span for one in found.slices), found.tail]
    assert [offset for part in parts for offset in range(part.start, part.end)] == list(range(*asked))


def test_files_of_other_times_are_left_out() -> None:
    slices = [
        Slice(file, file.span) for file in (data_file(0, 0, 10), data_file(0, 10, 20), data_file(0, 20, 30))
    ]
    assert in_time(slices, None, None) == slices
    assert in_time(slices, 10, None) == slices[1:]
    assert in_time(slices, 9, 19) == slices[:2]
    assert in_time(slices, 40, None) == []


def test_a_slice_is_divided_by_what_it_holds() -> None:
    sparse = Slice(data_file(0, 0, 1_000_000, rows=10, plain_bytes=1000), Span(0, 500_000))
    assert (sparse.rows, sparse.plain_bytes) == (5, 500)
    parts = sparse.divided(3)
    assert [part.span.start for part in parts[1:]] == [part.span.end for part in parts[:-1]]
    assert (parts[0].span.start, parts[-1].span.end) == (0, 500_000)
    assert len(Slice(data_file(0, 0, 2), Span(0, 2)).divided(9)) == 2


def test_small_files_share_a_task() -> None:
    slices = [
        Slice(file, file.span) for at in range(5) if (file := data_file(0, at, at + 1, plain_bytes=400))
    ]
    assert [len(task) for task in packed(slices, 1000)] == [2, 2, 1]
    assert [len(task) for task in packed(slices, 1)] == [1] * 5
    assert packed([], 10) == []
