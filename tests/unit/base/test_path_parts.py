"""Any text is one part of a path, and no two are the same one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.path_parts import MAX_FOLDER_BYTES, folder_part, is_cut, path_part, text_of
from tests.unit.records.strategies import seeded

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=250)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("orders.v_2-x", "orders.v_2-x"),
        ("a b/c", "a%20b%2Fc"),
        ("%2E", "%252E"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "..."),
        ("ü", "%C3%BC"),
        ("a\0", "a%00"),
    ],
)
def test_parts(text: str, part: str) -> None:
    assert path_part(text) == folder_part(text) == part
    assert text_of(part) == text


@seeded(500)
@given(TEXT)
def test_there_and_back(text: str) -> None:
    part = path_part(text)
    assert text_of(part) == text
    assert part.isascii()
    assert not set(part) & set("/\\\0")
    assert part not in ("", ".", "..")


@seeded(500)
@given(TEXT)
def test_a_folder_has_room_for_any(text: str) -> None:
    part = folder_part(text)
    assert len(f"{part}-999999999") <= 255
    if not is_cut(part):
        assert text_of(part) == text


def test_long_names_that_begin_alike_stay_apart() -> None:
    one, two = "ü" * 248 + "a", "ü" * 248 + "b"
    assert folder_part(one) != folder_part(two)
    assert is_cut(folder_part(one))
    assert len(folder_part(one)) <= MAX_FOLDER_BYTES
    assert folder_part("x" * 249) == "x" * 249  # Kafka's own stay as they are
