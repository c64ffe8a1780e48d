"""One version, wherever it is written."""

import tomllib

import anabranch
from tests.tidy.tree import ROOT


def test_the_package_and_the_project_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert anabranch.__version__ == project["version"]
