"""The documents, as far as they can be tried out: commands in `console` blocks, blocks in Python."""

import re
from typing import NamedTuple

from tests.tidy.tree import ROOT

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/operations.md",
    "docs/cluster.md",
    "docs/pulsar.md",
    "docs/crossing.md",
    "docs/schemas.md",
    "docs/configuration.md",
    "docs/design.md",
)

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """What stands after `$ ` in a console block, without comments; none in any other."""
        lines = self.text.splitlines() if self.language == "console" else []
        return [line[2:].split("  #")[0].strip() for line in lines if line.startswith("$ ")]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    return [Block(*match.groups()) for match in _BLOCK.finditer(read(page))]


def commands(page: str) -> list[str]:
    """The commands of all of the page's console blocks."""
    return [command for block in blocks(page) for command in block.commands]


def links(page: str) -> list[str]:
    return _LINK.findall(read(page))
