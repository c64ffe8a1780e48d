"""A topic's options for its history as a table: kept with the topic, without effect on its log.

Whoever maintains tables and whoever reads them finds them with DescribeConfigs.  They are ours, not Kafka's,
so they are shown where they are set and nowhere else.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from anabranch.base.config import Kind, Option, at_least
from anabranch.base.errors import InvalidConfig

_HOUR_MS = 3_600_000

ENABLE = Option(
    "anabranch.table.enable",
    Kind.BOOLEAN,
    False,
    "Whether the topic's history is kept as a table of Parquet files.",
    dynamic=True,
    internal=True,
)
LOCATION = Option(
    "anabranch.table.location",
    Kind.STRING,
    "",
    "The folder of that table, a whole path that all readers reach; `anabranch table enable` chooses one.",
    lambda text: None if not text or PurePosixPath(text).is_absolute() else "Value must be a whole path",
    dynamic=True,
    internal=True,
)
RETENTION = Option(
    "anabranch.table.retention.ms",
    Kind.LONG,
    -1,
    "The table's beginning is removed as far as all records are older than this; -1 keeps all for good.",
    at_least(-1),
    dynamic=True,
    internal=True,
)
DELETE_DELAY = Option(
    "anabranch.table.file.delete.delay.ms",
    Kind.LONG,
    _HOUR_MS,
    "How long files that the table has no use for any more stay, for queries that are reading them.",
    at_least(0),
    dynamic=True,
    internal=True,
)
TABLE_OPTIONS = (ENABLE, LOCATION, RETENTION, DELETE_DELAY)


def check_table(values: Mapping[Option, Any]) -> None:
    """InvalidConfig if these do not go together."""
    if values[ENABLE] and not values[LOCATION]:
        raise InvalidConfig(f"{ENABLE.name} needs {LOCATION.name}: the folder of the table")
