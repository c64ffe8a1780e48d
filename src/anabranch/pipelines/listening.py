"""The progress of a run's streaming queries, as Spark's server tells it, micro-batch by micro-batch.

    with Listening(spark) as listening:
        listening.to(hear)          an update says whom the events are for
        listening.last_words(2)     and waits for those of its queries: what comes later belongs to nobody

Events come on a stream of their own and are heard in a thread of its own.  PySpark's own listeners are not
used: taking one away waits, under a lock, for the thread that hears, and that thread waits for the lock if
one more event comes, forever.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import pyspark.sql.connect.proto as pb2
from pyspark.errors import PySparkException

from anabranch.pipelines.connect import SparkUnavailable

log = logging.getLogger(__name__)

Hear = Callable[[Mapping[str, Any]], None]
_PROGRESS = pb2.StreamingQueryEventType.QUERY_PROGRESS_EVENT
_TERMINATED = pb2.StreamingQueryEventType.QUERY_TERMINATED_EVENT
_GONE = (PySparkException, SparkUnavailable)
_GOODBYE_S = 5.0


class Listening:
    def __init__(self, spark: Any) -> None:
        self._client = spark.client
        self._hear: Hear | None = None
        self._speaking: set[str] = set()
        self._changed = threading.Condition()
        # Nobody who ends waits for it: it ends with the session.
        self._thread = threading.Thread(target=self._listen, name="progress", daemon=True)
        self._events: Iterator[dict[str, Any]] = iter(())

    def __enter__(self) -> Self:
        command = pb2.Command()
        command.streaming_query_listener_bus_command.add_listener_bus_listener = True
        self._events = self._client.execute_command_as_iterator(command)
        for said in self._events:
            if said["streaming_query_listener_events_result"].listener_bus_listener_added:
                break
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        command = pb2.Command()
        command.streaming_query_listener_bus_command.remove_listener_bus_listener = True
        try:
            self._client.execute_command(command)
        except _GONE:
            return  # whoever asked it for more has said so
        self._thread.join(_GOODBYE_S)

    def to(self, hear: Hear | None) -> None:
        with self._changed:
            self._hear = hear
            self._speaking.clear()

    def last_words(self, timeout_s: float) -> None:
        """Waits until every query that has said something has ended."""
        with self._changed:
            self._changed.wait_for(lambda: not self._speaking, timeout_s)

    def _listen(self) -> None:
        try:
            for said in self._events:
                for event in said["streaming_query_listener_events_result"].events:
                    self._heard(event.event_type, json.loads(event.event_json))
        except _GONE:
            pass  # as above

    def _heard(self, kind: int, event: Mapping[str, Any]) -> None:
        if kind == _PROGRESS:
            progress = event["progress"]
            with self._changed:
                self._speaking.add(progress["id"])
                hear = self._hear
            if hear is not None:
                try:
                    hear(progress)
                except OSError as error:  # the next one may be written down again
                    log.warning("progress that could not be told: %s", error)
        elif kind == _TERMINATED:
            with self._changed:
                self._speaking.discard(event["id"])
                self._changed.notify_all()
