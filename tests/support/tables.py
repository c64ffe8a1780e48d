"""Tables as their maintainer makes them, without Spark.

    tables = Tables(bootstrap)
    tables.enable("orders", folder)
    tables.round()

python -m tests.support.tables BOOTSTRAP      maintains all tables until it is killed, in small steps
"""

import os
import sys
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from anabranch.pipelines.tables.maintainer import Maintainer, Round
from anabranch.pipelines.tables.tasks import run_here

_HOUR_MS = 3_600_000


def in_one_hour(records: int) -> int:
    """The time in ms of the first of so many records, one per ms: all of one hour, so all in one file."""
    now_ms = int(time.time() * 1000)
    first_ms = now_ms - records
    return first_ms if first_ms // _HOUR_MS == now_ms // _HOUR_MS else now_ms // _HOUR_MS * _HOUR_MS - records


class Tables:
    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._maintainer = Maintainer(run_here, bootstrap)

    def enable(self, topic: str, folder: Path, **other: str) -> None:
        settings = {"enable": "true", "location": str(folder), **other}
        self.alter(topic, **settings)

    def alter(self, topic: str, **settings: str) -> None:
        changes = [
            ConfigEntry(
                f"anabranch.table.{name.replace('_', '.')}",
                value,
                incremental_operation=AlterConfigOpType.SET,
            )
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        self._admin.incremental_alter_configs([resource])[resource].result(20)

    def round(self) -> Round:
        return self._maintainer.round()


def main() -> None:
    maintainer = Maintainer(run_here, sys.argv[1], most_offsets=100)
    os.write(1, b"here\n")
    while True:
        maintainer.round()


if __name__ == "__main__":
    main()
