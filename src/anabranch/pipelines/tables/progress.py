"""How far tables are, told to groups: so that whoever looks at groups sees it, and what is wrong besides.

A group's offsets are forgotten when nobody has committed any for days (offsets.retention.minutes), but they
tell readers that a table has begun (`spark/history`): so they are told again every hour, changed or not.
"""

import logging
import time

from anabranch.base.errors import AnabranchError
from anabranch.spark.cluster import Cluster, TopicPartition
from anabranch.spark.group_offsets import commit_offsets
from anabranch.spark.table_settings import group_of
from anabranch.tables.snapshot import Snapshot, Span

_log = logging.getLogger(__name__)

_AGAIN_S = 3600.0
_LONGEST_PROBLEM = 1000
"""Brokers take 4096 bytes."""


class Progress:
    def __init__(self) -> None:
        self._told: dict[str, tuple[dict[int, Span], str, float]] = {}

    def tell(self, topic: str, table: Snapshot, problem: str, cluster: Cluster) -> None:
        """The table is as far as that, with that problem if it has one."""
        covered, said, at_s = self._told.get(topic, ({}, "", 0.0))
        if (covered, said) == (table.covered, problem) and time.monotonic() - at_s < _AGAIN_S:
            return
        ends = {TopicPartition(topic, at): span.end for at, span in table.covered.items()}
        try:
            if ends:
                commit_offsets(cluster, group_of(topic), ends, metadata=problem[:_LONGEST_PROBLEM])
        except AnabranchError as error:
            _log.warning("the progress of the table of topic %s could not be committed: %s", topic, error)
        else:
            self._told[topic] = (table.covered, problem, time.monotonic())
