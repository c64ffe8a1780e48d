"""A part imports only what stands below it.

The order is the table of docs/design.md, section 8, read from the page itself, so the two cannot
disagree.  `node.py` and `node_parts.py`, the composition root, stand above every part they build and below
the command line.
Parts in one row of the table are neighbours and do not import each other.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.tree import PACKAGE, ROOT, parsed, relative, source_files

FREE_FOR_ALL = "anabranch"  # the package itself: its version
GATEWAYS = ("anabranch.server.kafka", "anabranch.server.pulsar")


@cache
def ranks() -> dict[str, int]:
    """Each part's height, 0 the lowest."""
    section = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    section = section.split("## 8. Layers")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    top_down = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in rows]
    top_down[1:1] = [["node"], ["node_parts"]]
    return {part: height for height, row in enumerate(reversed(top_down)) for part in row}


def part_of(module: str) -> str:
    names = module.split(".")
    return names[1] if len(names) > 1 else FREE_FOR_ALL


def module_of(path: Path) -> str:
    names = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module of ours that `path` imports, wherever in the file, and the line."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}:{node.lineno} imports relatively; spell the module out"
            module = node.module or ""
            if module == "anabranch":
                yield from ((f"anabranch.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield module, node.lineno


def ours(path: Path) -> Iterator[tuple[str, int]]:
    for module, line in imports(path):
        if module.split(".")[0] == "anabranch" and module != "anabranch.__version__":
            yield module, line


def test_the_design_has_a_place_for_every_part() -> None:
    assert ranks()["base"] == 0
    parts = {part_of(module_of(path)) for path in source_files()} - {FREE_FOR_ALL}
    assert parts <= ranks().keys(), f"not in the table of docs/design.md: {sorted(parts - ranks().keys())}"


@pytest.mark.parametrize("path", source_files(), ids=relative)
def test_imports_only_what_stands_below(path: Path) -> None:
    module = module_of(path)
    part = part_of(module)
    for imported, line in ours(path):
        other = part_of(imported)
        if other in (FREE_FOR_ALL, part):
            continue
        assert part != FREE_FOR_ALL, f"{relative(path)}:{line} the package itself imports {imported}"
        assert ranks()[other] < ranks()[part], (
            f"{relative(path)}:{line} imports {imported}, but `{other}` does not stand below `{part}`"
        )


@pytest.mark.parametrize("path", source_files(), ids=relative)
def test_the_gateways_do_not_know_each_other(path: Path) -> None:
    module = module_of(path)
    for mine, others in (GATEWAYS, GATEWAYS[::-1]):
        if module.startswith(mine):
            strays = [line for imported, line in ours(path) if imported.startswith(others)]
            assert not strays, f"{relative(path)}:{strays[0]} reaches into {others}"
