"""What the demo looks like: a picture that moves in a terminal, plain lines anywhere else.

feed        confluent-kafka → clicks        31,204 of 55,912  ██████████████
            pulsar-client   → orders         1,904 of 3,577   ██████████████
pipeline    orders_clean       running   1,890 rows    14 behind    0.4 s
            ...
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from demo.proof import Claim

BAR = 24
PLAIN_SECONDS = 3.0
_MOVING_SECONDS = 0.1


class Sending(NamedTuple):
    """A producer in the picture: how many records the broker has acknowledged, of how many."""

    client: str
    topic: str
    acknowledged: int
    total: int


class Flow(NamedTuple):
    """A flow of the pipeline in the picture, with the rows of all updates so far."""

    name: str
    state: str
    rows_in: int
    rows_out: int | None
    behind: int | None
    batch_seconds: float | None


class Moment(NamedTuple):
    """All there is to show at one time; `story` is the time in the shop."""

    story: str
    sending: Sequence[Sending]
    update: str
    flows: Sequence[Flow]


def picture(moment: Moment) -> RenderableType:
    feed = _table(("left", 16), ("left", 10), ("right", 18), ("left", BAR))
    for one in moment.sending:
        feed.add_row(one.client, f"→ {one.topic}", f"{one.acknowledged:,} of {one.total:,}", _bar(one))
    flows = _table(("left", 26), ("left", 8), *[("right", 9)] * 4)
    if moment.flows:
        flows.add_row("flow", "state", "in", "out", "behind", "batch", style="dim")
    for flow in moment.flows:
        state = Text(flow.state, style=_STYLES.get(flow.state, ""))
        seconds = "" if flow.batch_seconds is None else f"{flow.batch_seconds:.1f} s"
        numbers = (_number(flow.rows_in), _number(flow.rows_out), _number(flow.behind), seconds)
        flows.add_row(flow.name, state, *numbers)
    return Group(
        Text(f"the shop: {moment.story}", style="bold"),
        feed,
        Text(f"the pipeline on Spark: {moment.update}", style="bold"),
        flows,
    )


def line(moment: Moment) -> str:
    """The same where nothing can move."""
    sending = ", ".join(f"{one.topic} {one.acknowledged:,}/{one.total:,}" for one in moment.sending)
    running = [flow.name for flow in moment.flows if flow.state == "running"]
    done = sum(flow.state == "done" for flow in moment.flows)
    flows = f" ({done} of {len(moment.flows)} flows done)" if moment.flows else ""
    return f"  shop {moment.story}: {sending}; {moment.update}{flows} {', '.join(running)}".rstrip()


def watch(console: Console, moment: Callable[[], Moment], is_over: Callable[[], bool]) -> None:
    """Show how it stands until it is over."""
    if console.is_terminal:
        with Live(picture(moment()), console=console, auto_refresh=False) as live:
            while not is_over():
                time.sleep(_MOVING_SECONDS)
                live.update(picture(moment()), refresh=True)
            live.update(picture(moment()), refresh=True)
        return
    shown, shown_at = "", 0.0
    while not is_over():
        said = line(moment())
        if said != shown and time.monotonic() - shown_at >= PLAIN_SECONDS:
            shown, shown_at = said, time.monotonic()
            console.print(said)
        time.sleep(_MOVING_SECONDS)
    console.print(line(moment()))


def show_claims(console: Console, claims: Sequence[Claim]) -> None:
    for claim in claims:
        console.print(f"{'[green]✓[/]' if claim.holds else '[red]✗[/]'} {claim.words}")


def show_rows(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table's first rows, numbers to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2))
    for number, column in enumerate(columns):
        right = bool(rows) and all(row[number][:1].isdigit() and ":" not in row[number] for row in rows)
        table.add_column(column, justify="right" if right else "left", header_style="dim", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


_STYLES = {"running": "cyan", "done": "green", "failed": "bold red", "waiting": "dim"}


def _table(*columns: tuple[str, int]) -> Table:
    table = Table(box=None, padding=(0, 1), show_header=False)
    for justify, width in columns:
        table.add_column(justify="right" if justify == "right" else "left", min_width=width, no_wrap=True)
    return table


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _bar(one: Sending) -> str:
    return "█" * (BAR * one.acknowledged // max(1, one.total)) or "▏"
