"""Waits double up to a limit, for each thing on its own."""

from anabranch.partition.backoff import Backoff


def test_the_picture_of_the_module() -> None:
    backoff: Backoff[str] = Backoff(15_000, 60_000)
    assert [backoff.failed("log") for _ in range(4)] == [15_000, 30_000, 60_000, 60_000]
    assert backoff.failed("other") == 15_000
    assert ("log" in backoff, "none" in backoff) == (True, False)
    backoff.worked("log")
    backoff.worked("none")
    assert "log" not in backoff
    assert backoff.failed("log") == 15_000


def test_it_can_fail_for_ever() -> None:
    backoff: Backoff[int] = Backoff(1, 1000)
    assert [backoff.failed(1) for _ in range(2000)][-1] == 1000
