import json

import pytest

from anabranch.cli.output import json_line, print_table, readable


def test_a_table_lines_up(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"name": "a", "count": 5, "isr": [1, 2]}, {"name": "longer", "count": 1234, "isr": []}])
    assert capsys.readouterr().out.splitlines() == [
        "name    count  isr",
        "a           5  1,2",
        "longer   1234",
    ]


def test_bytes_in_json() -> None:
    assert readable("é".encode()) == "é"
    assert readable(None) is None
    assert json.loads(json_line(readable(b"\xff\x00"))) == {"base64": "/wA="}
