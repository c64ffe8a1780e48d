"""Run status: what is known of a pipeline's last run, in a small file that the run keeps up to date.

    storage/_anabranch/status.json

Flows that a run left out keep what an earlier one said of them.  The file is written whole at every change,
so it is true up to the last moment, even after kill -9; a run that says "running" whose process is gone was
interrupted.  How far a flow is behind now is asked of the broker when somebody wants to know.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anabranch.base.errors import Corrupt
from anabranch.pipelines.flows import RUNNING, Flow, Flows
from anabranch.pipelines.project import Project, read_json, write_whole

INTERRUPTED = "interrupted"
_NAME = "status.json"


class Status:
    """The status file of a project, while a run is under way."""

    def __init__(self, project: Project, bootstrap: str, now: float) -> None:
        self._path = project.notes / _NAME
        try:
            earlier = read(project)
        except Corrupt:  # this run writes another
            earlier = None
        self._earlier = earlier["flows"] if earlier else {}
        self._about = {
            "pipeline": project.name,
            "bootstrap": bootstrap,
            "started": _moment(now),
            "process": os.getpid(),
        }

    def write(self, flows: Flows, now: float, *, over: bool) -> None:
        document = {
            **self._about,
            "state": flows.run_state,
            "ended": _moment(now) if over else None,
            "error": flows.error,
            "flows": {**self._earlier, **{flow.name: self._plain(flow) for flow in flows}},
        }
        write_whole(self._path, json.dumps(document, indent=1))

    def _plain(self, flow: Flow) -> dict[str, Any]:
        document = asdict(flow)
        for name in ("begun_at", "ended_at"):
            document[name] = None if document[name] is None else _moment(document[name])
        # One that found nothing new says nothing of how far it has read.
        document["offsets"] = flow.offsets or self._earlier.get(flow.name, {}).get("offsets", {})
        return document


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def read(project: Project) -> dict[str, Any] | None:
    """The last run's status; None if there was none, Corrupt if that is no longer known."""
    path: Path = project.notes / _NAME
    if not path.exists():
        return None
    document: dict[str, Any] = read_json(path)
    if not isinstance(document, dict) or not document.keys() >= {"state", "process", "bootstrap", "flows"}:
        raise Corrupt(f"{path} is damaged: it is not the status of a run")
    if document["state"] == RUNNING and not _is_alive(document["process"]):
        document["state"] = INTERRUPTED
        for flow in document["flows"].values():
            flow["state"] = INTERRUPTED if flow["state"] == RUNNING else flow["state"]
    return document


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def offsets_read(status: Mapping[str, Any]) -> dict[str, dict[str, dict[str, int]]]:
    """How far each flow has read which topics."""
    return {name: flow["offsets"] for name, flow in status["flows"].items() if flow["offsets"]}
