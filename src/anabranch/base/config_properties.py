r"""Java's `.properties` files, which is what Kafka's configuration is written in.

    # a comment            ! also a comment
    log.dirs=data          name: value          name value
    listeners=PLAINTEXT://\
        127.0.0.1:9092     a trailing backslash continues the line; the next one's indent is dropped

Escapes \t \n \r \f and \uXXXX mean what they say; any other escaped character is itself.
"""

import re

from anabranch.base.errors import InvalidConfig

_SEPARATOR = re.compile(r"((?:\\.|[^\\\s=:])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The entries of a file.  InvalidConfig, with the line, if one is there twice."""
    entries: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _SEPARATOR.fullmatch(line)
        assert match is not None, line  # the pattern takes anything
        name, value = _unescape(match[1]), _unescape(match[2])
        if name in entries:
            raise InvalidConfig(f"line {number}: {name} is set twice")
        entries[name] = value.strip()
    return entries


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines with their continuations, and the number of the first, without comments and blanks."""
    lines: list[tuple[int, str]] = []
    started, pending = 0, ""
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.lstrip(" \t\f")
        if not pending:
            if not line or line[0] in "#!":
                continue
            started = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        lines.append((started, pending + line))
        pending = ""
    if pending:
        lines.append((started, pending))
    return lines


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _NAMED.get(escape, escape)
