"""Reading a journal back: the tree it amounts to, whatever a crash did to its end.

    frame frame frame fra            cut off: a crash stopped a write that nobody was told had succeeded
    frame fr#me frame frame          refused: intact frames follow, so no crash did this, and going on
                                     would lose what was acknowledged

The file is small (`meta/journal.py` rewrites it), so it is read whole.
"""

import logging
import re
from pathlib import Path

import msgspec
from crc32c import crc32c

from anabranch.base.disk import Disk
from anabranch.base.errors import Corrupt
from anabranch.meta.journal import FIRST_LINE, FORMAT, FRAME, LENGTH, MARKER, Journal, beside, whole_journal
from anabranch.meta.tree import Change, Tree

log = logging.getLogger(__name__)

_ANY_FIRST_LINE = re.compile(rb"anabranch metadata (\d{1,9})\n")
_FIRST_LINE_BYTES = 32

_decoder = msgspec.msgpack.Decoder(list[Change])


def recover(path: Path, disk: Disk) -> tuple[Journal, Tree]:
    """The journal at `path`, made if it is not there, and its tree.  Corrupt if it cannot be trusted."""
    disk.remove(beside(path))
    if not disk.exists(path):
        disk.write_whole(path, whole_journal([]))
    content = disk.read_whole(path)
    tree, end = _replay(path, memoryview(content))
    if end < len(content):
        log.warning(
            "metadata journal %s: cut off %d bytes that a crash left behind, none of them acknowledged",
            path,
            len(content) - end,
        )
        file = disk.open(path)
        file.truncate(end)
        file.sync()
        file.close()
    tree.zxid = max(tree.zxid, tree.reserved)
    return Journal(path, disk), tree


def _replay(path: Path, content: memoryview) -> tuple[Tree, int]:
    """The tree, and where the intact frames end."""
    if content[: len(FIRST_LINE)] != FIRST_LINE:
        raise Corrupt(_why_not_ours(path, bytes(content[:_FIRST_LINE_BYTES])))
    tree = Tree()
    at = len(FIRST_LINE)
    while at < len(content):
        payload = _payload_at(content, at)
        if payload is None:
            _refuse_unless_torn(path, content, at)
            return tree, at
        _replay_frame(path, at, payload, tree)
        at += FRAME.size + len(payload)
    return tree, at


def _why_not_ours(path: Path, start: bytes) -> str:
    other = _ANY_FIRST_LINE.match(start)
    if other is None:
        return (
            f"{path} does not start as a metadata journal does: it was damaged, or written by something "
            "else. Restore it from a backup, or move it away to start empty."
        )
    return (
        f"{path} is a metadata journal of format {int(other[1])}, this version of Anabranch reads "
        f"format {FORMAT} only. Start the version that wrote it, or move the data folder away to start empty."
    )


def _replay_frame(path: Path, at: int, payload: memoryview, tree: Tree) -> None:
    try:
        for change in _decoder.decode(payload):
            tree.apply(change)
    except (msgspec.MsgspecError, Corrupt) as error:
        raise Corrupt(f"{path} makes no sense at byte {at} ({error}). {_advice(path, at)}") from error


def _refuse_unless_torn(path: Path, content: memoryview, at: int) -> None:
    rest = bytes(content[at:])
    candidate = rest.find(MARKER, 1)
    while candidate >= 0:
        if _payload_at(memoryview(rest), candidate) is not None:
            raise Corrupt(
                f"{path} is damaged at byte {at}, before an intact part at byte {at + candidate}. "
                + _advice(path, at)
            )
        candidate = rest.find(MARKER, candidate + 1)


def _advice(path: Path, at: int) -> str:
    return (
        "Restore it from a backup; or, to give up every change of topics and settings from there on, "
        f"cut it with: truncate -s {at} {path}"
    )


def _payload_at(content: memoryview, at: int) -> memoryview | None:
    """The payload of the frame at `at`, or None if there is no intact one."""
    start = at + FRAME.size
    if start > len(content):
        return None
    marker, length, crc = FRAME.unpack_from(content, at)
    if marker != MARKER or start + length > len(content):
        return None
    payload = content[start : start + length]
    return payload if crc32c(payload, crc32c(LENGTH.pack(length))) == crc else None
