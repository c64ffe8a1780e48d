"""The processes of Spark's that run us: one serves a task after the other, and may go on so for days.

PySpark collects garbage after each task, and so looks at every object of every module that was loaded: 12 ms,
as long as our own part in a small micro-batch takes, four times a micro-batch.  What is loaded stays loaded,
and need not be looked at.
"""

import gc
from functools import cache


@cache
def keep_what_is_loaded() -> None:
    """Called when all modules are there, or nearly.  Later calls do nothing."""
    gc.collect()
    gc.freeze()
