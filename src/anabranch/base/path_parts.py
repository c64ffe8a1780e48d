"""Path parts: any text as one, percent-encoded where it is not of Kafka's letters.

    "orders.v2"   -> "orders.v2"           "a b/c" -> "a%20b%2Fc"          ".." -> "%2E%2E"

What Kafka allows as a topic's name stands as it is, so that its files are where Kafka's tools look for them.
Two texts never have the same part, and no part leaves its folder.
"""

import hashlib
import re
from urllib.parse import unquote

# A file's name has 255 bytes at most; a partition's index, with a dash, takes up to ten of them.
MAX_FOLDER_BYTES = 244
_KEPT_BYTES = 180

_PLAIN = re.compile(r"[a-zA-Z0-9._-]+")
_OTHERS = re.compile(rb"[^a-zA-Z0-9._-]")
_CUT = "%-"
_ONLY_DOTS = (".", "..")


def path_part(text: str) -> str:
    """`text` as one part of a path."""
    if _PLAIN.fullmatch(text) and text not in _ONLY_DOTS:
        return text
    if text in _ONLY_DOTS:
        return "%2E" * len(text)
    return _OTHERS.sub(lambda match: b"%%%02X" % match[0][0], text.encode()).decode("ascii")


def text_of(part: str) -> str:
    """The text that `path_part` made the part of."""
    return unquote(part, errors="strict") if "%" in part else part


def folder_part(text: str) -> str:
    """As `path_part`, but never too long for a folder's name: a digest stands for the rest of a long one.

    An encoded character is `%` and two digits, so that `%-` only comes before a digest.
    """
    part = path_part(text)
    if len(part) <= MAX_FOLDER_BYTES or _PLAIN.fullmatch(text):
        return part
    return f"{part[:_KEPT_BYTES]}{_CUT}{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def is_cut(part: str) -> bool:
    """Whether `folder_part` put a digest into it, so that the text is not to be read from it."""
    return _CUT in part
