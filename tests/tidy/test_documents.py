"""Documents name what exists: links lead somewhere, `make` targets are in the Makefile."""

import re

import pytest

from tests.tidy.documents import PAGES, commands, links, read
from tests.tidy.tree import ROOT


def headings(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    lines = re.findall(r"^#+ (.*)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in links(page):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        if anchor:
            assert anchor in headings(str(target.relative_to(ROOT))), f"{page} links to {link}"


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {command.split()[1] for command in commands(page) if command.startswith("make ")}
    named |= set(re.findall(r"`make ([a-z-]+)", read(page)))
    assert named <= targets


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    assert "make test" in commands("README.md")
    assert "make test" in (ROOT / ".ci" / "run").read_text()
