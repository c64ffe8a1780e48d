"""A standalone Spark cluster from PySpark's own jars: a master and two workers, each a process of its own.

    with SparkCluster(folder) as cluster:
        spark = session_builder().master(cluster.url).config(map=EXECUTORS).getOrCreate()
        cluster.kill_executors()

Workers have a core and 512 MB each: as much as the smallest executor.  Executors are processes that workers
start, so they are killed without the driver.
"""

import os
import re
import sys
import time
from pathlib import Path

import pyspark

from anabranch.base.java import with_java
from tests.support.java import SHORT_LIVED
from tests.support.process_session import ProcessSession, Served

WORKERS = 2
EXECUTORS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.cores.max": str(WORKERS),
    # All of them before the first task: whoever comes late would find that the others have done it.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "240s",
}
"""Settings of a session that uses the whole of it."""
_DEPLOY = "org.apache.spark.deploy"
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_READY_TIMEOUT_S = 240.0


class SparkClusterFailed(Exception):
    """A process of the cluster did not start.  Has the end of its log."""


class SparkCluster(Served):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._master = _process(folder / "master.log", "master.Master", "--port", "0", "--webui-port", "0")
        self._workers: list[ProcessSession] = []
        self.url = ""

    def start(self) -> None:
        """Start it, and wait until all workers are there."""
        self._master.start()
        self.url = said(self._master, r"Starting Spark master at (spark://\S+)")
        for number in range(WORKERS):
            words = ["--cores", "1", "--memory", "512m", "--webui-port", "0"]
            words += ["--work-dir", str(self._folder / f"work-{number}"), self.url]
            worker = _process(self._folder / f"worker-{number}.log", "worker.Worker", *words)
            worker.start()
            self._workers.append(worker)
        for worker in self._workers:
            said(worker, r"(Successfully registered with master)")

    def stop(self) -> None:
        for one in [*self._workers, self._master]:
            one.kill()
        self._workers.clear()

    def kill_executors(self) -> int:
        """With -9, all there are.  Workers start new ones for as long as the driver wants them."""
        return self.kill_those(_EXECUTOR)

    def kill_those(self, word: bytes) -> int:
        """With -9, what workers and executors have started and has `word` in its command line."""
        return sum(worker.kill_those(word) for worker in self._workers)


def spark_home() -> Path:
    return Path(str(pyspark.__file__)).parent


def spark_environment() -> dict[str, str]:
    """What the programs in Spark's `bin` need to know."""
    return {
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "JAVA_HOME": str(with_java(dict(os.environ))),
        "PYSPARK_PYTHON": sys.executable,
    }


def _process(log: Path, name: str, *words: str) -> ProcessSession:
    program = str(spark_home() / "bin" / "spark-class")
    command = [program, f"{_DEPLOY}.{name}", "--host", "127.0.0.1", *words]
    return ProcessSession(command, log, spark_environment())


def said(process: ProcessSession, pattern: str) -> str:
    """What its log has for the pattern's group, once it has."""
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if found := re.search(pattern, process.log.read_text(errors="replace")):
            return found[1]
        if not process.running:
            break
        time.sleep(0.05)
    raise SparkClusterFailed(f"{process.log.name} never says {pattern!r}:\n{process.last_lines()}")
