"""Regular expressions of topic names, in RE2's language and in linear time.

A member sends its expression to the broker (KIP-848), so it is a stranger's program on our one thread.
Python's `re` would run `(a+)+b` for years; RE2 exists because of such patterns, and Kafka uses it.  Here
an expression is parsed to the tree below, and `consumer_regex_match` runs it as an automaton.

    alternation   a|b        repetition  a* a+ a? a{2,5}, lazy forms too (they match the same names)
    group         (a) (?:a) (?P<n>a) (?<n>a)      flags  (?i) (?i:a), and s m U, which change nothing here
    class         [a-z_] [^.] [[:alpha:]] \\d \\w \\s \\D \\W \\S .       escapes  \\. \\x2e \\x{2e} \\Qa.b\\E
    position      ^ $ \\A \\z \\b \\B

Refused, as by RE2: back references, look-around, possessive quantifiers, counts beyond 1000.  Topic
names are ASCII, so a class is a bit mask of 128 bits, and what is not ASCII matches nothing; Unicode
classes (\\p{L}) are refused.
"""

from typing import NamedTuple

from anabranch.base.errors import Invalid

LONGEST = 4096
_DEEPEST = 100
_MOST_REPEATS = 1000

ALL = (1 << 128) - 1


class Chars(NamedTuple):
    """One character out of a set."""

    mask: int


class Position(NamedTuple):
    """A place between characters: `^`, `$`, `b` or `B`."""

    kind: str


class Sequence(NamedTuple):
    parts: tuple["Node", ...]


class Choice(NamedTuple):
    options: tuple["Node", ...]


class Repeat(NamedTuple):
    part: "Node"
    least: int
    most: int | None


Node = Chars | Position | Sequence | Choice | Repeat

EMPTY = Sequence(())


def parse(text: str) -> Node:
    """The tree of `text`.  Invalid, with what is wrong, if it is not an expression of this language."""
    if len(text) > LONGEST:
        raise Invalid(f"it is {len(text)} characters long, the limit is {LONGEST}")
    return _Parser(text).whole()


def mask_of(characters: str) -> int:
    mask = 0
    for character in characters:
        if character < "\x80":
            mask |= 1 << ord(character)
    return mask


def _range(first: str, last: str) -> int:
    return mask_of("".join(map(chr, range(min(ord(first), 128), min(ord(last), 127) + 1))))


