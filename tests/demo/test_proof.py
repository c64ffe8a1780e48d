"""The proof holds for the right results, and for nothing that is a single row away from them."""

from collections import Counter
from collections.abc import Callable

import pytest

from demo.ledger import Ledger, Takings
from demo.proof import Results, dead_letters, events, prove, prove_replicas
from demo.shop import CLICKS, morning

LEDGER = Ledger(morning(2_000, seed=5))


def right() -> Results:
    return Results(
        clean=events(LEDGER.on_time),
        late=events(LEDGER.late),
        dead=dead_letters(LEDGER.flawed),
        reasons=Counter(),
        revenue=Counter(LEDGER.revenue.items()),
        announced=Counter(LEDGER.revenue.items()),
        sessions=Counter(LEDGER.sessions),
        behind=0,
    )


def failures(results: Results, acknowledged: dict[str, int] | None = None) -> list[str]:
    claims = prove(LEDGER, acknowledged or LEDGER.sent, results)
    return [claim.words for claim in claims if not claim.holds]


def test_the_right_results_are_proved() -> None:
    assert failures(right()) == []


def test_what_was_not_acknowledged_is_not_proved() -> None:
    assert len(failures(right(), {**LEDGER.sent, CLICKS: LEDGER.sent[CLICKS] - 1})) == 1


def _lose_one(heap: Counter[object]) -> None:
    heap.subtract([next(iter(heap))])


def _double_one(heap: Counter[object]) -> None:
    heap.update([next(iter(heap))])


@pytest.mark.parametrize("change", [_lose_one, _double_one])
@pytest.mark.parametrize("heap", ["clean", "late", "dead", "revenue", "announced", "sessions"])
def test_a_row_too_few_or_too_many_is_found(heap: str, change: Callable[[Counter[object]], None]) -> None:
    results = right()
    change(getattr(results, heap))
    assert failures(results)


def test_one_lost_and_another_doubled_do_not_make_up_for_each_other() -> None:
    results = right()
    first, second, *_ = results.clean
    results.clean.subtract([first])
    results.clean.update([second])
    assert [words.split(":")[0] for words in failures(results)] == ["clean records"]


@pytest.mark.parametrize("where", ["revenue", "announced"])
def test_a_cent_is_found(where: str) -> None:
    results = right()
    minutes = getattr(results, where)
    minute, takings = next(iter(minutes))
    minutes.subtract([(minute, takings)])
    minutes.update([(minute, Takings(takings.orders, takings.cents + 1))])
    assert failures(results)


@pytest.mark.parametrize("behind", [1, None])
def test_behind_must_be_known_to_be_nothing(behind: int | None) -> None:
    (failure,) = failures(right()._replace(behind=behind))
    assert failure.startswith(f"lag: {behind} records")


@pytest.mark.parametrize(
    ("in_sync", "brokers", "holds"),
    [({3: 60}, 3, True), ({3: 60}, 5, True), ({2: 60}, 2, True), ({2: 1, 3: 59}, 3, False), ({}, 3, False)],
)
def test_replicas_are_in_sync_on_three_brokers_or_all(
    in_sync: dict[int, int], brokers: int, holds: bool
) -> None:
    assert prove_replicas(Counter(in_sync), brokers).holds == holds
