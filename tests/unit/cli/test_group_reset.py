import pytest

from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.group_reset import Goal, Known, goal
from anabranch.client.destinations import TopicPartition

NOW_MS = 1_000_000_000
PLACE = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("to", "by", "meant"),
    [
        ("earliest", None, Goal(edge="earliest")),
        ("latest", None, Goal(edge="latest")),
        ("4200", None, Goal(offset=4200)),
        ("@77", None, Goal(time_ms=77)),
        ("1970-01-01T00:00:01", None, Goal(time_ms=1000)),
        ("15m", None, Goal(time_ms=NOW_MS - 900_000)),
        (None, -5, Goal(shift=-5)),
        (None, 0, Goal(shift=0)),
    ],
)
def test_what_the_options_mean(to: str | None, by: int | None, meant: Goal) -> None:
    assert goal(to, by, NOW_MS) == meant


@pytest.mark.parametrize(
    ("to", "by"), [(None, None), ("latest", 1), ("soon", None), ("-5", None), ("@", None)]
)
def test_what_means_nothing(to: str | None, by: int | None) -> None:
    with pytest.raises(Misuse):
        goal(to, by, NOW_MS)


@pytest.mark.parametrize(
    ("wanted", "offset"),
    [
        (Goal(edge="earliest"), 10),
        (Goal(edge="latest"), 90),
        (Goal(offset=50), 50),
        (Goal(offset=5), 10),
        (Goal(offset=500), 90),
        (Goal(time_ms=1), 30),
        (Goal(shift=-20), 20),
        (Goal(shift=-1000), 10),
        (Goal(shift=1000), 90),
    ],
)
def test_a_place_that_is_not_there_is_the_nearest(wanted: Goal, offset: int) -> None:
    assert wanted.offset_in(PLACE, Known(committed=40, start=10, end=90, at_time=30)) == offset


def test_a_time_after_the_last_record_is_the_end() -> None:
    assert Goal(time_ms=1).offset_in(PLACE, Known(committed=None, start=10, end=90)) == 90


def test_nothing_to_shift() -> None:
    with pytest.raises(CommandError, match="orders partition 0 has no committed offset"):
        Goal(shift=1).offset_in(PLACE, Known(committed=None, start=10, end=90))
