"""The progress of a run's streaming queries, as Spark's server tells it, micro-batch by micro-batch.

A session has one listener; an update says to whom it speaks (`to`).  It speaks from a thread of PySpark's.
What is said after an update is over belongs to nobody, so an update waits for the last words of its queries.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from anabranch.pipelines.flows import from_json

Hear = Callable[[Mapping[str, Any]], None]


class Listening(StreamingQueryListener):
    def __init__(self) -> None:
        self._hear: Hear | None = None
        self._speaking: set[str] = set()
        self._changed = threading.Condition()

    def to(self, hear: Hear | None) -> None:
        with self._changed:
            self._hear = hear
            self._speaking.clear()

    def last_words(self, timeout_s: float) -> None:
        """Waits until every query that has said something has ended."""
        with self._changed:
            self._changed.wait_for(lambda: not self._speaking, timeout_s)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        with self._changed:
            self._speaking.add(str(event.progress.id))
            hear = self._hear
        if hear is not None:
            hear(from_json(event.progress.json))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._changed:
            self._speaking.discard(str(event.id))
            self._changed.notify_all()