_DIGITS = _range("0", "9")
_LOWER, _UPPER = _range("a", "z"), _range("A", "Z")
WORD = _DIGITS | _LOWER | _UPPER | mask_of("_")
_SPACE = mask_of("\t\n\f\r ")
_PUNCTUATION = _range("!", "/") | _range(":", "@") | _range("[", "`") | _range("{", "~")
_SHORT = {"d": _DIGITS, "w": WORD, "s": _SPACE}
_SHORT |= {name.upper(): ALL & ~mask for name, mask in _SHORT.items()}
_CONTROL = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_NAMED = {
    "alnum": _DIGITS | _LOWER | _UPPER,
    "alpha": _LOWER | _UPPER,
    "ascii": ALL,
    "blank": mask_of("\t "),
    "cntrl": _range("\0", "\x1f") | mask_of("\x7f"),
    "digit": _DIGITS,
    "graph": _range("!", "~"),
    "lower": _LOWER,
    "print": _range(" ", "~"),
    "punct": _PUNCTUATION,
    "space": _SPACE | mask_of("\v"),
    "upper": _UPPER,
    "word": WORD,
    "xdigit": _DIGITS | _range("a", "f") | _range("A", "F"),
}
_POSITIONS = {"A": "^", "z": "$", "b": "b", "B": "B"}
_HEX = frozenset("0123456789abcdefABCDEF")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignores_case = False

    def whole(self) -> Node:
        tree = self._choice()
        if self._at < len(self._text):
            raise Invalid("there is a ) too many")
        return tree

    def _next_is(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise Invalid("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._next_is("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._next_is("\\Q"):
                parts.extend(self._literal(character) for character in self._quoted())
                if parts:
                    parts[-1] = self._repeated(parts[-1])
            else:
                parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quoted(self) -> str:
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        return quoted

    # --- repetition

    def _repeated(self, part: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._next_is("?")
        start = self._at
        if self._bounds() is not None:
            raise Invalid(f"{self._text[start : self._at]!r} repeats what is repeated already")
        return Repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._next_is("*"):
            return 0, None
        if self._next_is("+"):
            return 1, None
        if self._next_is("?"):
            return 0, 1
        return self._counts() if self._text.startswith("{", self._at) else None

    def _counts(self) -> tuple[int, int | None] | None:
        """`{2}`, `{2,}` or `{2,5}`; a brace that begins none of them is a character like others."""
        end = self._text.find("}", self._at, self._at + 20)
        least, comma, most = self._text[self._at + 1 : max(end, self._at)].partition(",")
        if not _is_number(least) or not (most == "" or _is_number(most)):
            return None
        self._at = end + 1
        low = int(least)
        high = int(most) if most else None if comma else low
        if low > _MOST_REPEATS or (high is not None and (high > _MOST_REPEATS or high < low)):
            raise Invalid(f"{self._text[: self._at]!r} ends in a count that is out of bounds")
        return low, high

    # --- what is repeated

    def _atom(self) -> Node:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return Chars(self._cased(self._class()))
        if character == ".":
            return Chars(ALL & ~mask_of("\n"))
        if character in "^$":
            return Position(character)
        if character in "*+?":
            raise Invalid(f"there is nothing before {character!r} that could be repeated")
        if character == "\\":
            return self._escape()
        return self._literal(character)

    def _literal(self, character: str) -> Node:
        return Chars(self._cased(mask_of(character)))

    def _cased(self, mask: int) -> int:
        if not self._ignores_case:
            return mask
        # 'a' is 32 above 'A'.
        return mask | (mask & _UPPER) << 32 | (mask & _LOWER) >> 32

    def _escape(self) -> Node:
        character = self._take()
        if character in _POSITIONS:
            return Position(_POSITIONS[character])
        if character in _SHORT:
            return Chars(_SHORT[character])
        return self._literal(self._escaped(character))

    def _escaped(self, character: str) -> str:
        if character == "x":
            return self._hexadecimal()
        if character in _CONTROL:
            return _CONTROL[character]
        if character.isalnum():
            raise Invalid(f"the escape \\{character} is not known")
        return character

    def _hexadecimal(self) -> str:
        if self._next_is("{"):
            end = self._text.find("}", self._at, self._at + 9)
            digits = self._text[self._at : max(end, self._at)]
            self._at = end + 1
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            digits = digits if len(digits) == 2 else ""
        if not digits or not set(digits) <= _HEX or int(digits, 16) > 0x10FFFF:
            raise Invalid("\\x is not followed by a number")
        return chr(int(digits, 16))

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Invalid(f"groups are nested more than {_DEEPEST} deep")
        ignores_case = self._ignores_case
        if self._next_is("?") and self._flags():
            self._depth -= 1
            return EMPTY  # flags for the rest of the group that this stands in
        tree = self._choice()
        if not self._next_is(")"):
            raise Invalid("a ) is missing")
        self._ignores_case = ignores_case
        self._depth -= 1
        return tree

    def _flags(self) -> bool:
        """Read what stands between `(?` and the group; True if there is no group."""
        if self._next_is("P<") or self._next_is("<"):
            end = self._text.find(">", self._at)
            name = self._text[self._at : max(end, self._at)]
            if not name.isidentifier():
                raise Invalid("a group is named by letters, digits and _")
            self._at = end + 1
            return False
        on = True
        while True:
            flag = self._take()
            if flag in ":)":
                return flag == ")"
            if flag == "-" and on:
                on = False
            elif flag == "i":
                self._ignores_case = on
            elif flag not in "smU":
                raise Invalid(f"(?{flag} is not supported")

    # --- classes

    def _class(self) -> int:
        negated = self._next_is("^")
        mask = 0
        first = True
        while first or not self._next_is("]"):
            first = False
            mask |= self._class_item()
        return ALL & ~self._cased(mask) if negated else mask

    def _class_item(self) -> int:
        if self._next_is("[:"):
            return self._named_class()
        low = self._take()
        if low == "\\":
            low = self._take()
            if low in _SHORT:
                return _SHORT[low]
            low = self._escaped(low)
        if not self._text.startswith("-", self._at) or self._text.startswith("-]", self._at):
            return mask_of(low)
        self._at += 1
        high = self._take()
        if high == "\\":
            high = self._escaped(self._take())
        if high < low:
            raise Invalid(f"the range {low}-{high} is empty")
        return _range(low, high)

    def _named_class(self) -> int:
        negated = self._next_is("^")
        end = self._text.find(":]", self._at)
        name = self._text[self._at : max(end, self._at)]
        if name not in _NAMED:
            raise Invalid(f"the class [:{name}:] is not known")
        self._at = end + 2
        return ALL & ~_NAMED[name] if negated else _NAMED[name]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
