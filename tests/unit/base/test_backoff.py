from random import Random

from anabranch.base.backoff import Backoff, Backoffs


def test_pauses_double_up_to_the_longest_and_begin_again_after_a_success() -> None:
    backoff = Backoff(1.0, 8.0, Random(1))
    for _ in range(2):
        for expected in (1, 2, 4, 8, 8, 8):
            assert 0.8 * expected <= backoff.next_s() <= 1.2 * expected
        backoff.reset()


def test_two_that_fail_at_once_do_not_come_back_at_once() -> None:
    pauses = {Backoff(1.0, 8.0, Random(seed)).next_s() for seed in range(20)}
    assert len(pauses) == 20


def test_a_thousand_failures_are_not_a_number_of_a_thousand_digits() -> None:
    backoff = Backoff(0.001, 1.0, Random(1))
    assert max(backoff.next_s() for _ in range(1000)) <= 1.2


def test_each_of_many_has_its_own() -> None:
    backoffs: Backoffs[str] = Backoffs(15_000, 60_000)
    assert [backoffs.failed("log") for _ in range(4)] == [15_000, 30_000, 60_000, 60_000]
    assert backoffs.failed("other") == 15_000
    assert ("log" in backoffs, "none" in backoffs) == (True, False)
    backoffs.worked("log")
    backoffs.worked("none")
    assert "log" not in backoffs
    assert backoffs.failed("log") == 15_000


def test_it_can_fail_for_ever() -> None:
    backoffs: Backoffs[int] = Backoffs(1, 1000)
    assert [backoffs.failed(1) for _ in range(2000)][-1] == 1000
