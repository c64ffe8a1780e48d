"""The budget: whole or not at all, and everybody who waits is asked again."""

import pytest

from anabranch.base.budget import ByteBudget


def test_whole_or_not_at_all() -> None:
    budget = ByteBudget(100)
    assert budget.has_room(100)
    budget.charge(60)
    assert not budget.has_room(41)
    assert budget.has_room(40)
    assert budget.used == 60


def test_what_is_larger_than_the_whole_passes_alone() -> None:
    budget = ByteBudget(100)
    assert budget.has_room(1000)
    budget.charge(1)
    assert not budget.has_room(1000)


@pytest.mark.parametrize("limit", [0, -1])
def test_no_limit(limit: int) -> None:
    budget = ByteBudget(limit)
    budget.charge(1 << 60)
    assert budget.has_room(1 << 60)


def test_those_who_wait_are_called_once_in_turn() -> None:
    budget = ByteBudget(100)
    budget.charge(100)
    called: list[str] = []

    def wants(name: str, size: int) -> None:
        called.append(name)
        if budget.has_room(size):
            budget.charge(size)
        else:
            budget.wait(lambda: wants(name, size))

    budget.wait(lambda: wants("large", 80))
    budget.wait(lambda: wants("small", 30))
    budget.give(50)
    assert called == ["large", "small"]
    assert (budget.used, budget.is_contended) == (80, True)
    budget.give(50)
    assert called == ["large", "small", "large"]
    assert (budget.used, budget.is_contended) == (30 + 80, True) or budget.used == 30
    budget.give(30)
    assert called[-1] == "large"
    assert (budget.used, budget.is_contended) == (80, False)
    budget.give(80)
    assert budget.used == 0


def test_whoever_stops_waiting_is_not_called() -> None:
    budget, called = ByteBudget(10), []

    def ask_again() -> None:
        called.append(1)

    budget.charge(10)
    budget.wait(ask_again)
    budget.stop_waiting(ask_again)
    budget.stop_waiting(ask_again)
    assert not budget.is_contended
    budget.give(10)
    assert called == []
