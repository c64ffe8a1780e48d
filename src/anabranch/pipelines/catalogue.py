"""Catalogue: the tables of a pipeline, kept for its next run.

Spark's own catalogue lives in memory: the next driver finds the folders of tables, but no tables, and refuses
to make them over what is there.  So the statement that makes each table is noted (`tables.json`) as soon as a
run has made its tables, and the next driver makes them again, over their data, before all else.

Spark makes no table of its own over a folder with something in it.  For that moment the folder is put aside:

    orders  ->  .orders.aside      CREATE TABLE orders, over nothing      .orders.aside  ->  orders

Whoever is killed in between leaves the folder aside, and the next one puts it back first.

A run that is killed before its tables are noted leaves folders that nobody knows, and Spark would make no
table there again.  So what is in the warehouse is written down before a run (`begun.json`), and the next one
sees to what has come since: what has rows is a table, what has none is removed.  That is done in the
project's own folder of tables only, and only with folders that have nothing but files of Spark's in them: a
warehouse that is shared has tables of others.

A catalogue that lasts (Hive's, Iceberg's, a server's) needs none of this, and gets none of it.
"""

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from anabranch.base.errors import Conflict, Corrupt, NotFound
from anabranch.pipelines.project import Project, read_json, write_whole

_NOTES = "tables.json"
_BEGUN = "begun.json"
_DEFAULT = "default"


class Catalogue:
    """The tables in the memory of a driver of ours."""

    def __init__(self, spark: Any, project: Project) -> None:
        self._spark = spark
        self._notes = project.notes / _NOTES
        self._begun = project.notes / _BEGUN
        warehouse = urlsplit(spark.conf.get("spark.sql.warehouse.dir"))
        self._warehouse = Path(unquote(warehouse.path))
        self._lasting = spark.conf.get(
            "spark.sql.catalogImplementation"
        ) != "in-memory" or warehouse.scheme not in ("", "file")
        self._own = (
            project.local_storage is not None
            and self._warehouse.resolve() == Path(unquote(urlsplit(project.tables).path)).resolve()
        )
        if not self._lasting and project.database and project.catalog in (None, "spark_catalog"):
            spark.sql(f"CREATE DATABASE IF NOT EXISTS `{project.database}`")

    def restore(self, made_anew: Collection[str] | None) -> None:
        """Makes the tables of earlier runs again.  `made_anew` are filled from the start; None: all are."""
        if self._lasting:
            return
        for database, tables in self._noted().items():
            if database != _DEFAULT:
                self._spark.sql(f"CREATE DATABASE IF NOT EXISTS `{database}`")
            for table, statement in tables.items():
                folder = self._folder(database, table)
                _put_back(folder)
                if folder.exists():
                    self._make_over(folder, statement)
                elif made_anew is not None and table not in made_anew:
                    raise NotFound(
                        f"the folder of the table {table}, {folder}, is gone; "
                        f"--full-refresh {table} fills it again"
                    )
        self._take_up_unnoted()

    def begin(self) -> None:
        """A run is about to make tables."""
        if not self._lasting and self._own:
            write_whole(self._begun, json.dumps(sorted(self._folders()), indent=1))

    def note(self) -> None:
        """Remembers the tables that there are."""
        if self._lasting:
            return
        found: dict[str, dict[str, str]] = {}
        for database in (row[0] for row in self._spark.sql("SHOW DATABASES").collect()):
            for row in self._spark.sql(f"SHOW TABLES IN `{database}`").collect():
                if not row["isTemporary"]:
                    name = f"`{database}`.`{row['tableName']}`"
                    statement = self._spark.sql(f"SHOW CREATE TABLE {name}").collect()[0][0]
                    found.setdefault(database, {})[row["tableName"]] = statement
        if found != self._noted():
            write_whole(self._notes, json.dumps(found, indent=1))
        self._begun.unlink(missing_ok=True)

    def _noted(self) -> dict[str, dict[str, str]]:
        if not self._notes.exists():
            return {}
        noted: dict[str, dict[str, str]] = read_json(self._notes)
        if not isinstance(noted, dict) or not all(isinstance(tables, dict) for tables in noted.values()):
            raise Corrupt(f"{self._notes} is damaged: it is not a list of tables")
        return noted

    def _folder(self, database: str, table: str) -> Path:
        return self._warehouse / table if database == _DEFAULT else self._warehouse / f"{database}.db" / table

    def _make_over(self, folder: Path, statement: str) -> None:
        folder.rename(_aside(folder))
        self._spark.sql(statement)
        _put_back(folder)

    def _folders(self) -> dict[str, tuple[str, str]]:
        """The folders in the warehouse, by where they are in it: of which database and which table."""
        found = {}
        for folder in _folders_in(self._warehouse):
            if folder.suffix != ".db":
                found[folder.name] = (_DEFAULT, folder.name)
                continue
            for inner in _folders_in(folder):
                found[f"{folder.name}/{inner.name}"] = (folder.stem, inner.name)
        return found

    def _take_up_unnoted(self) -> None:
        """Sees to the folders that a run, killed before its tables were noted, has begun.

        Where no micro-batch was committed, which would be in the sink's own log, nothing is in a table yet.
        """
        if not self._own or not self._begun.exists():
            return
        before = set(read_json(self._begun))
        noted = self._noted()
        for place, (database, table) in self._folders().items():
            if place in before or table in noted.get(database, {}):
                continue
            folder = self._warehouse / place
            if (folder / "_spark_metadata").is_dir():
                if database != _DEFAULT:
                    self._spark.sql(f"CREATE DATABASE IF NOT EXISTS `{database}`")
                self._spark.sql(
                    f"CREATE TABLE `{database}`.`{table}` USING parquet LOCATION '{folder.as_uri()}'"
                )
            elif _has_only_output(folder):
                shutil.rmtree(folder)


def _folders_in(folder: Path) -> list[Path]:
    """Those that are not put aside, and are not links to others."""
    if not folder.is_dir():
        return []
    inner = (one for one in folder.iterdir() if not one.name.startswith("."))
    return [one for one in inner if one.is_dir() and not one.is_symlink()]


def _has_only_output(folder: Path) -> bool:
    """Whether all in it is what a job of Spark's leaves: part-…, _SUCCESS, _temporary, their checksums."""
    return all(
        path.name.lstrip(".").startswith(("part-", "_"))
        for path in folder.rglob("*")
        if not path.is_dir() or path.is_symlink()
    )


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.aside")


def _put_back(folder: Path) -> None:
    aside = _aside(folder)
    if aside.exists():
        try:
            if folder.exists():
                folder.rmdir()  # what Spark has made for the table, with nothing in it
        except OSError as error:
            raise Conflict(
                f"{folder} has something in it, and so has {aside}, where a run that was killed has put the "
                "table's rows: look which of them is the table, and move the other one away"
            ) from error
        aside.rename(folder)
