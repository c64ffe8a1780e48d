"""What Spark's server says of queries, heard: no Spark, but its messages.

The server here says what it is told to, and ends its stream some time after it is asked to.
"""

import errno
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pyspark.sql.connect.proto as pb2
import pytest
from pyspark.errors import PySparkException

from anabranch.pipelines import listening
from anabranch.pipelines.listening import Listening

PROGRESS = pb2.StreamingQueryEventType.QUERY_PROGRESS_EVENT
TERMINATED = pb2.StreamingQueryEventType.QUERY_TERMINATED_EVENT


class Server:
    """The client of a session, as far as listening goes; `at_removal` is what it says at the very end."""

    def __init__(self, *, ends: bool = True) -> None:
        self.says: queue.Queue[Any] = queue.Queue()
        self.at_removal: list[Any] = []
        self.removed = threading.Event()
        self._ends = ends

    def execute_command_as_iterator(self, command: Any) -> Iterator[Mapping[str, Any]]:
        assert command.streaming_query_listener_bus_command.add_listener_bus_listener
        yield said(added=True)
        while (one := self.says.get()) is not None:
            if isinstance(one, Exception):
                raise one
            yield one

    def execute_command(self, command: Any) -> None:
        assert command.streaming_query_listener_bus_command.remove_listener_bus_listener
        self.removed.set()
        for one in [*self.at_removal, *([None] if self._ends else [])]:
            self.says.put(one)


def said(*events: Any, added: bool = False) -> Mapping[str, Any]:
    result = pb2.StreamingQueryListenerEventsResult(events=events)
    if added:
        result.listener_bus_listener_added = True
    return {"streaming_query_listener_events_result": result}


def progress(query: str, rows: int) -> Any:
    document = {"progress": {"id": query, "name": "numbers", "numInputRows": rows}}
    return pb2.StreamingQueryListenerEvent(event_json=json.dumps(document), event_type=PROGRESS)


def terminated(query: str) -> Any:
    document = {"id": query, "runId": "r", "exception": None}
    return pb2.StreamingQueryListenerEvent(event_json=json.dumps(document), event_type=TERMINATED)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def session(server: Server) -> Any:
    return SimpleNamespace(client=server)


def test_an_update_hears_its_queries_until_they_have_ended() -> None:
    server = Server()
    heard: list[int] = []
    with Listening(session(server)) as listening:
        server.says.put(said(progress("early", 1)))  # of no update
        server.says.put(said(terminated("early")))
        wait_until(server.says.empty)
        listening.to(lambda document: heard.append(document["numInputRows"]))
        server.says.put(said(progress("one", 2), progress("two", 3)))
        server.says.put(said(terminated("one"), progress("two", 4), terminated("two")))
        wait_until(lambda: len(heard) == 3)
        listening.last_words(60)
        listening.to(None)
    assert heard == [2, 3, 4]


def test_what_cannot_be_told_does_not_end_the_listening(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    heard: list[int] = []

    def hear(document: Mapping[str, Any]) -> None:
        heard.append(document["numInputRows"])
        if len(heard) == 1:
            raise OSError(errno.ENOSPC, "no room for the status")

    listening = Listening(session(server))
    with listening:
        listening.to(hear)
        server.says.put(said(progress("one", 1)))
        server.says.put(said(progress("one", 2), terminated("one")))
        server.says.put(None)
        listening._thread.join(60)
    assert heard == [1, 2]
    assert "no room for the status" in caplog.text


def test_what_is_said_while_nobody_listens_any_more_holds_up_nobody() -> None:
    server = Server()
    server.at_removal = [said(progress("late", 1)), said(terminated("late"))]
    listening = Listening(session(server))
    with listening:
        pass
    assert server.removed.is_set()
    assert not listening._thread.is_alive()


def test_a_stream_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_GOODBYE_S", 0.05)
    server = Server(ends=False)
    with Listening(session(server)):
        pass
    assert server.removed.is_set()
    server.says.put(None)


def test_a_server_that_goes_away_ends_the_listening() -> None:
    server = Server()
    with Listening(session(server)) as listening:
        server.says.put(PySparkException("gone"))
        listening._thread.join(60)
        assert not listening._thread.is_alive()
