"""The definition files, read into a dataflow graph of the Connect server.

Every file is run (Python) or sent (SQL) in order of its name, as Spark's own command does.  On the way every
streaming flow gets a metric that counts the rows which come out of it: Spark's file sink does not say.

An error in a file names the file and its line.
"""

import importlib.util
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark.sql.connect.proto as pb2
from pyspark.errors import PySparkException
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.cli import change_dir
from pyspark.pipelines.flow import Flow
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.output import MaterializedView, Output, TemporaryView
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph
from pyspark.sql import functions as F

from anabranch.base.errors import Invalid
from anabranch.pipelines.flows import ROWS_METRIC, reason
from anabranch.pipelines.project import Project


def define(spark: Any, project: Project) -> str:
    """The id of a graph with everything that the project defines.  Invalid says what is wrong, and where."""
    settings = {name: value for name, value in project.configuration.items() if spark.conf.isModifiable(name)}
    graph = create_dataflow_graph(spark, project.catalog, project.database, settings)
    registry = _CountingRegistry(spark, graph)
    files = project.files()
    if not files:
        raise Invalid(f"there are no definitions: {', '.join(project.globs)} of {project.folder} is empty")
    with change_dir(project.folder), graph_element_registration_context(registry):
        for file in files:
            _read(file, registry, spark, graph, project.folder)
    return graph


def forget(spark: Any, graph: str) -> None:
    """The server needs a graph no more: it runs each but once."""
    command = pb2.Command()
    command.pipeline_command.drop_dataflow_graph.dataflow_graph_id = graph
    spark.client.execute_command(command)


def _read(file: Path, registry: "_CountingRegistry", spark: Any, graph: str, folder: Path) -> None:
    name = file.relative_to(folder)
    if file.suffix == ".sql":
        try:
            registry.register_sql(file.read_text(encoding="utf-8"), name)
        except PySparkException as error:
            raise Invalid(f"{name}: {reason(str(error))}") from error
        return
    if file.suffix != ".py":
        raise Invalid(f"{name} is neither .py nor .sql")
    found = importlib.util.spec_from_file_location(file.stem, file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    module.__dict__["spark"] = spark
    with (
        add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph, flow_name=None),
        block_session_mutations(),
    ):
        _run(found.loader.exec_module, module, file, name)


def _run(execute: Callable[[Any], None], module: Any, file: Path, name: Path) -> None:
    try:
        execute(module)
    except Exception as error:  # somebody else's code raises what it likes
        if isinstance(error, SyntaxError):
            raise Invalid(f"{name}:{error.lineno}: {error.msg}") from error
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == str(file)]
        where = f"{name}:{lines[-1]}" if lines else str(name)
        kind = "" if isinstance(error, Invalid | PySparkException) else f"{type(error).__name__}: "
        raise Invalid(f"{where}: {kind}{reason(str(error))}") from error


class _CountingRegistry(SparkConnectGraphElementRegistry):
    def __init__(self, spark: Any, graph: str) -> None:
        super().__init__(spark, graph)
        self._not_streams: set[str] = set()

    def register_output(self, output: Output) -> None:
        if isinstance(output, MaterializedView | TemporaryView):
            self._not_streams.add(output.name)
        super().register_output(output)

    def register_flow(self, flow: Flow) -> None:
        if flow.target not in self._not_streams:
            flow = replace(flow, func=_counted(flow.func))
        super().register_flow(flow)


def _counted(query: Callable[[], Any]) -> Callable[[], Any]:
    def counted() -> Any:
        return query().observe(ROWS_METRIC, F.count(F.lit(1)).alias("rows"))

    return counted
