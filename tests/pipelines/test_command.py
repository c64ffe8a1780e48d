"""`anabranch pipeline` without Spark: what it makes, and what it says when something is missing."""

import sys
from pathlib import Path

import pytest

from anabranch.cli.main import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANABRANCH_BOOTSTRAP", raising=False)
    return tmp_path


def test_init_makes_a_project(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "init", "shop", "--example"]) == 0
    assert "made shop/transformations/orders.py" in capsys.readouterr().out
    assert main(["pipeline", "init", "shop"]) == 1
    assert "shop is there already" in capsys.readouterr().err


def test_status_of_what_was_never_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["pipeline", "init", "shop"])
    assert main(["pipeline", "status", "--spec", "shop"]) == 1
    assert "shop has not been run" in capsys.readouterr().err


def test_no_project(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run"]) == 1
    said = capsys.readouterr().err
    assert "there is no spark-pipeline.yml" in said
    assert "anabranch pipeline init" in said


def test_a_wrong_spec(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "spark-pipeline.yml").write_text("name: shop\nstorages: x\n")
    assert main(["pipeline", "dry-run"]) == 2
    assert "did you mean storage?" in capsys.readouterr().err


def test_without_the_extra(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["pipeline", "init", "shop"])
    monkeypatch.setattr("anabranch.cli.pipeline.find_spec", lambda name: None)
    assert main(["pipeline", "run", "--spec", "shop"]) == 1
    assert "pip install 'anabranch[spark]'" in capsys.readouterr().err


def test_no_broker(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    main(["pipeline", "init", "shop"])
    monkeypatch.setattr("anabranch.pipelines.topics._ANSWER_S", 0.2)
    assert main(["pipeline", "run", "--spec", "shop", "--bootstrap", "127.0.0.1:1"]) == 1
    assert "anabranch standalone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("remote", "why"),
    [("127.0.0.1:1", "is not the address"), ("sc://127.0.0.1:1", "no Spark Connect server answers")],
)
def test_no_server(
    remote: str, why: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["pipeline", "init", "shop"])
    monkeypatch.setattr("anabranch.pipelines.topics.reach", lambda servers: None)
    assert main(["pipeline", "run", "--spec", "shop", "--remote", remote]) in (1, 2)
    assert why in capsys.readouterr().err


def test_all_is_not_some(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", "--full-refresh-all", "--refresh", "a"]) == 2
    assert "--full-refresh-all" in capsys.readouterr().err


def test_the_command_line_starts_without_spark() -> None:
    import subprocess

    program = "import sys, anabranch.cli.app; sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
