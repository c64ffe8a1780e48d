"""A regular expression run over topic names: as a set of states, a character at a time.

    (a|ab)c    0 split 1 3   1 a->6   3 a->4   4 b->6   6 c->7   7 match

All ways to match are followed at once, so a name costs at most its length times the number of states,
whatever the expression; sets that were seen before are remembered, and most names then cost one look-up per
character.  An expression that would still be too much work is refused: there is one thread, and it
belongs to everybody.
"""

from collections.abc import Iterable

from anabranch.base.errors import Invalid
from anabranch.groups.consumer_regex import (
    WORD,
    Chars,
    Choice,
    Node,
    Position,
    Repeat,
    Sequence,
    parse,
)

_MOST_STATES = 5_000
_MOST_EMITS = 4 * _MOST_STATES
_MOST_STEPS = 1_000_000
"""About a third of a second; `orders-.*` takes 20 steps in all."""

_START, _END = "start", "end"

_States = frozenset[int]


class TopicPattern:
    """Matches whole names.  Invalid if the expression is none, or is too large."""

    def __init__(self, text: str) -> None:
        self._masks: list[int] = []
        """By state: the characters that lead on, to the state after it; 0 if it leads elsewhere."""
        self._ways: list[tuple[int, ...]] = []
        """By state without characters: where it leads."""
        self._positions: dict[int, str] = {}
        self._emits_left = _MOST_EMITS
        self._emit(parse(text))
        self._match = self._state(())
        self._steps_left = _MOST_STEPS
        self._known: dict[tuple[_States, str, str], _States] = {}

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """Those that match.  Invalid if that is too much work."""
        self._steps_left = _MOST_STEPS
        return frozenset(name for name in names if self._matches(name))

    # --- to states

    def _state(self, ways: tuple[int, ...], mask: int = 0) -> int:
        if len(self._ways) >= _MOST_STATES:
            raise Invalid(f"it needs more than {_MOST_STATES} states")
        self._ways.append(ways)
        self._masks.append(mask)
        return len(self._ways) - 1

    def _emit(self, node: Node) -> None:
        """Add states that match `node` and then lead to whatever is added next."""
        self._emits_left -= 1
        if self._emits_left < 0:
            raise Invalid("its repetitions are too many")  # of nothing at all, which needs no states
        if isinstance(node, Chars):
            self._state((), node.mask or _NOTHING)
        elif isinstance(node, Position):
            state = self._state((len(self._ways) + 1,))
            self._positions[state] = node.kind
        elif isinstance(node, Sequence):
            for part in node.parts:
                self._emit(part)
        elif isinstance(node, Choice):
            self._emit_choice(node)
        else:
            self._emit_repeat(node)

    def _emit_choice(self, node: Choice) -> None:
        split = self._state(())
        starts, ends = [], []
        for option in node.options:
            starts.append(len(self._ways))
            self._emit(option)
            ends.append(self._state(()))
        self._ways[split] = tuple(starts)
        for end in ends:
            self._ways[end] = (len(self._ways),)

    def _emit_repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self._emit(node.part)
        if node.most is None:
            split = self._state(())
            self._emit(node.part)
            self._state((split,))
            self._ways[split] = (split + 1, len(self._ways))
            return
        splits = []
        for _ in range(node.most - node.least):
            splits.append(self._state(()))
            self._emit(node.part)
        for split in splits:
            self._ways[split] = (split + 1, len(self._ways))

    # --- over a name

    def _matches(self, name: str) -> bool:
        states: _States = frozenset((0,))
        before = _START
        for character in name:
            seen = (states, before, character)
            after = self._known.get(seen)
            if after is None:
                after = self._known[seen] = self._advance(states, before, character)
            if not after:
                return False
            states = after
            before = "w" if _is_word(character) else "-"
        return self._match in self._reached(states, before, _END)

    def _advance(self, states: _States, before: str, character: str) -> _States:
        bit = 1 << ord(character) if character < "\x80" else 0
        reached = self._reached(states, before, character)
        return frozenset(state + 1 for state in reached if self._masks[state] & bit)

    def _reached(self, states: _States, before: str, character: str) -> set[int]:
        """Where one gets from `states` without a character, at a place between two of them."""
        reached = set(states)
        queue = list(states)
        while queue:
            state = queue.pop()
            if state in self._positions and not _holds(self._positions[state], before, character):
                continue
            for way in self._ways[state]:
                if way not in reached:
                    reached.add(way)
                    queue.append(way)
        self._steps_left -= len(reached)
        if self._steps_left < 0:
            raise Invalid("it is too much work to match")
        return reached


_NOTHING = 1 << 128
"""A mask that no character is in, and that is not 0."""


def _is_word(character: str) -> bool:
    return character < "\x80" and bool(WORD >> ord(character) & 1)


def _holds(position: str, before: str, character: str) -> bool:
    if position == "^":
        return before == _START
    if position == "$":
        return character == _END
    at_boundary = (before == "w") != (character != _END and _is_word(character))
    return at_boundary == (position == "b")
