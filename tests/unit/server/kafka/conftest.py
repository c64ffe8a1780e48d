from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    async with open_broker(tmp_path / "data") as broker:
        yield broker
