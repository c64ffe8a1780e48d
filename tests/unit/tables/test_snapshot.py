import msgspec
import pytest

from anabranch.base.errors import Corrupt
from anabranch.tables.snapshot import Dropped, Lost, Span, decode, encode
from tests.unit.tables.conftest import data_file, snapshot

TABLE = snapshot(
    data_file(0, 0, 10),
    data_file(3, 5, 7),
    lost=[Lost(partition=0, start=2, end=4, noticed_ms=9)],
    dropped=[Dropped(path="hour=x/1.parquet", since_ms=3)],
)


def test_there_and_back() -> None:
    assert decode(encode(TABLE)) == TABLE
    assert decode(encode(TABLE)).covered == {0: Span(0, 10), 3: Span(5, 7)}


def test_any_damage_is_noticed() -> None:
    data = encode(TABLE)
    for at in range(0, len(data), 7):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            with pytest.raises(Corrupt):
                decode(damaged)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x.parquet", "hour=1/../../x.parquet", "hour=1/x", "x.parquet"]
)
def test_files_outside_the_folder_are_not_spoken_of(path: str) -> None:
    with pytest.raises(Corrupt, match="not in its folder"):
        decode(encode(snapshot(data_file(path=path))))
    with pytest.raises(Corrupt, match="not in its folder"):
        decode(encode(snapshot(dropped=[Dropped(path=path, since_ms=0)])))


def test_a_later_format_is_refused() -> None:
    with pytest.raises(Corrupt, match="format 2"):
        decode(encode(msgspec.structs.replace(TABLE, format=2)))
