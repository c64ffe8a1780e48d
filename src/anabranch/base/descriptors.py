"""Descriptors: how many this process may have, and who gets how many.

Files and connections draw on the same limit of the operating system.  Without a share of their own,
clients that only connect would keep the log from opening its files, so both get one:

    limit │ files, as configured, at most half │ connections, two each │ reserve │

The soft limit is raised to the hard one first: many systems start processes with 1,024.
"""

import logging
import resource
from typing import NamedTuple

log = logging.getLogger(__name__)

_NO_LIMIT = 1 << 20
_RESERVE = 64  # sockets that are accepted and not yet counted, the metadata journal, threads that sync
PER_CONNECTION = 2  # reading is the event loop's, writing ours, on a duplicate


class Shares(NamedTuple):
    files: int
    connections: int


def claim_descriptors(max_files: int, backlog: int) -> Shares:
    """Raise this process's limit as far as it goes, and share it out."""
    limit = _raised_limit()
    shares = share(limit, max_files, backlog)
    if shares.files < max_files:
        log.warning(
            "this process may open %d files and sockets: %d files of the log are kept open, not %d, "
            "and %d connections taken (ulimit -n sets the limit)",
            limit,
            shares.files,
            max_files,
            shares.connections,
        )
    return shares


def share(limit: int, max_files: int, backlog: int) -> Shares:
    files = min(max_files, limit // 2)
    return Shares(files, max(1, (limit - files - _RESERVE - backlog) // PER_CONNECTION))


def _raised_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError) as error:  # some systems name a hard limit that they do not grant
            log.info("the limit of open files stays at %d: %s", soft, error)
    return _NO_LIMIT if soft == resource.RLIM_INFINITY else min(soft, _NO_LIMIT)
