"""Tables known again: made over their folders, put back if somebody died in between.  No Spark: a stand-in
that makes a table only where there is nothing, as Spark does.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.errors import Conflict, Corrupt, NotFound
from anabranch.pipelines.catalogue import Catalogue
from anabranch.pipelines.project import Project, create


class Rows:
    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def collect(self) -> list[Any]:
        return self._rows


class InMemory:
    """A driver's catalogue: tables of `default` in the folder of its warehouse, forgotten when it ends."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self.tables: dict[str, str] = {}
        self.dies = False

    @property
    def conf(self) -> dict[str, str]:
        return {
            "spark.sql.warehouse.dir": self._warehouse.as_uri(),
            "spark.sql.catalogImplementation": "in-memory",
        }

    def sql(self, statement: str) -> Rows:
        if statement == "SHOW DATABASES":
            return Rows([("default",)])
        if statement.startswith("SHOW TABLES"):
            return Rows([{"tableName": name, "isTemporary": False} for name in self.tables])
        if match := re.fullmatch(r"SHOW CREATE TABLE `default`.`(\w+)`", statement):
            return Rows([(self.tables[match[1]],)])
        if statement.startswith("CREATE DATABASE"):
            return Rows([])
        match = re.match(r"CREATE TABLE (?:`\w+`\.)?`?(\w+)", statement)
        assert match, statement
        if "LOCATION" not in statement:
            folder = self._warehouse / match[1]
            assert not folder.exists(), "Spark makes no table over what is there"
            if self.dies:
                raise KeyboardInterrupt
            folder.mkdir(parents=True)
        self.tables[match[1]] = statement
        return Rows([])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return create(tmp_path / "shop", example=False)


def driver(project: Project) -> InMemory:
    assert project.local_storage is not None
    return InMemory(project.local_storage / "tables")


def folder(project: Project, table: str) -> Path:
    assert project.local_storage is not None
    return project.local_storage / "tables" / table


def first_run(project: Project) -> None:
    spark = driver(project)
    catalogue = Catalogue(spark, project)
    catalogue.restore(())
    for table in ("orders", "clicks"):
        spark.sql(f"CREATE TABLE {table} (a INT) USING parquet")
        (folder(project, table) / "part-0.parquet").write_text(table)
    catalogue.note()


def test_the_next_driver_finds_the_tables_and_their_files(project: Project) -> None:
    first_run(project)
    spark = driver(project)
    Catalogue(spark, project).restore(())
    assert set(spark.tables) == {"orders", "clicks"}
    assert (folder(project, "orders") / "part-0.parquet").read_text() == "orders"


def test_whoever_dies_in_between_loses_nothing(project: Project) -> None:
    first_run(project)
    dying = driver(project)
    dying.dies = True
    with pytest.raises(KeyboardInterrupt):
        Catalogue(dying, project).restore(())
    assert not folder(project, "orders").exists()
    folder(project, "orders").mkdir()  # had Spark come so far, this would be there, too
    spark = driver(project)
    Catalogue(spark, project).restore(())
    assert (folder(project, "orders") / "part-0.parquet").read_text() == "orders"


def test_rows_that_stand_aside_are_not_put_over_others(project: Project) -> None:
    first_run(project)
    dying = driver(project)
    dying.dies = True
    with pytest.raises(KeyboardInterrupt):
        Catalogue(dying, project).restore(())
    folder(project, "orders").mkdir()
    (folder(project, "orders") / "part-1.parquet").write_text("of another run")
    with pytest.raises(Conflict, match=r"orders has something in it, and so has .*\.orders\.aside"):
        Catalogue(driver(project), project).restore(())
    assert (folder(project, ".orders.aside") / "part-0.parquet").read_text() == "orders"


