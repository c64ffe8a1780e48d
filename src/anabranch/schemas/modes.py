"""Subject modes: what may be done to a subject, by its own mode, else the global one, else READWRITE.

READWRITE                       register, delete
READONLY, READONLY_OVERRIDE     neither; the second, set for all, overrides the subject's own mode
IMPORT                          register under given ids and versions, whether compatible or not
"""

from anabranch.schemas.errors import InvalidMode, NotPermitted
from anabranch.schemas.subject_store import FOR_ALL, SubjectStore

READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
MODES = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)


def mode_of_name(name: str) -> str:
    """InvalidMode if it is none."""
    if name.upper() not in MODES:
        raise InvalidMode(f"{name[:100]!r} is no mode; there are {', '.join(MODES)}")
    return name.upper()


async def mode_in_scope(store: SubjectStore, subject: str) -> str:
    for_all = (await store.settings(FOR_ALL)).mode
    if for_all == READONLY_OVERRIDE:
        return for_all
    return (await store.settings(subject)).mode or for_all or READWRITE


async def check_writable(store: SubjectStore, subject: str) -> str:
    """The mode of a subject; NotPermitted if nothing may change."""
    mode = await mode_in_scope(store, subject)
    if mode in (READONLY, READONLY_OVERRIDE):
        raise NotPermitted(f"subject {subject} is in read-only mode")
    return mode
