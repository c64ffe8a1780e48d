"""What Spark says of a run, put together: states, rows, lag, and failures in a line or two."""

from typing import Any

from anabranch.pipelines.flows import DONE, FAILED, ROWS_METRIC, RUNNING, SKIPPED, Flows, reason


def progress(name: str, rows: int, read_to: int, latest: int, out: int | None = None) -> dict[str, Any]:
    of_orders = {"endOffset": {"orders": {"0": read_to}}, "latestOffset": {"orders": {"0": latest}}}
    document: dict[str, Any] = {
        "name": f"spark_catalog.default.{name}",
        "durationMs": {"triggerExecution": 1200},
        "sources": [
            {**of_orders, "numInputRows": rows},
            {**of_orders, "numInputRows": rows},  # read twice
            {"endOffset": {"logOffset": 3}, "latestOffset": None, "numInputRows": 0},
        ],
        "stateOperators": [{"numRowsDroppedByWatermark": 2}],
    }
    if out is not None:
        document["observedMetrics"] = {ROWS_METRIC: {"rows": out}}
    return document


def test_events_and_progress_make_a_flow() -> None:
    flows = Flows()
    flows.event("Flow spark_catalog.default.orders is QUEUED.", 10.0)
    flows.event("Flow spark_catalog.default.orders is STARTING.", 11.0)
    flows.event("Flow spark_catalog.default.orders is RUNNING.", 12.0)
    flows.progress(progress("orders", 100, 100, 150, 90))
    assert flows.flow("orders").behind == 50
    flows.progress(progress("orders", 50, 150, 150, 50))
    flows.event("Flow spark_catalog.default.orders has COMPLETED.", 13.0)
    flows.event("Run is COMPLETED.", 14.0)
    (flow,) = flows
    assert (flow.name, flow.state, flow.rows_in, flow.rows_out) == ("orders", DONE, 150, 140)
    assert (flow.behind, flow.batches, flow.batch_ms, flow.late) == (0, 2, 1200, 4)
    assert flow.offsets == {"orders": {"0": 150}}
    assert (flow.begun_at, flow.ended_at, flows.run_state) == (11.0, 13.0, DONE)


def test_a_batch_that_runs_again_says_how_far_it_has_read_and_not_how_far_it_could() -> None:
    flows = Flows()
    flows.progress(progress("orders", 27, 27, 27))
    again = progress("orders", 1085, 1112, 0)
    del again["sources"][0]["latestOffset"]
    flows.progress(again)
    assert flows.flow("orders").offsets == {"orders": {"0": 1112}}


def test_a_flow_that_is_tried_again_has_not_failed() -> None:
    flows = Flows()
    flows.event("Flow 'to_topic' has FAILED.\nError: out of luck", 1.0)
    assert flows.failed()[0].error == "out of luck"
    flows.event("Flow to_topic is STARTING.", 2.0)
    assert not flows.failed()
    assert flows.flow("to_topic").error == ""


def test_what_did_not_begin_was_skipped() -> None:
    flows = Flows()
    flows.event("Flow a is QUEUED.", 1.0)
    flows.event("Flow b has FAILED more than 2 times and will not be restarted.\nError: no", 1.0)
    flows.event("Run has FAILED.", 2.0)
    flows.over()
    assert {flow.name: flow.state for flow in flows} == {"a": SKIPPED, "b": FAILED}
    assert flows.run_state == FAILED


def test_other_words_change_nothing() -> None:
    flows = Flows()
    flows.event("Something else happened.", 1.0)
    flows.progress({"name": None, "numInputRows": 1})
    assert not list(flows)
    assert flows.run_state == RUNNING


def test_a_failure_is_told_without_its_wrapping() -> None:
    wrapped = (
        "Flow 'worse' has FAILED more than 2 times and will not be restarted.\n"
        "Error: [STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform x: "
        'Traceback (most recent call last):\n  File "cluster.py", line 69, in partitions\n'
        "    answer = self.persist()\n             ^^^^^^^^^^^^^^^\n"
        "anabranch.base.errors.UnknownTopic: topic 'nowhere': there is none\n SQLSTATE: 38000"
    )
    assert reason(wrapped) == "topic 'nowhere': there is none"
    assert reason("Traceback (most recent call last):\n  File\nValueError: no\n") == "ValueError: no"


def test_a_failure_is_told_without_plan_and_stack() -> None:
    text = (
        "[UNRESOLVED_COLUMN] A column with name `x` cannot be resolved. SQLSTATE: 42703;\n"
        "'Filter ('x > 1)\n+- Project [order#1]\n   +- Relation\n\n\nJVM stacktrace:\norg.apache.X\n\tat y(z)"
    )
    assert reason(text) == "[UNRESOLVED_COLUMN] A column with name `x` cannot be resolved. SQLSTATE: 42703;"
