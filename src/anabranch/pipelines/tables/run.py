"""The process that maintains tables: a Spark session, and rounds until it is told to stop.

It may be killed at any moment; nothing is lost and nothing counted twice.  SIGTERM ends it at once, and so
does, for a broker that runs it as a child, the end of its standard input.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from anabranch.base.errors import AnabranchError, Unavailable
from anabranch.pipelines.tables.maintainer import Maintainer, Round
from anabranch.pipelines.tables.tasks import run_tasks
from anabranch.spark.session import session_builder

_log = logging.getLogger(__name__)

_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",  # a result a batch
}
_LAST_MOMENT_S = 10.0
_TERMINATED = 128 + signal.SIGTERM  # as shells say it


class Wanted(NamedTuple):
    """What is to be maintained, and by what."""

    bootstrap: str
    registry: str
    master: str
    interval_s: float
    once: bool
    roots: Sequence[Path]
    """Where tables may be, and nowhere else."""


def run(wanted: Wanted, tell: Callable[[Round], None]) -> None:
    """Bring tables up to date, again and again; with `once` until there is nothing left to copy.

    Unavailable if that cannot be done once; else whatever is wrong is tried again, later.
    """
    master = wanted.master
    signal.signal(signal.SIGTERM, _stop)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nobody else has to reach it
    builder = session_builder().master(master).appName("anabranch tables")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        keep_up(
            Maintainer(partial(run_tasks, spark), wanted.bootstrap, wanted.registry, roots=wanted.roots),
            wanted,
            tell,
        )
    finally:
        spark.stop()


def keep_up(maintainer: Maintainer, wanted: Wanted, tell: Callable[[Round], None]) -> None:
    while True:
        began = time.monotonic()
        is_behind = _round(maintainer, wanted.once, tell)
        if wanted.once and not is_behind:
            return
        if not is_behind:
            time.sleep(max(0.0, began + wanted.interval_s - time.monotonic()))


def _round(maintainer: Maintainer, once: bool, tell: Callable[[Round], None]) -> bool:
    try:
        done = maintainer.round()
    except AnabranchError as error:
        if once:
            raise
        _log.warning("no round: %s", error)
        return False
    tell(done)
    if once and not done.is_behind:
        for topic, problem in done.problems.items():
            raise Unavailable(f"the table of topic {topic!r} is not up to date: {problem}")
    return done.is_behind


def _stop(number: int, frame: FrameType | None) -> None:
    # Not as an exception: amid a call to the JVM it would come out as anything.  The JVM ends with its input.
    os._exit(_TERMINATED)


def end_with_parent() -> None:
    """End this process when its standard input does: when whoever started it is gone, however that went."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_LAST_MOMENT_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
