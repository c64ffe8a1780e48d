"""What a task of a micro-batch gets."""

from anabranch.client.destinations import TopicPartition
from anabranch.spark.planning import gathered
from anabranch.spark.ranges import Range


def ranges(*sizes: int) -> list[Range]:
    return [Range(TopicPartition("t", number), 10, 10 + size) for number, size in enumerate(sizes)]


def sizes(tasks: list[list[Range]]) -> list[list[int]]:
    return [[one.size for one in of_a_task] for of_a_task in tasks]


def test_fewer_tasks_than_partitions() -> None:
    assert sizes(gathered(ranges(10, 10, 10, 10), 1000)) == [[10, 10, 10, 10]]
    assert sizes(gathered(ranges(10, 2000, 10, 990, 5), 1000)) == [[10, 2000], [10, 990], [5]]
    assert sizes(gathered(ranges(3, 4), 1)) == [[3], [4]]
    assert gathered([], 1000) == []
