"""A transcript through pulsar-client: what it said to a broker and heard back, as lines to be repeated.

What may differ between two good brokers is taken out here, and only here:
  * topic names carry a prefix of the run, which is cut off;
  * message ids are compared, never shown: what they count is the broker's own;
  * the text of an error is the broker's own: the line has the name of the client's exception.

An action that takes longer than its deadline is a line as well, never a hang.
"""

import argparse
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import pulsar

ROOT = "persistent://public/default/"
RECEIVE_MS = 40_000
SILENCE_MS = 700  # how long nothing must come before a line says that nothing comes


class Transcript:
    def __init__(self, title: str | None) -> None:
        parser = argparse.ArgumentParser(description=title)
        parser.add_argument("--service", required=True, help="pulsar://127.0.0.1:PORT of the broker")
        parser.add_argument("--admin", required=True, help="http://127.0.0.1:PORT of its REST API")
        parser.add_argument(
            "--prefix", required=True, help="put before every topic; must be new to the broker"
        )
        told = parser.parse_args()
        self.prefix: str = told.prefix
        self._service: str = told.service
        self._admin: str = told.admin
        self.client = self.new_client()

    def new_client(self) -> pulsar.Client:
        return pulsar.Client(
            self._service,
            operation_timeout_seconds=40,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
        )

    def topic(self, name: str, root: str = ROOT) -> str:
        return f"{root}{self.prefix}{name}"

    def section(self, title: str) -> None:
        print(f"== {title} ==", flush=True)

    def line(self, label: str, value: Any = "ok") -> None:
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        print(f"{label}: {text}".replace(self.prefix, ""), flush=True)

    def attempt(self, label: str, action: Callable[[], Any]) -> Any:
        """Run `action`; write `ok` or the error it raised; what it gave."""
        try:
            value = action()
        except Exception as error:  # noqa: BLE001  the kind of the error is the observation
            self.line(label, type(error).__name__)
            return None
        self.line(label)
        return value

    def rest(self, method: str, path: str, body: Any = None) -> Any:
        """A REST call; its status, and its JSON if there is any."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._admin}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read().decode()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, None

    def partitioned(self, name: str, partitions: int) -> str:
        """A partitioned topic of this run."""
        status, _ = self.rest(
            "PUT", f"/admin/v2/persistent/public/default/{self.prefix}{name}/partitions", partitions
        )
        assert status == 204, f"the partitioned topic {name} was not made: {status}"
        return self.topic(name)


def receive(consumer: Any, count: int, *, ack: bool = True, timeout_ms: int = RECEIVE_MS) -> list[Any]:
    """The next `count` messages, fewer if nothing comes for so long."""
    messages = []
    while len(messages) < count:
        try:
            message = consumer.receive(timeout_millis=timeout_ms)
        except pulsar.Timeout:
            break
        if ack:
            consumer.acknowledge(message)
        messages.append(message)
    return messages


def shared_out(consumers: Sequence[Any], count: int, *, ack: bool = True) -> list[list[Any]]:
    """What each gets of `count` messages, fewer if they do not come in time; and whatever else comes."""
    messages: list[list[Any]] = [[] for _ in consumers]
    deadline = time.monotonic() + RECEIVE_MS / 1000
    while sum(map(len, messages)) < count and time.monotonic() < deadline:
        for got, consumer in zip(messages, consumers, strict=True):
            got += receive(consumer, count, ack=ack, timeout_ms=100)
    for got, consumer in zip(messages, consumers, strict=True):
        got += receive(consumer, 1000, ack=ack, timeout_ms=SILENCE_MS)
    return messages


def texts(messages: list[Any]) -> list[str]:
    return [message.data().decode() for message in messages]


def more(consumer: Any) -> list[str]:
    """What still comes although nothing should."""
    return texts(receive(consumer, 1000, ack=False, timeout_ms=SILENCE_MS))
