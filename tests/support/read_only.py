"""A folder that can be read and not written, like a file system that was mounted read-only after an error.

Files that are open for writing cannot be written any more either, by root neither: they are made immutable.
That needs Linux, root, and a file system that knows it (ext4, XFS, Btrfs; tmpfs since Linux 6.6).
"""

import array
import fcntl
import os
from contextlib import suppress
from pathlib import Path

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_IMMUTABLE = 0x10


def can_be_read_only(folder: Path) -> bool:
    probe = folder / "probe"
    probe.touch()
    try:
        _set_immutable(probe, True)
        _set_immutable(probe, False)
    except OSError:
        return False
    finally:
        probe.unlink()
    return True


def set_read_only(folder: Path, read_only: bool) -> None:
    """All that is in it, or nothing.  Folders first: nothing new comes meanwhile."""
    places = [Path(place) for place, _, _ in os.walk(folder)]
    for place in places:
        _set_immutable(place, read_only)
    for place in places:
        for entry in os.scandir(place):
            if entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    _set_immutable(Path(entry.path), read_only)


def _set_immutable(path: Path, immutable: bool) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        flags = array.array("l", [0])
        fcntl.ioctl(fd, _GET_FLAGS, flags, True)
        flags[0] = flags[0] | _IMMUTABLE if immutable else flags[0] & ~_IMMUTABLE
        fcntl.ioctl(fd, _SET_FLAGS, flags)
    finally:
        os.close(fd)
