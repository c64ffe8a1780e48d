"""Run display: a table that is redrawn in a terminal, one line per change anywhere else.

flow                          state      in      out  late  behind  batch
orders_clean                  done    3,577    3,541     0       0  1.2 s
orders_clean_dead_letters     running     -        -     -       -      -
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from anabranch.pipelines.flows import DONE, FAILED, RUNNING, SKIPPED, STOPPED, WAITING, Flow, Flows

_STYLES = {
    WAITING: "dim",
    RUNNING: "cyan",
    DONE: "green",
    FAILED: "bold red",
    STOPPED: "yellow",
    SKIPPED: "dim",
}
_MOVING_S = 0.1


def picture(flows: Flows) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("flow")
    table.add_column("state")
    for name in ("in", "out", "late", "behind", "batches", "batch"):
        table.add_column(name, justify="right")
    for flow in flows:
        state = Text(flow.state, style=_STYLES.get(flow.state, ""))
        table.add_row(flow.name, state, *numbers(flow))
    return table


def numbers(flow: Flow) -> tuple[str, ...]:
    if not flow.batches:
        return ("-",) * 6
    seconds = "-" if flow.batch_ms is None else f"{flow.batch_ms / 1000:.1f} s"
    out, behind = (_number(flow.rows_out), _number(flow.behind))
    return _number(flow.rows_in), out, _number(flow.late), behind, _number(flow.batches), seconds


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


class Screen:
    """Shows the flows of one update after another; of those that found nothing new, only the first stays."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown_at = 0.0
        self._updates = 0

    @contextmanager
    def update(self) -> Iterator[Callable[[Flows], None]]:
        """What `watch` of an update is to be."""
        said: set[str] = set()
        latest: list[Flows] = []

        def say(flows: Flows) -> None:
            latest[:] = [flows]
            for flow in flows:
                if flow.state in (DONE, FAILED) and flow.batches and flow.name not in said:
                    said.add(flow.name)
                    self._console.print(f"{flow.name} {flow.state}", markup=False, highlight=False)

        def move(flows: Flows) -> None:
            latest[:] = [flows]
            now = time.monotonic()
            if now - self._shown_at > _MOVING_S:
                self._shown_at = now
                live.update(picture(flows), refresh=True)

        live = Live(console=self._console, auto_refresh=False, transient=True)
        try:
            if self._console.is_terminal:
                with live:
                    yield move
            else:
                yield say
        finally:
            self._updates += 1
            if latest and (self._updates == 1 or any(flow.batches for flow in latest[0])):
                self._console.print(picture(latest[0]))
