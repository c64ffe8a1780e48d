"""How long a shard that could not be read is left alone; what clients see is in tests/unit/server/kafka."""

import pytest

from anabranch.base.errors import CoordinatorUnreadable
from anabranch.groups.unreadable import UnreadableShards
from tests.support.logs import SetClock


def test_each_failure_is_followed_by_a_longer_pause() -> None:
    clock = SetClock()
    shards = UnreadableShards(clock, "__consumer_offsets-{}".format)
    for pause_ms in (1000, 2000, 4000, 8000, 16_000, 16_000):
        assert isinstance(shards.failed(3, OSError("it is broken")), CoordinatorUnreadable)
        clock.advance(pause_ms - 1)
        with pytest.raises(CoordinatorUnreadable) as told:
            shards.check(3)
        assert "broken" not in str(told.value), "what the system says is nobody's business outside"
        shards.check(4)
        clock.advance(1)
        shards.check(3)


def test_one_that_works_is_forgotten() -> None:
    clock = SetClock()
    shards = UnreadableShards(clock, "__consumer_offsets-{}".format)
    for _ in range(3):
        shards.failed(3, OSError("it is broken"))
    shards.worked(3)
    shards.check(3)
    shards.failed(3, OSError("again"))
    clock.advance(1000)
    shards.check(3)
