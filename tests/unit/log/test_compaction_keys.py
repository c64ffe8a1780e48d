"""The table of keys: the last offset wins, its size is bounded, it says when it is full."""

import random

from anabranch.log.compaction_keys import LastOffsets


def test_the_last_offset_of_a_key(tmp_path: object) -> None:
    keys = LastOffsets(1 << 20, 100)
    assert keys.get(b"a") == -1
    keys.put(b"a", 0)
    keys.put(b"b", 1)
    keys.put(b"a", 2)
    assert (keys.get(b"a"), keys.get(b"b"), keys.get(b"c"), keys.count) == (2, 1, -1, 2)


def test_as_a_dictionary_would(tmp_path: object) -> None:
    chance = random.Random(1)
    keys, expected = LastOffsets(1 << 20, 2000), dict[bytes, int]()
    for offset in range(20_000):
        key = b"%d" % chance.randrange(1500) if chance.random() < 0.9 else chance.randbytes(40)
        if keys.is_full and key not in expected:
            continue
        keys.put(key, offset)
        expected[key] = offset
    assert keys.is_full
    assert keys.count == len(expected) == keys.room
    assert all(keys.get(key) == offset for key, offset in expected.items())
    assert keys.get(b"never") == -1


def test_no_larger_than_told_and_no_larger_than_needed() -> None:
    small = LastOffsets(1 << 30, 10)
    assert small.room < 100
    bounded = LastOffsets(24 * 1000, 1 << 40)
    assert bounded.room == 750


def test_empty_and_long_keys_are_keys() -> None:
    keys = LastOffsets(1 << 20, 100)
    keys.put(b"", 5)
    keys.put(b"x" * 100_000, 6)
    assert (keys.get(b""), keys.get(b"x" * 100_000), keys.get(b"x" * 99_999)) == (5, 6, -1)
