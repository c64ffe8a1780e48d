"""A pipeline, opened: a Spark for it, its tables known again, ready for one update after another.

    with opened(project, bootstrap, Where(master="local[*]")) as runner:
        uses = runner.define()
        flows = runner.update(Selection(), watch)

An update brings every table up to what is in the topics now, and ends; Spark's pipelines know no other kind.
Its flows are streaming queries with checkpoints in the storage, so an update that was killed is taken up by
the next one where it was: tables have every micro-batch once by the sink's own log, topics by transactions.

`watch` is called with the `Flows` at every change, from the thread of the update or from that of Spark's
listener, never from both at once.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.base.errors import Conflict
from anabranch.pipelines import connect
from anabranch.pipelines.catalogue import Catalogue
from anabranch.pipelines.context import TopicUse, reading_definitions
from anabranch.pipelines.flows import FAILED, STOPPED, Flows, reason
from anabranch.pipelines.project import Project
from anabranch.pipelines.status import Status

if TYPE_CHECKING:
    from anabranch.pipelines.listening import Listening

Watch = Callable[[Flows], None]
LOG_NAME, DRY_LOG_NAME = "spark.log", "dry-run.log"
_CONCURRENT = "spark.sql.pipelines.execution.maxConcurrentFlows"
_LOCK_S = 30.0
_LAST_WORDS_S = 2.0


class Where(NamedTuple):
    """On which Spark: a `master` that we start a driver for, or a `remote` server."""

    master: str = "local[*]"
    remote: str | None = None


class Selection(NamedTuple):
    """Which tables are brought up to date, all if none is named; and which of them from the start."""

    refresh: Sequence[str] = ()
    full_refresh: Sequence[str] = ()
    full_refresh_all: bool = False


@contextmanager
def opened(project: Project, bootstrap: str, where: Where, *, dry: bool = False) -> Iterator["Runner"]:
    """`dry`: nothing is going to be run.

    Invalid if there is no Java, Unavailable if there is no Spark, Conflict if somebody else runs it.
    """
    if where.remote is not None:
        with (
            connect.server(where.remote, project.configuration) as (spark, fixed),
            _listening(spark) as listening,
        ):
            runner = Runner(spark, project, bootstrap, listening, None)
            runner.fixed = fixed
            yield runner
        return
    settings = {"spark.sql.warehouse.dir": project.tables, **project.configuration}
    settings.setdefault("spark.app.name", project.name)
    if where.master.startswith("local"):
        # Every flow has Python processes of its own, and Spark gives one ten seconds to start.
        settings.setdefault(_CONCURRENT, str(max(2, os.cpu_count() or 1)))
    log = project.notes / (DRY_LOG_NAME if dry else LOG_NAME)
    with ExitStack() as stack:
        if dry and settings.get("spark.sql.catalogImplementation") != "hive":
            # Spark makes the folders of its databases, whatever it is started for.
            settings["spark.sql.warehouse.dir"] = stack.enter_context(TemporaryDirectory())
        spark, jvm = stack.enter_context(connect.driver(where.master, settings, log))
        if not dry:
            stack.enter_context(_alone(jvm, project))
        catalogue = Catalogue(spark, project)
        listening = stack.enter_context(_listening(spark))
        yield Runner(spark, project, bootstrap, listening, catalogue)


def _listening(spark: Any) -> "Listening":
    from anabranch.pipelines.listening import Listening  # PySpark's modules want a session first

    return Listening(spark)


@contextmanager
def _alone(jvm: connect.Jvm, project: Project) -> Iterator[None]:
    """No other driver works on this storage.

    The lock is the JVM's: after kill -9 of a run its driver lives on for a moment, and it is the driver that
    writes.
    """
    path = project.notes / "driver.lock"
    file = jvm.classes.java.io.RandomAccessFile(str(path), "rw")
    deadline = time.monotonic() + _LOCK_S
    while file.getChannel().tryLock() is None:
        if time.monotonic() > deadline:
            raise Conflict(f"{project.name} is being run already; {path} is locked")
        time.sleep(0.2)
    try:
        yield
    finally:
        with jvm.unless_gone():
            file.close()


class Runner:
    """`catalogue` is that of our own driver; a server elsewhere sees to its own."""

    def __init__(
        self,
        spark: Any,
        project: Project,
        bootstrap: str,
        listening: "Listening",
        catalogue: Catalogue | None,
    ) -> None:
        self.spark = spark
        self._project = project
        self._bootstrap = bootstrap
        self._catalogue = catalogue
        self._restored = catalogue is None
        self._graph = ""
        self.fixed: list[str] = []
        """Settings of the project that a server elsewhere has already, and keeps."""
        self._listening = listening

    def define(self) -> list[TopicUse]:
        """Reads the definitions; which topics they use.  Invalid if there is something wrong with them."""
        from anabranch.pipelines.graph import define, forget

        if self._graph:
            forget(self.spark, self._graph)
        with reading_definitions(self._bootstrap) as found:
            self._graph = define(self.spark, self._project)
        return found.uses

    def dry_run(self) -> Flows:
        """Whether the graph holds together; nothing is run or written."""
        flows = Flows()
        with _failures_in(flows):
            for message in self._started(Selection(), dry=True):
                flows.event(message, time.time())
        return flows

    def update(self, selection: Selection, watch: Watch) -> Flows:
        """One update.  What failed is in the flows that come back."""
        flows = Flows()
        status = Status(self._project, self._bootstrap, time.time())
        lock = threading.RLock()

        def changed(*, over: bool = False) -> None:
            status.write(flows, time.time(), over=over)
            watch(flows)

        def hear(progress: Mapping[str, Any]) -> None:
            with lock:
                flows.progress(progress)
                changed()

        self._restore(selection)
        self._listening.to(hear)
        try:
            with _failures_in(flows):
                for message in self._started(selection, dry=False):
                    with lock:
                        flows.event(message, time.time())
                        changed()
            self._listening.last_words(_LAST_WORDS_S)
        except KeyboardInterrupt:
            flows.run_state = STOPPED
            raise
        finally:
            self._listening.to(None)
            with lock:
                flows.over()
                changed(over=True)
        return flows

    def _restore(self, selection: Selection) -> None:
        if self._catalogue is not None and not self._restored:
            self._catalogue.restore(None if selection.full_refresh_all else selection.full_refresh)
            self._restored = True  # from now on the driver itself knows

    def _started(self, selection: Selection, *, dry: bool) -> Iterator[str]:
        """Starts an update; what it says, until it is over."""
        from pyspark.errors import PySparkException
        from pyspark.pipelines.spark_connect_pipeline import start_run

        catalogue = None if dry else self._catalogue
        if catalogue is not None:
            catalogue.begin()
        try:
            for said in start_run(
                self.spark,
                self._graph,
                full_refresh=list(selection.full_refresh),
                full_refresh_all=selection.full_refresh_all,
                refresh=list(selection.refresh),
                dry=dry,
                storage=self._project.storage,
            ):
                if "pipeline_event_result" in said:
                    if catalogue is not None:  # tables are made before the first flow is spoken of
                        catalogue.note()
                        catalogue = None
                    yield said["pipeline_event_result"].event.message
        except PySparkException:
            if catalogue is not None:
                catalogue.note()
            raise


@contextmanager
def _failures_in(flows: Flows) -> Iterator[None]:
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, connect.SparkUnavailable) as error:
        flows.run_state = FAILED
        flows.error = flows.error or reason(str(error))
