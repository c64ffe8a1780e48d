"""Metrics: what the broker counts and measures, as the text that Prometheus scrapes.

The library that writes the text is loaded by the first scrape, in a thread: brokers that nobody scrapes have
neither its memory nor its start-up time.  The numbers are read by the loop, since they are the loop's; the
text, which is long, is written by a thread again.
"""

import asyncio
from importlib import import_module

from anabranch.admin.call import Call, Text
from anabranch.admin.measured import standing
from anabranch.admin.routes import get

_MEDIA = "text/plain; version=0.0.4"


@get("/metrics")
async def metrics(call: Call) -> Text:
    """What the broker counts and measures, for Prometheus."""
    services, loop = call.services, asyncio.get_running_loop()
    told = await loop.run_in_executor(services.threads, import_module, "anabranch.admin.metric_families")
    found = await standing(services.measured)
    most_topics = services.pulsar.config.current.metrics.max_topics
    families = list(told.families(services.measured, found, most_topics))
    return Text(await loop.run_in_executor(services.threads, told.text_of, families), _MEDIA)
