"""Table progress: how far tables are and what is wrong with them, committed as offsets of groups.

    anabranch-table-TOPIC             how far it is, and what is wrong with it
    anabranch-table-problem-TOPIC     what is wrong with one that cannot be looked at, or has not begun

Offsets tell readers that a table has begun (`spark/history`), and expire when nobody has committed any for
days (offsets.retention.minutes).  So they are committed again every hour, changed or not, and the first of
these groups has none for a table that has not begun.
"""

import logging
import time

from anabranch.base.errors import AnabranchError
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import TopicPartition
from anabranch.client.group_offsets import commit_offsets, committed_offsets
from anabranch.spark.table_settings import group_of
from anabranch.tables.snapshot import Snapshot, Span

_log = logging.getLogger(__name__)

_AGAIN_S = 3600.0
_LONGEST_PROBLEM = 1000
"""Brokers take 4096 bytes."""


class Progress:
    def __init__(self) -> None:
        self._told: dict[str, tuple[dict[int, Span], str, float]] = {}

    def tell(self, topic: str, table: Snapshot | None, problem: str, cluster: Cluster) -> None:
        """The table, None if it cannot be looked at, is as far as that, with that problem if it has one."""
        reached = {} if table is None else table.covered
        covered, said, at_s = self._told.get(topic, (None, "", 0.0))
        if (covered, said) == (reached, problem) and time.monotonic() - at_s < _AGAIN_S:
            return
        ends = {TopicPartition(topic, at): span.end for at, span in reached.items()}
        try:
            if ends:
                commit_offsets(cluster, group_of(topic), ends, metadata=problem[:_LONGEST_PROBLEM])
            self._tell_apart(topic, "" if ends else problem, cluster)
        except AnabranchError as error:
            _log.warning("the progress of the table of topic %s could not be committed: %s", topic, error)
        else:
            self._told[topic] = (reached, problem, time.monotonic())

    def _tell_apart(self, topic: str, problem: str, cluster: Cluster) -> None:
        """In the other group, which there is only if there was ever something to say."""
        if problem or problem_of(topic, cluster):
            first = {TopicPartition(topic, 0): 0}
            commit_offsets(cluster, _problem_group_of(topic), first, metadata=problem[:_LONGEST_PROBLEM])


def _problem_group_of(topic: str) -> str:
    return f"anabranch-table-problem-{topic}"


def problem_of(topic: str, cluster: Cluster) -> str:
    """What is wrong with a table that cannot be looked at, or has not begun."""
    told = committed_offsets(cluster, _problem_group_of(topic))
    return next((one.metadata for one in told.values() if one.metadata), "")
