"""Query lag: how far a streaming query is behind, from what Spark itself reports of it.

    for one in lags(query.lastProgress):
        print(one.partition, one.behind)

A query's progress says for each source how far it has read (`endOffset`) and how far it could have
(`latestOffset`); sources that are not ours have offsets of other forms and are passed over.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from anabranch.base.errors import Invalid
from anabranch.client.cluster import Offsets
from anabranch.client.destinations import TopicPartition
from anabranch.spark.positions import from_json


class Lag(NamedTuple):
    partition: TopicPartition
    read_to: int
    latest: int

    @property
    def behind(self) -> int:
        """Records that were there and not read, as far as offsets tell."""
        return max(0, self.latest - self.read_to)


def lags(progress: Any) -> Iterator[Lag]:
    """The lag of every partition that the query of `progress` reads.  None of it is known before it began."""
    document = json.loads(progress.json) if hasattr(progress, "json") else progress
    for source in (document or {}).get("sources", ()):
        try:
            read_to, latest = from_json(source["endOffset"]), from_json(source["latestOffset"])
        except (Invalid, KeyError):
            continue
        for partition in sorted(latest):
            yield Lag(partition, read_to.get(partition, 0), latest[partition])


def read_to(progress: Any) -> Offsets:
    """How far the query of `progress` has read.

    Known of a micro-batch that runs again, too, of which Spark does not say how far it could have read.
    """
    document = json.loads(progress.json) if hasattr(progress, "json") else progress
    found: Offsets = {}
    for source in (document or {}).get("sources", ()):
        with contextlib.suppress(Invalid):
            found |= from_json(source.get("endOffset"))
    return found


def total_behind(progress: Any) -> int:
    return sum(one.behind for one in lags(progress))
