"""A transcript: what one client said to a broker and heard back, as lines that any broker must repeat.

A client script runs a fixed list of actions and prints one line an action.  The lines recorded from Apache
Kafka are kept in `tests/compat/transcripts/`; the tests run the same script on our broker and compare.

    == create topics ==
    orders 3 partitions: ok
    orders again: TOPIC_ALREADY_EXISTS

What may differ between two good brokers is taken out here, and only here:
  * topic names carry a prefix of the run, so that a shared broker can be used: it is cut off;
  * node ids are configuration: the first broker of the cluster is `node`;
  * the text of an error is the broker's own: the line has the error's name.
Ids, ports and times are never printed: a script prints whether they are there (`present`).

An action that takes longer than its deadline is a line as well (the client's timeout error), never a hang.
"""

import argparse
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

# The time of the scripts' records, of which the lines show the distance: an hour ago, or retention would
# take them.
BASE_MS = int(time.time()) * 1000 - 3_600_000


class Transcript:
    def __init__(self, prefix: str, settle_s: float) -> None:
        self._prefix = prefix
        self._settle_s = settle_s

    def topic(self, name: str) -> str:
        """The name of this run's topic `name` on the broker."""
        return self._prefix + name

    def section(self, title: str) -> None:
        print(f"== {title} ==", flush=True)

    def line(self, label: str, value: Any = "ok") -> None:
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        print(f"{label}: {text}".replace(self._prefix, ""), flush=True)

    def attempt(self, label: str, action: Callable[[], Any]) -> Any:
        """Run `action`, write what it gave or the error it raised, and return what it gave (or None)."""
        try:
            value = action()
        except Exception as error:  # noqa: BLE001  the kind of the error is the observation
            self.line(label, describe_error(error))
            return None
        self.line(label, "ok" if value is None else value)
        return value

    async def attempt_async(self, label: str, action: Awaitable[Any]) -> Any:
        """`attempt` for what has to be awaited."""
        try:
            value = await action
        except Exception as error:  # noqa: BLE001
            self.line(label, describe_error(error))
            return None
        self.line(label, "ok" if value is None else value)
        return value

    def settle(self) -> None:
        """Wait until a change of metadata is everywhere: in Kafka some milliseconds after the answer."""
        if self._settle_s:
            time.sleep(self._settle_s)


def describe_error(error: BaseException) -> str:
    """The protocol's name of an error as each client wraps it."""
    kafka_error = error.args[0] if error.args and hasattr(error.args[0], "code") else None
    if kafka_error is not None:  # confluent-kafka: KafkaException(KafkaError)
        return str(kafka_error.name())
    return type(error).__name__


def present(value: Any) -> str:
    """`present` for an id or a time that must be there but differs from run to run."""
    return "present" if value not in (None, "", -1, 0) else "absent"


def text(value: bytes | None) -> str | None:
    """A key, value or header as a line shows it."""
    if value is None:
        return None
    return value.decode() if len(value) < 60 else f"{len(value)} bytes"


def stamp(at_ms: int) -> int | str:
    """A timestamp as a line shows it: the scripts' own as a distance, the clock's as `now`."""
    return "now" if abs(at_ms - time.time() * 1000) < 60_000 else at_ms - BASE_MS


def arguments(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", required=True, help="HOST:PORT of the broker")
    parser.add_argument(
        "--prefix", required=True, help="put before every topic's name; must be new to the broker"
    )
    parser.add_argument("--settle-s", type=float, default=0.0, help="pause after a change of metadata")
    return parser.parse_args()


def fail(reason: str) -> NoReturn:
    sys.exit(f"the transcript cannot go on: {reason}")
