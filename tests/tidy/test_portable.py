"""Nothing in the tree knows the machine it was written on: no home folders, no private hosts."""

import re

from tests.tidy.tree import relative, text_files

# Spelled in pieces, or this file would find itself.
HOME = re.compile(r"(?<![\w.~$}/-])/(?:root|home|Users|work)" + r"/[\w.-]+")
HOST = re.compile(r"\b(?!google\.protobuf)[\w-]+(?:\.[\w-]+)+\.(?:internal|corp|lan|intranet)\b" + r"(?!\()")
ADDRESS = re.compile(r"(?<![\d.])(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))" + r"(?:\.\d{1,3}){2,3}(?![\d.])")
URL = re.compile(r"https?://(?:[^\s/@'\"]*@)?([\w.-]+)")
PUBLIC = (
    "apache.org",
    "github.com",
    "python.org",
    "pypi.org",
    "astral.sh",
    "readthedocs.io",
    "127.0.0.1",
    "localhost",
    "example.com",
    "w3.org",
    "json-schema.org",
)


def find(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{relative(path)}:{text.count(chr(10), 0, match.start()) + 1} {match.group()}"
        for path, text in text_files()
        for match in pattern.finditer(text)
    ]


def test_no_machine_paths() -> None:
    assert find(HOME) == []


def test_no_private_hosts() -> None:
    assert find(HOST) == []
    assert find(ADDRESS) == []


def test_urls_name_public_places() -> None:
    strays = [
        f"{relative(path)} {match.group()}"
        for path, text in text_files()
        for match in URL.finditer(text)
        if not any(match[1] == host or match[1].endswith("." + host) for host in PUBLIC)
    ]
    assert strays == []
