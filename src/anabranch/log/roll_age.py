"""Roll age: when the active segment is old enough to be sealed, by `segment.ms`.

The records' own time counts where they have one, else the time since the segment was begun.
"""

import os
from pathlib import Path
from zlib import crc32

from anabranch.base.clock import Clock
from anabranch.log.config import LogConfig
from anabranch.log.segment import Segment


class RollAge:
    __slots__ = ("_began_ms", "_clock", "_config", "_folder", "_roll_ms")

    def __init__(self, clock: Clock, folder: Path) -> None:
        self._clock = clock
        self._folder = folder
        self._began_ms = clock.now_ms()
        self._config: LogConfig | None = None  # what `_roll_ms` was worked out from
        self._roll_ms = 0

    def began(self) -> None:
        """There is a new active segment."""
        self._began_ms = self._clock.now_ms()
        self._config = None

    def is_reached(self, segment: Segment, config: LogConfig, timestamp: int) -> bool:
        """Whether a batch of `timestamp` is to be the first of another segment."""
        roll_ms = self._roll_ms if config is self._config else self._roll_after_ms(segment, config)
        first = segment.first_timestamp
        if first is not None and first >= 0 and timestamp >= 0:
            return timestamp - first > roll_ms
        return self._clock.now_ms() - self._began_ms > roll_ms

    def _roll_after_ms(self, segment: Segment, config: LogConfig) -> int:
        """`segment.ms` less a jitter that is the segment's own, so that logs do not all roll at once."""
        roll_ms = config.segment_ms
        if "compact" in config.cleanup_policy:
            roll_ms = min(roll_ms, config.max_compaction_lag_ms)  # the active segment is never compacted
        jitter_ms = min(config.segment_jitter_ms, roll_ms)
        if jitter_ms:
            roll_ms -= crc32(b"%s %d" % (os.fsencode(self._folder), segment.base_offset)) % jitter_ms
        self._config, self._roll_ms = config, roll_ms
        return roll_ms
