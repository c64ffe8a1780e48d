"""Our broker with acknowledgements that come late, as those of followers do.

python bench/path/late_acks.py MILLISECONDS .venv/bin/anabranch standalone ...
"""

import asyncio
import sys
from pathlib import Path

from anabranch.cli.main import main
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Appended

_append, _append_own = Partition.append, Partition.append_own


def wrapper(delay_ms: float) -> tuple[str, ...]:
    """What stands before the broker's command to have it so."""
    return (sys.executable, str(Path(__file__).resolve()), str(delay_ms))


def _hold_back(appended: Appended, delay_s: float) -> Appended:
    loop = asyncio.get_running_loop()
    acknowledged = loop.create_future()
    loop.call_later(delay_s, _acknowledge, acknowledged)
    return appended._replace(acknowledged=acknowledged)


def _acknowledge(acknowledged: "asyncio.Future[None]") -> None:
    if not acknowledged.done():
        acknowledged.set_result(None)


if __name__ == "__main__":
    delay_s = float(sys.argv[1]) / 1000

    def append(self: Partition, batch: memoryview, acks: int) -> Appended:
        appended = _append(self, batch, acks)
        return _hold_back(appended, delay_s) if acks == -1 else appended

    def append_own(self: Partition, batch: memoryview) -> Appended:
        return _hold_back(_append_own(self, batch), delay_s)

    if delay_s:
        setattr(Partition, "append", append)  # noqa: B010  a method, which mypy would not have assigned
        setattr(Partition, "append_own", append_own)  # noqa: B010
    sys.argv = sys.argv[2:]
    main()
