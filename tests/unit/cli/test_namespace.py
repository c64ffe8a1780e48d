"""Sizes and times as people write them."""

import pytest

from anabranch.cli.failure import Misuse
from anabranch.cli.namespace import _time, size_of


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("-1", -1), ("512", 512), ("2k", 2048), ("10M", 10 << 20), ("4g", 4 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert size_of(text, "--size") == size


@pytest.mark.parametrize("text", ["", "k", "1x", "1.5G", "ten", "--1"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(Misuse, match="no size"):
        size_of(text, "--size")


@pytest.mark.parametrize(
    ("text", "minutes"), [("0", 0), ("-1", -1), ("90s", 2), ("1m", 1), ("1ms", 1), ("2h", 120), ("1d", 1440)]
)
def test_times_are_rounded_up(text: str, minutes: int) -> None:
    assert _time(text, 60_000, "--time") == minutes


def test_what_is_no_time() -> None:
    with pytest.raises(Misuse, match="no duration"):
        _time("soon", 1000, "--time")