def test_a_folder_that_is_gone_is_not_an_empty_table(project: Project) -> None:
    first_run(project)
    (folder(project, "orders") / "part-0.parquet").unlink()
    folder(project, "orders").rmdir()
    with pytest.raises(NotFound, match="--full-refresh orders"):
        Catalogue(driver(project), project).restore(("clicks",))
    for made_anew in (("orders",), None):
        spark = driver(project)
        Catalogue(spark, project).restore(made_anew)
        assert set(spark.tables) == {"clicks"}


def begun(project: Project, table: str, *files: str) -> Path:
    """A folder with empty files in it."""
    made = folder(project, table)
    for file in files:
        (made / file).parent.mkdir(parents=True, exist_ok=True)
        (made / file).write_text("")
    return made


def test_what_a_first_run_began_and_never_noted(project: Project) -> None:
    Catalogue(driver(project), project).begin()
    torn = begun(project, "torn", "part-0.parquet", ".part-0.parquet.crc", "_temporary/0/x/part-1.parquet")
    committed = begun(project, "committed", "part-0.parquet", "_spark_metadata/0")
    spark = driver(project)
    Catalogue(spark, project).restore(())
    assert not torn.exists()
    assert list(spark.tables) == ["committed"]
    assert (committed / "part-0.parquet").exists()


def test_what_is_not_ours_is_left_alone(project: Project) -> None:
    before = begun(project, "before", "part-0.parquet")
    streamed = begun(project, "streamed", "part-0.parquet", "_spark_metadata/0")
    Catalogue(driver(project), project).begin()
    delta = begun(project, "delta", "part-0.parquet", "_delta_log/00000.json")
    linked = folder(project, "linked")
    linked.symlink_to(before)
    spark = driver(project)
    Catalogue(spark, project).restore(())
    assert before.exists()
    assert streamed.exists()
    assert delta.exists()
    assert linked.exists()
    assert not spark.tables


def test_what_was_there_before_any_run_is_left_alone(project: Project) -> None:
    mine = begun(project, "mine", "part-0.parquet")
    Catalogue(driver(project), project).restore(())
    assert (mine / "part-0.parquet").exists()


def test_what_comes_after_a_run_has_noted_its_tables_is_left_alone(project: Project) -> None:
    catalogue = Catalogue(driver(project), project)
    catalogue.begin()
    catalogue.note()
    mine = begun(project, "mine", "part-0.parquet")
    Catalogue(driver(project), project).restore(())
    assert mine.exists()


def test_a_warehouse_that_is_shared_is_left_alone(project: Project, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    Catalogue(InMemory(shared), project).begin()
    for table, file in (("theirs", "part-0.parquet"), ("streamed", "_spark_metadata/0")):
        (shared / table / file).parent.mkdir(parents=True)
        (shared / table / file).write_text("")
    spark = InMemory(shared)
    Catalogue(spark, project).restore(())
    assert (shared / "theirs" / "part-0.parquet").exists()
    assert not spark.tables


def test_a_database_of_its_own(project: Project) -> None:
    project = project._replace(database="shop")
    Catalogue(driver(project), project).begin()
    torn = begun(project, "shop.db/torn", "part-0.parquet")
    begun(project, "shop.db/committed", "_spark_metadata/0")
    spark = driver(project)
    Catalogue(spark, project).restore(())
    assert not torn.exists()
    assert "`shop`.`committed`" in spark.tables["committed"]


@pytest.mark.parametrize("text", ["{", "[]", '{"default": []}'])
def test_notes_that_are_damaged_are_said_to_be(project: Project, text: str) -> None:
    first_run(project)
    (project.notes / "tables.json").write_text(text)
    with pytest.raises(Corrupt, match=r"tables\.json is damaged"):
        Catalogue(driver(project), project).restore(())


def test_a_catalogue_that_lasts_is_left_alone(project: Project) -> None:
    first_run(project)

    class Lasting(InMemory):
        @property
        def conf(self) -> dict[str, str]:
            return {**super().conf, "spark.sql.catalogImplementation": "hive"}

    spark = Lasting(folder(project, "x").parent)
    catalogue = Catalogue(spark, project)
    catalogue.restore(())
    catalogue.note()
    assert not spark.tables
