"""The spec and the folder of a project."""

from pathlib import Path
from typing import Any

import pytest

from anabranch.base.errors import Exists, Invalid, NotFound
from anabranch.pipelines.project import create, find_spec, load, unpack

LIBRARIES = [{"glob": {"include": "transformations/**"}}]


def made(tmp_path: Path, **fields: Any) -> Any:
    document = {"name": "shop", "storage": "storage", "libraries": LIBRARIES, **fields}
    return unpack(
        tmp_path / "spark-pipeline.yml", {name: one for name, one in document.items() if one is not None}
    )


@pytest.mark.parametrize("example", [False, True])
def test_a_new_project_can_be_loaded(tmp_path: Path, example: bool) -> None:
    project = create(tmp_path / "a shop", example=example)
    assert project.name == "a shop"
    assert project.local_storage == tmp_path / "a shop" / "storage"
    assert {path.suffix for path in project.files()} == {".py", ".sql"}
    assert "{name}" not in (project.folder / "README.md").read_text()
    assert find_spec(None, project.folder / "transformations") == project.spec
    assert find_spec(project.folder, tmp_path) == project.spec
    with pytest.raises(Exists):
        create(tmp_path / "a shop", example=example)


def test_a_spec_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no spark-pipeline\.yml"):
        find_spec(tmp_path, tmp_path)


def test_storage_is_taken_from_where_the_spec_is(tmp_path: Path) -> None:
    assert made(tmp_path).storage == (tmp_path / "storage").as_uri()
    elsewhere = made(tmp_path, storage="s3a://bucket/shop")
    assert (elsewhere.storage, elsewhere.local_storage) == ("s3a://bucket/shop", None)
    assert elsewhere.notes == tmp_path / "_anabranch"
    assert elsewhere.tables == "s3a://bucket/shop/tables"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": None}, "needs a name"),
        ({"storage": " "}, "needs a storage"),
        ({"storages": "x"}, "did you mean storage"),
        ({"wholly-other": "x"}, "there are: name"),
        ({"configuration": {"spark.sql.shuffle.partitions": 2}}, "write it in quotes"),
        ({"configuration": ["a"]}, "NAME: VALUE"),
        ({"libraries": None}, "names no definitions"),
        ({"libraries": ["a"]}, "glob"),
        ({"libraries": [{"glob": {"include": "*/x.py"}}]}, "must be a file, or a folder"),
        ({"libraries": [{"glob": {"include": 7}}]}, "7 in .* is not a path"),
        ({"libraries": [{"glob": {"include": ""}}]}, "is not a path"),
        ({"libraries": [{"glob": {"include": "/etc/**"}}]}, "must be named from the folder"),
        ({"libraries": 7}, "is not `glob"),
        ({"database": 7}, "the database in .* must be text"),
    ],
)
def test_a_spec_that_is_wrong_says_why(tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        made(tmp_path, **fields)


def test_a_spec_that_is_no_yaml(tmp_path: Path) -> None:
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text("name: [")
    with pytest.raises(Invalid, match="is not YAML"):
        load(spec)
    spec.write_text("- a")
    with pytest.raises(Invalid, match="has no fields"):
        load(spec)
