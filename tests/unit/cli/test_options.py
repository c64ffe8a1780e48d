import pytest

from anabranch.cli.failure import Misuse
from anabranch.cli.options import duration_ms, moment_ms, name_values, show_moment


def test_name_values() -> None:
    assert name_values(["a=1", "b=x=y", "c="], "--set") == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1"):
        with pytest.raises(Misuse, match="NAME=VALUE"):
            name_values([wrong], "--set")


def test_durations() -> None:
    assert duration_ms("15m") == 900_000
    assert duration_ms("500ms") == 500
    assert duration_ms("2d") == 172_800_000
    assert duration_ms("m") is None
    assert duration_ms("-15m") is None


def test_moments() -> None:
    assert moment_ms("1970-01-01") == 0
    assert moment_ms("1970-01-01T00:00:01.5") == 1500
    assert moment_ms("1970-01-01T02:00:00+02:00") == 0
    assert moment_ms("tomorrow") is None


def test_moments_are_shown_or_left_a_number() -> None:
    assert show_moment(1500) == "1970-01-01T00:00:01.500Z"
    assert show_moment(1 << 62) == str(1 << 62)
