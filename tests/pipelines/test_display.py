"""What a run looks like."""

import io

from rich.console import Console

from anabranch.pipelines.display import Screen, numbers
from anabranch.pipelines.flows import Flow, Flows


def shown(updates: list[Flows], *, terminal: bool = False) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    screen = Screen(console)
    for flows in updates:
        with screen.update() as watch:
            watch(flows)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def flows_of(state: str, rows: int) -> Flows:
    flows = Flows()
    if rows:
        flows.progress(
            {"name": "orders", "sources": [{"numInputRows": rows}], "durationMs": {"triggerExecution": 1500}}
        )
    flows.event(f"Flow orders is {state}.", 1.0)
    return flows


def test_numbers_are_for_people() -> None:
    flow = Flow("orders", batches=3, rows_in=12345, rows_out=None, behind=0, batch_ms=1234)
    assert numbers(flow) == ("12,345", "-", "0", "0", "3", "1.2 s")
    assert set(numbers(Flow("view"))) == {"-"}


def test_lines_where_there_is_no_terminal() -> None:
    said = shown([flows_of("COMPLETED", 10)])
    assert said.startswith("orders done\n")
    assert "1.5 s" in said


def test_an_update_that_found_nothing_leaves_nothing() -> None:
    once = shown([flows_of("COMPLETED", 0)])
    assert once.count("orders") == 1
    assert shown([flows_of("COMPLETED", 0)] * 3) == once
    assert shown([flows_of("COMPLETED", 0), flows_of("COMPLETED", 5)]).count("state") == 2


def test_a_picture_where_there_is_one() -> None:
    assert "orders" in shown([flows_of("RUNNING", 0)], terminal=True)
