from collections.abc import Sequence

import pytest

from anabranch.base.errors import Unavailable
from anabranch.pipelines.tables.copying import Copy, Done, Merge
from anabranch.pipelines.tables.dividing import done_in_parts


def work_of(count: int) -> list[Copy | Merge]:
    return [Copy("folder", "orders", "an id", number, 0, 10) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "bad", "most_jobs"),
    [(0, set(), 0), (8, set(), 1), (64, {5}, 13), (64, {0, 63}, 24), (1, {0}, 1)],
)
def test_what_cannot_be_done_is_alone_in_the_end(count: int, bad: set[int], most_jobs: int) -> None:
    jobs: list[int] = []

    def run(work: Sequence[Copy | Merge]) -> list[Done]:
        jobs.append(len(work))
        numbers = [one.partition for one in work if isinstance(one, Copy)]
        if bad.intersection(numbers):
            raise Unavailable("given up")
        return [Done("folder", partition=number) for number in numbers]

    found = done_in_parts(run, work_of(count))
    assert [one.partition for one in found] == list(range(count))
    assert {one.partition for one in found if one.error} == bad
    assert len(jobs) <= most_jobs


def test_if_nothing_can_be_done_it_is_not_tried_for_ever() -> None:
    jobs: list[int] = []

    def run(work: Sequence[Copy | Merge]) -> list[Done]:
        jobs.append(len(work))
        raise Unavailable("given up")

    found = done_in_parts(run, work_of(1000))
    assert len(found) == 1000
    assert all("given up" in one.error for one in found)
    assert len(jobs) < 100
