"""The test session: strict encoders, short-lived JVMs for Spark, parallel runs by `tests.support.schedule`.

Encoders are strict in this process and in the brokers and commands that it starts.

-m jvm      the tests that start a JVM; -m "not jvm": the others
-n auto     some workers more than there are processors, -n logical: just as many
"""

import gc
import os
from collections.abc import Generator

import pytest
from xdist.remote import Producer

from tests.support import schedule
from tests.support.java import make_short_lived
from tests.support.zookeeper import zookeeper  # noqa: F401  a fixture

os.environ["ANABRANCH_STRICT"] = "1"  # before anything imports the encoder, which decides by it
make_short_lived(os.environ)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if schedule.needs_java(item.nodeid):
            item.add_marker(pytest.mark.jvm)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: schedule.place(item.nodeid))


def pytest_collection_finish() -> None:
    """Ten thousand tests and all that they import stay as they are: no collection need look at them again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Generator[None, int, int]:
    processors = yield
    return processors + (schedule.MORE_THAN_PROCESSORS if config.option.numprocesses == "auto" else 0)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> schedule.ByGroup | None:
    return schedule.ByGroup(config, log) if config.option.dist == "loadfile" else None
