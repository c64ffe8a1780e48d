"""`anabranch schema` against a broker, as processes."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess
from tests.support.command import anabranch, from_json

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ITEM = 'syntax = "proto3"; package shop; message Item { string sku = 1; }'
BASKET = 'syntax = "proto3"; package shop; import "item.proto"; message Basket { Item item = 1; }'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("cli")) as started:
        yield started


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    def with_http(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
        return anabranch("schema", *arguments, "--http", broker.admin, **options)  # type: ignore[arg-type]

    return with_http


def written(path: Path, *fields: str) -> str:
    told = [{"name": name, "type": "int"} for name in fields]
    path.write_text(json.dumps({"type": "record", "name": "R", "fields": told}))
    return str(path)


def test_from_the_first_version_to_the_end(run: Run, tmp_path: Path) -> None:
    old, new = written(tmp_path / "old.avsc", "a"), written(tmp_path / "new.avsc", "b")
    assert run("register", "s", old).stdout == "s has it as version 1, its id is 1\n"
    assert run("check", "s", old).stdout == "s can have it\n"
    refused = run("check", "s", new, exit_code=1)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.stderr
    assert "earlier schema" in run("register", "s", new, exit_code=1).stderr
    assert run("level", "s", "--set", "none").stdout == "NONE\n"
    assert run("level").stdout == "BACKWARD\n"
    run("register", "s", "-", "--type", "avro", stdin=Path(new).read_text())
    assert from_json(run("list", "--json")) == [{"subject": "s", "version": 2, "id": 2, "type": "AVRO"}]
    assert json.loads(run("show", "s", "--version", "1").stdout)["fields"][0]["name"] == "a"
    assert from_json(run("show", "s", "--json"))["versions"] == [1, 2]
    assert run("delete", "s", "--version", "1").stdout == "deleted s, version 1\n"
    assert run("delete", "s").stdout == "deleted s, version 2\n"
    assert run("delete", "s", "--permanent").stdout == "deleted s, version 1, 2 for good\n"
    assert "not found" in run("show", "s", exit_code=1).stderr


def test_references(run: Run, tmp_path: Path) -> None:
    item, basket = tmp_path / "item.proto", tmp_path / "basket.proto"
    item.write_text(ITEM)
    basket.write_text(BASKET)
    run("register", "items", str(item))
    assert "item.proto" in run("register", "baskets", str(basket), exit_code=1).stderr
    run("register", "baskets", str(basket), "--reference", "item.proto=items:1")
    assert run("show", "baskets").stdout == BASKET + "\n"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("register", "s", "none.avsc"), 1, "cannot be read"),
        (("register", "s", "/dev/null"), 2, "--type"),
        (("register", "s", "/dev/null", "--type", "AVRO"), 1, "empty"),
        (("register", "s", "/dev/null", "--type", "AVRO", "--reference", "x"), 2, "NAME=SUBJECT:VERSION"),
        (("level", "s", "--set", "SOMETIMES"), 1, "no compatibility level"),
    ],
)
def test_what_is_asked_for_wrongly(run: Run, arguments: tuple[str, ...], code: int, complaint: str) -> None:
    assert complaint in run(*arguments, exit_code=code).stderr
