"""The supervisor, over processes that are made up."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.errors import Unavailable
from anabranch.cli.local_cluster import supervisor as module
from anabranch.cli.local_cluster.plan import (
    BROKER,
    CLUSTER_FILE,
    Founded,
    Planned,
    Wanted,
    replication_defaults,
)
from anabranch.cli.local_cluster.ports import FreePorts
from anabranch.cli.local_cluster.supervisor import Supervisor

SERVES = "import sys, time; open(sys.argv[1], 'w').write('{}'); time.sleep(600)"
PORT_TAKEN = "print('anabranch: 127.0.0.1:9095 is taken by another process'); raise SystemExit(1)"


@pytest.fixture
def programs() -> dict[int, str]:
    """What the brokers run, by number."""
    return {}


@pytest.fixture
async def started(
    tmp_path: Path, programs: Mapping[int, str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Supervisor]:
    def planned(number: int, wanted: Wanted, *more: Any) -> Planned:
        place = tmp_path / f"{BROKER}-{number}"
        program = programs.get(number, SERVES)
        command: Sequence[str] = [sys.executable, "-c", program, str(place / "ready.json")]
        return Planned(BROKER, f"{BROKER}-{number}", command, {"kafka": 9091 + number}, place)

    monkeypatch.setattr(module, "broker_process", planned)
    supervisor = Supervisor(
        Wanted(data=tmp_path),
        Founded([1, 2], "127.0.0.1:2181"),
        "here",
        replication_defaults(2),
        FreePorts("127.0.0.1"),
        asyncio.Event(),
    )
    await supervisor.start()
    yield supervisor
    await supervisor.stop()


def kept(data: Path) -> list[int]:
    brokers: list[int] = json.loads((data / CLUSTER_FILE).read_text())["brokers"]
    return brokers


async def test_one_more_that_does_not_start_is_not_added(
    started: Supervisor, programs: dict[int, str], tmp_path: Path
) -> None:
    programs[3] = PORT_TAKEN
    with pytest.raises(Unavailable, match=r"(?s)9095 is taken by another process.*broker-3 is not added"):
        await started.do("add", None)
    assert [row["id"] for row in started.rows()] == ["broker-1", "broker-2"]
    assert kept(tmp_path) == [1, 2]
    del programs[3]
    (row,) = await started.do("add", None)
    assert (row["id"], row["state"]) == ("broker-3", "running")
    assert kept(tmp_path) == [1, 2, 3]


async def test_one_more_says_which_settings_stay(started: Supervisor) -> None:
    (row,) = await started.do("add", None)
    assert "(default.replication.factor=2, min.insync.replicas=1) until the next" in row["note"]
