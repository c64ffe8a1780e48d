from anabranch.cli.delivery import KeyValue
from anabranch.cli.produce import key_value


def test_a_line_is_a_value() -> None:
    assert key_value(b"a:b", None, None, None) == KeyValue(None, b"a:b")
    assert key_value(b"", None, None, None) == KeyValue(None, b"")


def test_a_separator_splits_once() -> None:
    assert key_value(b"k:v:w", ":", None, None) == KeyValue(b"k", b"v:w")
    assert key_value(b":v", ":", None, None) == KeyValue(b"", b"v")


def test_a_line_without_separator_goes_under_the_common_key() -> None:
    assert key_value(b"v", ":", "all", None) == KeyValue(b"all", b"v")
    assert key_value(b"k:v", ":", "all", None) == KeyValue(b"k", b"v")


def test_a_tombstone() -> None:
    assert key_value(b"k:NULL", ":", None, "NULL") == KeyValue(b"k", None)
    assert key_value(b"k:", ":", None, "") == KeyValue(b"k", None)
