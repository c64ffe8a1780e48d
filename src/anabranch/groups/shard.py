"""The groups of one partition of `__consumer_offsets`.

    replay(key, value) ─> the part that owns the key's version
    timeout(timer)     ─> the part whose name the timer begins with

A record of a kind that nobody here knows (share groups, streams groups, kinds to come) is passed over:
it stays in the log for whoever does.
"""

import struct
from collections.abc import Hashable

from anabranch.groups.effects import Effects
from anabranch.groups.parts import Part, Surroundings

_VERSION = struct.Struct(">h")


class GroupShard:
    def __init__(self, around: Surroundings) -> None:
        parts: tuple[Part, ...] = ()
        self._by_name = {part.name: part for part in parts}
        self._by_version = {version: part for part in parts for version in part.key_versions}

    def replay(self, key: bytes, value: bytes | None) -> None:
        if len(key) < _VERSION.size:
            return
        part = self._by_version.get(_VERSION.unpack_from(key)[0])
        if part is not None:
            part.replay(key, value)

    def loaded(self, now_ms: int) -> Effects:
        effects = Effects()
        for part in self._by_name.values():
            part.loaded(effects, now_ms)
        return effects

    def timeout(self, timer: Hashable, now_ms: int) -> Effects:
        assert isinstance(timer, tuple)
        return self._by_name[timer[0]].timeout(timer, now_ms)
