"""Flow progress: how the flows of a run are doing, from what Spark says.  Pure: no Spark, no clock.

Two sources are put together.  The run's events say what state a flow is in,

    Flow spark_catalog.default.orders is RUNNING.
    Flow spark_catalog.default.orders has FAILED. Error: …
    Run is COMPLETED.

and a streaming query's progress says how many rows a micro-batch had, how long it took, how far it has read
and could have read, and how many rows came after its watermark.  Rows that came out are counted by a metric
that `graph` puts into flows; a flow that Spark runs as a batch has no progress but its states.

`Flows` is what the screen, the report at the end and `status` are made from.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.spark.progress import lags, read_to

ROWS_METRIC = "anabranch_rows"
WAITING, RUNNING, DONE, FAILED, STOPPED, SKIPPED = (
    "waiting",
    "running",
    "done",
    "failed",
    "stopped",
    "skipped",
)
_STATES = {
    "QUEUED": WAITING,
    "PLANNING": WAITING,
    "STARTING": RUNNING,
    "RUNNING": RUNNING,
    "IDLE": RUNNING,
    "COMPLETED": DONE,
    "FAILED": FAILED,
    "STOPPED": STOPPED,
    "SKIPPED": SKIPPED,
    "EXCLUDED": SKIPPED,
}
_EVENT = re.compile(r"(Flow|Run)(?: (?P<name>\S+))? (?:is|has|was|has been) (?P<state>[A-Z]+)\b")
_STACK = re.compile(r"\s+at |\s*JVM stacktrace|\s*\.\.\. \d+ more|=== |Caused by: ")
_WRAPPED = re.compile(r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ", re.S)
_PLAN = re.compile(r"[\s:]*(\+- |:- |')|SQLSTATE: ")
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"^(?:anabranch\.base\.errors\.\w+: )?((?<=: ).+|\w[\w.]*: .+)", re.M)
_MOST_LINES = 12
_DEFAULT = "spark_catalog.default."


@dataclass(slots=True)
class Flow:
    name: str
    state: str = WAITING
    batches: int = 0
    rows_in: int = 0
    rows_out: int | None = None
    late: int = 0
    behind: int | None = None
    batch_ms: int | None = None
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    """How far it has read: topic, partition, the next offset."""
    error: str = ""
    begun_at: float | None = None
    ended_at: float | None = None


class Flows:
    def __init__(self) -> None:
        self.by_name: dict[str, Flow] = {}
        self.run_state = RUNNING
        self.error = ""

    def __iter__(self) -> Any:
        return iter(self.by_name.values())

    def flow(self, name: str) -> Flow:
        name = short(name)
        return self.by_name.setdefault(name, Flow(name))

    def failed(self) -> list[Flow]:
        return [flow for flow in self.by_name.values() if flow.state == FAILED]

    def event(self, message: str, now: float) -> None:
        """What the run says of a flow, or of itself."""
        match = _EVENT.match(message)
        if match is None or match["state"] not in _STATES:
            return
        state = _STATES[match["state"]]
        if match[1] == "Run":
            self.run_state = state
            self.error = message if state == FAILED else self.error
            return
        flow = self.flow(match["name"] or "")
        flow.state = state
        if state == RUNNING:
            flow.error = ""  # of an attempt before this one
            flow.begun_at = flow.begun_at or now
        if state in (DONE, FAILED, STOPPED):
            flow.ended_at = now
        if state == FAILED:
            flow.error = reason(message)

    def over(self) -> None:
        """The run has ended; what has not begun by now will not."""
        for flow in self.by_name.values():
            if flow.state == WAITING:
                flow.state = SKIPPED
            elif flow.state == RUNNING:
                flow.state = STOPPED

    def progress(self, document: Mapping[str, Any]) -> None:
        """A micro-batch of a streaming flow is over."""
        if not document.get("name"):
            return
        flow = self.flow(document["name"])
        flow.batches += 1
        flow.rows_in += _rows_in(document)
        flow.batch_ms = (document.get("durationMs") or {}).get("triggerExecution")
        counted = (document.get("observedMetrics") or {}).get(ROWS_METRIC)
        if counted is not None:
            flow.rows_out = (flow.rows_out or 0) + counted["rows"]
        for operator in document.get("stateOperators") or ():
            flow.late += operator.get("numRowsDroppedByWatermark") or 0
        behind = {one.partition: one.behind for one in lags(document)}
        if behind:
            flow.behind = sum(behind.values())
        for (topic, partition), offset in read_to(document).items():
            flow.offsets.setdefault(topic, {})[str(partition)] = offset


def _rows_in(document: Mapping[str, Any]) -> int:
    """Rows that were read.  A topic that one query reads twice, as dead letters do, counts once."""
    rows: dict[str, int] = {}
    for number, source in enumerate(document.get("sources") or ()):
        end = source.get("endOffset")
        of_topics = isinstance(end, dict) and all(isinstance(one, dict) for one in end.values())
        key = json.dumps([source.get("startOffset"), end]) if of_topics else str(number)
        rows[key] = max(rows.get(key, 0), source.get("numInputRows") or 0)
    return sum(rows.values())


def short(name: str) -> str:
    return name.strip("'").replace("`", "").removeprefix(_DEFAULT)


def reason(text: str) -> str:
    """What a failure says, without the wrapping around it and the stack below it."""
    text = _WRAPPED.sub("", text.partition("\nError: ")[2] or text)
    raised = _RAISED.findall(text.rpartition(_TRACEBACK)[2]) if _TRACEBACK in text else []
    if raised:
        return str(raised[-1]).strip()
    kept: list[str] = []
    for line in text.splitlines():
        if _STACK.match(line):
            break
        if line.strip() and not _PLAN.match(line):
            kept.append(line.strip())
    return "\n".join(kept[:_MOST_LINES])
