"""Syntax trees: those of a tidy test's modules are gone when it ends.

They are millions of objects, which every collection of garbage would go through for the rest of the run.
"""

from collections.abc import Iterator

import pytest

from tests.tidy.tree import parsed


@pytest.fixture(scope="module", autouse=True)
def _syntax_trees() -> Iterator[None]:
    yield
    parsed.cache_clear()
