"""Table options of a broker: who maintains topics that are kept as tables (`tables/`), and where."""

import os
from dataclasses import dataclass

from anabranch.base.config import Kind, at_least, option

MAINTAIN = "anabranch.table.maintain"
ROOT = "anabranch.table.root"
ROOTS = "anabranch.table.roots"


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesConfig:
    maintain: bool = option(
        MAINTAIN,
        Kind.BOOLEAN,
        True,
        None,
        "Whether the broker runs `anabranch table run` while there are tables; no if others run it.",
    )
    root: str = option(
        ROOT,
        Kind.STRING,
        "",
        None,
        "Where `anabranch table enable` puts tables; by default `tables` in the data folder.",
    )
    roots: tuple[str, ...] = option(
        ROOTS,
        Kind.LIST,
        (),
        lambda paths: None if all(map(os.path.isabs, paths)) else "Values must be whole paths",
        "Folders beside anabranch.table.root in which topics may have tables: what the broker writes to.",
    )
    interval_ms: int = option(
        "anabranch.table.interval.ms",
        Kind.LONG,
        60_000,
        at_least(100),
        "How often tables are brought up to date.",
    )
    master: str = option(
        "anabranch.table.spark.master",
        Kind.STRING,
        "local[2]",
        None,
        "The Spark that maintains tables: local, or the address of a cluster.",
    )
