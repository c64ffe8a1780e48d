"""Compaction of topics: begun, and asked about."""

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.parts import one_part, stored_parts
from anabranch.admin.routes import get, put
from anabranch.admin.topics import TOPIC


class ProcessStatus(msgspec.Struct, rename="camel"):
    """`NOT_RUN`, `RUNNING`, `SUCCESS` or `ERROR`."""

    status: str
    last_error: str = ""


@put(TOPIC + "/compaction")
async def compact(call: Call) -> None:
    """Begin to compact a topic for who reads the last message of every key only."""
    for topic in await stored_parts(call, "Trigger compaction"):
        topic.compact()


@get(TOPIC + "/compaction", answer=ProcessStatus)
async def status(call: Call) -> ProcessStatus:
    """How the compaction of a topic goes, or went."""
    compacting = (await one_part(call, "Compaction status")).compacting
    return ProcessStatus(compacting.status, compacting.last_error)
