import pytest

from anabranch.base.errors import Fenced
from anabranch.tables.changes import Copied, appended, begun, expired, merged, swept, to_sweep
from anabranch.tables.snapshot import Dropped, Span
from tests.unit.tables.conftest import data_file, snapshot


def test_a_table_grows_from_its_end() -> None:
    table = begun("orders", "an id", 1)
    table = appended(table, [Copied(0, Span(5, 20), (data_file(0, 7, 18),))], {}, 2)
    table = appended(
        table, [Copied(0, Span(20, 25), ()), Copied(1, Span(0, 3), (data_file(1, 0, 3),))], {}, 3
    )
    assert table.covered == {0: Span(5, 25), 1: Span(0, 3)}
    assert [file.first for file in table.files] == [7, 0]
    assert (table.number, table.written_ms) == (2, 3)


def test_what_was_copied_before_does_not_fit_again() -> None:
    table = begun("orders", "an id", 1)
    copied = [Copied(0, Span(0, 20), (data_file(0, 0, 20),))]
    table = appended(table, copied, {}, 2)
    with pytest.raises(Fenced, match="covered to offset 20, not to 0"):
        appended(table, copied, {}, 3)
    with pytest.raises(Fenced, match="covered to offset 20, not to 30"):
        appended(table, [Copied(0, Span(30, 40), ())], {}, 3)


def test_what_the_log_dropped_is_noted() -> None:
    table = appended(begun("orders", "an id", 1), [Copied(0, Span(0, 10), ())], {}, 2)
    table = appended(table, [Copied(0, Span(15, 20), (data_file(0, 15, 20),))], {0: Span(10, 15)}, 3)
    assert table.covered == {0: Span(0, 20)}
    assert [(one.span, one.noticed_ms) for one in table.lost] == [(Span(10, 15), 3)]


def test_merged_files_take_the_place_of_others() -> None:
    small = [data_file(0, 0, 10), data_file(0, 10, 20)]
    whole = data_file(0, 0, 20)
    table = merged(snapshot(*small, data_file(1)), {file.path for file in small}, [whole], 5)
    assert [file.path for file in table.files] == [data_file(1).path, whole.path]
    assert table.dropped == [Dropped(path=file.path, since_ms=5) for file in small]
    assert table.covered == {0: Span(0, 20), 1: Span(0, 10)}


def test_a_merge_of_what_is_not_there_or_not_as_much_is_refused() -> None:
    small = [data_file(0, 0, 10), data_file(0, 10, 20)]
    paths = {file.path for file in small}
    with pytest.raises(Fenced, match="not in the table"):
        merged(snapshot(small[0]), paths, [data_file(0, 0, 20)], 5)
    with pytest.raises(Fenced, match="do not hold"):
        merged(snapshot(*small), paths, [data_file(0, 0, 19)], 5)


def test_old_files_are_dropped_and_the_table_begins_later() -> None:
    table = snapshot(data_file(0, 0, 10), data_file(0, 10, 20), data_file(1, 0, 5))
    assert expired(table, 0, 99) is None
    after = expired(table, 10, 99)
    assert after is not None
    assert [file.first for file in after.files] == [10]
    assert after.covered == {0: Span(10, 20), 1: Span(5, 5)}
    assert len(after.dropped) == 2


def test_what_expires_is_a_beginning() -> None:
    """Whoever reads from where the table begins misses nothing; what lies before is gone, and is said."""
    old, young, middle = data_file(0, 0, 10), data_file(0, 5, 6, max_ms=50), data_file(0, 10, 20)
    table = snapshot(old, young, middle, data_file(0, 20, 30, max_ms=60))
    assert expired(table, 40, 99) is None
    after = expired(table, 55, 99)
    assert after is not None
    assert after.covered == {0: Span(20, 30)}
    assert [file.first for file in after.files] == [20]


def test_a_time_to_come_does_not_keep_a_table_for_good() -> None:
    strange = data_file(0, 5, 6, max_ms=10**15)
    table = snapshot(data_file(0, 0, 5), strange, data_file(0, 6, 20), data_file(0, 20, 30, max_ms=60))
    after = expired(table, 50, 99)
    assert after is not None
    assert after.covered == {0: Span(20, 30)}
    late = snapshot(data_file(0, 0, 5), strange, data_file(0, 6, 20, max_ms=10**15))
    after = expired(late, 50, 99)
    assert after is not None
    assert after.covered == {0: Span(5, 20)}, "nothing says that these are old"
    assert len(after.files) == 2


def test_losses_that_go_on_are_one() -> None:
    table = appended(begun("orders", "an id", 1), [Copied(0, Span(0, 10), ())], {}, 2)
    for start in (10, 15, 20):
        table = appended(table, [], {0: Span(start, start + 5)}, start)
    assert [(one.span, one.noticed_ms) for one in table.lost] == [(Span(10, 25), 20)]


def test_dropped_files_are_swept_after_a_while() -> None:
    table = snapshot(
        dropped=[Dropped(path="hour=1/a.parquet", since_ms=5), Dropped(path="hour=1/b.parquet", since_ms=9)]
    )
    gone = to_sweep(table, 9)
    assert gone == ["hour=1/a.parquet"]
    assert [one.path for one in swept(table, gone, 10).dropped] == ["hour=1/b.parquet"]
