"""A pipeline on a standalone cluster of two workers, and on a Connect server: the same rows as anywhere.

With ANABRANCH_SOAK=1 only: that is five JVMs.
"""

import json
import os
from pathlib import Path

import pytest

from anabranch.pipelines.flows import DONE
from anabranch.pipelines.project import Project
from tests.pipelines.conftest import Run, finish
from tests.pipelines.numbers import DEFINITIONS, RECORDS, fill
from tests.spark.conftest import Topics
from tests.support.broker import BrokerProcess
from tests.support.spark_cluster import EXECUTORS, SparkCluster
from tests.support.spark_connect import ConnectServer

pytestmark = pytest.mark.skipif(not os.environ.get("ANABRANCH_SOAK"), reason="long; ANABRANCH_SOAK=1 runs it")

CONCURRENT = "spark.sql.pipelines.execution.maxConcurrentFlows"


@pytest.fixture
def names(broker: BrokerProcess, project: Project, request: pytest.FixtureRequest) -> dict[str, str]:
    """Topics of the test's own, and definitions that use them."""
    topics = Topics(broker.bootstrap)
    made = {name: topics.create(2) for name in ("counted", "copy", "dead")}
    text = DEFINITIONS
    for name, topic in made.items():
        text = text.replace(f'"{name}"', f'"{topic}"')
    text = text.replace(f'topic_sink("{made["copy"]}")', f'topic_sink("copy", "{made["copy"]}")')
    text = text.replace(f'target="{made["copy"]}"', 'target="copy"')
    (project.folder / "transformations" / "numbers.py").write_text(text)
    fill(broker.bootstrap, 0, RECORDS, made["counted"])
    return made


def run_at(broker: BrokerProcess, project: Project, *words: str) -> None:
    code, said, complained = finish(Run(project.folder, broker.bootstrap, "run", "--json", *words))
    assert code == 0, complained
    assert json.loads(said)["state"] == DONE


def test_on_a_cluster(broker: BrokerProcess, project: Project, names: dict[str, str], tmp_path: Path) -> None:
    settings = [word for name, value in EXECUTORS.items() for word in ("--conf", f"{name}={value}")]
    with SparkCluster(tmp_path) as cluster:
        run_at(broker, project, "--master", cluster.url, *settings)
    assert len(Topics(broker.bootstrap).values(names["copy"])) == RECORDS + 4


def test_on_a_server(
    broker: BrokerProcess,
    project: Project,
    names: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # where a server has its tables, if nobody says where
    with ConnectServer(tmp_path) as server:
        words = ("--remote", server.url, "--conf", f"{CONCURRENT}=2")
        run_at(broker, project, *words)
        fill(broker.bootstrap, RECORDS, RECORDS + 50, names["counted"])
        run_at(broker, project, *words)  # whose own catalogue knows the tables
    assert len(Topics(broker.bootstrap).values(names["copy"])) == RECORDS + 50 + 8
