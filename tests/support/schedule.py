"""The schedule of a parallel run: which test files one worker runs together, and which come first.

    one worker        the files that share a Spark session, whose JVM starts once; then some with their own
    another worker    the other files that start JVMs, one after the other
    another one       the files that share a ZooKeeper server, which is a small JVM that mostly waits
    the others        what mostly waits (real clients and processes), the longest first; then what computes

A JVM takes a processor for a quarter of a minute before it does anything, so no more than these two run at a
time.  What computes comes last because it is in the smallest pieces: all workers end together.

There are more workers than processors, because what waits leaves its processor to others.  pytest-xdist hands
out the groups in the order in which the tests were collected; a group is never divided.
"""

from itertools import count

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ONE_SESSION = (
    "tests/spark/tables/test_tables.py",
    "tests/spark/tables/test_topic_table.py",
    "tests/spark/test_batch.py",
    "tests/spark/test_stream.py",
    "tests/spark/test_values.py",
    "tests/spark/test_document.py",
)
"""Whatever uses the fixture `spark`."""

JAVA = {
    "the session's": (
        *ONE_SESSION,
        "tests/pipelines/test_values.py",
        "tests/pipelines/test_document.py",
        "tests/spark/test_java_wheel.py",
    ),
    "drivers": (
        "tests/pipelines/test_run.py",
        "tests/demo/test_showing.py",
        "tests/spark/test_cluster.py",
        "tests/spark/test_kill.py",
        "tests/spark/test_connect.py",
        "tests/pipelines/test_elsewhere.py",
    ),
}
"""All that starts a JVM, in two groups that take about as long."""

ON_ZOOKEEPER = (
    "tests/conform/test_metadata_store.py",
    "tests/system/test_zookeeper_store.py",
    "tests/system/test_zookeeper_command.py",
    "tests/system/test_cluster_broker.py",
    "tests/system/test_cluster_up.py",
    "tests/system/test_cluster_clients.py",
    "tests/system/test_cluster_pulsar.py",
    "tests/system/test_cluster_faults.py",
)
"""Whatever uses the fixture `zookeeper`: one server for all.  Its tests are marked `jvm` one by one."""

LONGEST = (
    "tests/compat/test_groups.py",
    "tests/system/test_kill.py",
    "tests/compat/test_group_churn.py",
    "tests/tidy/test_documents_run.py",
    "tests/system/test_cli_clients.py",
    "tests/system/test_cli_groups.py",
    "tests/system/test_cli_pulsar.py",
    "tests/system/test_limits.py",
    "tests/system/test_pulsar_exactly_once.py",
    "tests/compat/test_transcripts.py",
    "tests/compat/test_share_consumers.py",
    "tests/compat/test_restart.py",
    "tests/system/test_exactly_once.py",
    "tests/system/test_compaction.py",
    "tests/system/test_tables_kill.py",
    "tests/system/test_full_disk.py",
    "tests/compat/test_pulsar_transcripts.py",
    "tests/system/test_pulsar_churn.py",
    "tests/sim/test_seeds.py",
)
"""Of the others, those that take more than a quarter of a minute."""

WAITING = ("tests/compat/", "tests/system/", "tests/spark/", "tests/pipelines/", "tests/fuzz/", "tests/demo/")
"""Where tests are long, and wait for clients and processes."""

MORE_THAN_PROCESSORS = 3

_JAVA = {file: group for group, files in JAVA.items() for file in files}
_GROUPS = _JAVA | dict.fromkeys(ON_ZOOKEEPER, "ZooKeeper's")
_PLACES = dict(zip((*_GROUPS, *LONGEST), count(), strict=False))


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def needs_java(nodeid: str) -> bool:
    return file_of(nodeid) in _JAVA


def place(nodeid: str) -> int:
    """The smaller the earlier; equal ones stay as they were collected."""
    file = file_of(nodeid)
    return _PLACES.get(file, len(_PLACES) + (not file.startswith(WAITING)))


class ByGroup(LoadScopeScheduling):
    """`--dist loadfile`, but that files which share a JVM are one."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        return _GROUPS.get(file, file)
