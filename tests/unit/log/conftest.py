"""Every test of the log gives its descriptors back."""

from collections.abc import Iterator

import pytest

from tests.support.logs import release_all


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    yield
    release_all()
