"""With a child that says when it starts and ends with its standard input, as the real one does."""

import asyncio
import errno
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from anabranch.base.ids import TopicId, TopicName
from anabranch.base.processes import RealProcesses
from anabranch.meta.image import ClusterImage, ImageChange, TopicChange, TopicImage
from anabranch.server.config_tables import TablesConfig
from anabranch.tables import supervisor as module
from anabranch.tables.supervisor import Supervisor, maintainer_command

PATIENT = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"gone"), os._exit(0)))
os.write(1, b"here")
sys.stdin.read()
"""
SHORT = "print('here', flush=True)"


class Scene:
    """A supervisor and the topics it is told about."""

    def __init__(self, program: str, log: Path, needs: str = "sys") -> None:
        self.log = log
        self.supervisor = Supervisor(RealProcesses(), [sys.executable, "-S", "-c", program], log, needs)
        self.task = asyncio.ensure_future(self.supervisor.run())

    def tell(self, old: TopicImage | None, new: TopicImage | None) -> None:
        nothing = ClusterImage(cluster_id="c")
        self.supervisor.image_changed(ImageChange(nothing, nothing, [TopicChange(old, new)]))

    async def until(self, said: str, times: int) -> None:
        await until(lambda: self.log.exists() and self.log.read_text().count(said) >= times)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def a_few_turns() -> None:
    """What would happen at once has happened: no clock is in the way of it."""
    for _ in range(20):
        await asyncio.sleep(0)


def topic(enabled: str | None) -> TopicImage:
    config = {} if enabled is None else {"anabranch.table.enable": enabled}
    return TopicImage(TopicName.from_kafka("orders"), TopicId(uuid4()), (), config, False)


@pytest.fixture
async def scenes() -> AsyncIterator[list[Scene]]:
    made: list[Scene] = []
    yield made
    for scene in made:
        scene.task.cancel()
        await asyncio.gather(scene.task, return_exceptions=True)


async def test_it_runs_while_a_topic_is_a_table(tmp_path: Path, scenes: list[Scene]) -> None:
    scene = Scene(PATIENT, tmp_path / "log")
    scenes.append(scene)
    plain, table = topic("false"), topic("true")
    scene.tell(None, plain)
    await a_few_turns()
    assert not scene.log.exists()
    scene.tell(None, table)
    await scene.until("here", 1)
    scene.tell(table, None)
    await scene.until("gone", 1)
    scene.tell(None, table)
    await scene.until("here", 2)


async def test_one_that_ends_is_started_again(
    tmp_path: Path, scenes: list[Scene], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.01)
    scene = Scene(SHORT, tmp_path / "log")
    scenes.append(scene)
    scene.tell(None, topic("true"))
    await scene.until("here", 3)
    assert "is started again" in caplog.text


async def test_a_child_that_cannot_be_started_is_tried_again(
    tmp_path: Path, scenes: list[Scene], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.05)
    (tmp_path / "log").mkdir()
    scene = Scene(PATIENT, tmp_path / "log")
    scenes.append(scene)
    scene.tell(None, topic("true"))
    await until(lambda: caplog.text.count("cannot be started") > 1)
    assert not scene.task.done(), "the broker would end with it"
    (tmp_path / "log").rmdir()
    await scene.until("here", 1)


async def test_the_log_of_one_that_runs_for_long_stays_short(
    tmp_path: Path, scenes: list[Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    monkeypatch.setattr(module, "_MOST_LOG_BYTES", 1000)
    scene = Scene("while True: print('here' * 100, flush=True)", tmp_path / "log")
    scenes.append(scene)
    scene.tell(None, topic("true"))
    await scene.until("here", 1)
    before = 0
    async with asyncio.timeout(90):
        while (size := scene.log.stat().st_size) >= before:
            before = size
            await asyncio.sleep(0.001)


async def test_without_spark_it_says_what_is_needed(
    tmp_path: Path, scenes: list[Scene], caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(PATIENT, tmp_path / "log", needs="no_such_module")
    scenes.append(scene)
    scene.tell(None, topic("true"))
    await until(lambda: "pip install 'anabranch[spark]'" in caplog.text)
    await a_few_turns()
    assert not scene.log.exists()


async def test_folders_of_packages_that_cannot_be_listed_do_not_end_it(
    tmp_path: Path, scenes: list[Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(module, "find_spec", refuse)
    scene = Scene(PATIENT, tmp_path / "log")
    scenes.append(scene)
    scene.tell(None, topic("true"))
    await until(lambda: scene.task.done() or scene.log.exists())
    assert not scene.task.done()


async def test_it_ends_when_it_is_told_to_whatever_happens_just_then(
    tmp_path: Path, scenes: list[Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    pausing = asyncio.Event()
    pause = Supervisor._pause

    async def paused(supervisor: Supervisor, pause_s: float) -> None:
        asyncio.get_running_loop().call_soon(pausing.set)
        await pause(supervisor, pause_s)

    monkeypatch.setattr(Supervisor, "_pause", paused)
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 3600.0)
    scene = Scene(SHORT, tmp_path / "log")
    scenes.append(scene)
    scene.tell(None, topic("true"))
    async with asyncio.timeout(90):
        await pausing.wait()
    await a_few_turns()
    scene.supervisor._changed.set()
    scene.task.cancel()
    await a_few_turns()
    assert scene.task.done()


async def test_a_supervisor_that_ends_takes_its_child_along(tmp_path: Path) -> None:
    scene = Scene(PATIENT, tmp_path / "log")
    scene.tell(None, topic("true"))
    await scene.until("here", 1)
    scene.task.cancel()
    async with asyncio.timeout(90):
        await asyncio.gather(scene.task, return_exceptions=True)
    assert "gone" in scene.log.read_text()


def test_the_command_is_ours() -> None:
    words = maintainer_command(
        "127.0.0.1:9092", "127.0.0.1:8080", ("/a", "/b"), TablesConfig(interval_ms=1500)
    )
    assert words[1:] == [
        *("-m", "anabranch.cli.main", "table", "run", "--with-parent"),
        *("--bootstrap", "127.0.0.1:9092", "--master", "local[2]", "--interval", "1.5"),
        *("--schema-registry", "http://127.0.0.1:8080"),
        *("--root", "/a", "--root", "/b"),
    ]
