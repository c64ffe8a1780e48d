"""Random records and batches, from a fixed seed; ANABRANCH_SOAK=1 tries twenty times as many."""

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from anabranch.records import compression
from anabranch.records.record import Record

_TIMES = 20 if os.environ.get("ANABRANCH_SOAK") else 1

CODECS = (compression.NONE, compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD)
LIMIT_BYTES = 1 << 20

INT64 = st.integers(-(2**63), 2**63 - 1)
# Around the lengths where a varint grows, and anything between.
LENGTHS = st.sampled_from((0, 1, 62, 63, 64, 65, 200, 8191, 8192)) | st.integers(0, 300)


def seeded(examples: int = 100) -> settings:
    return settings(max_examples=examples * _TIMES, derandomize=True, database=None, deadline=None)


@st.composite
def blobs(draw: Any) -> bytes:
    length = draw(LENGTHS)
    return (draw(st.binary(min_size=1, max_size=8)) * length)[:length]


HEADERS = st.lists(
    st.tuples(st.text(max_size=5).map(str.encode), st.none() | st.binary(max_size=70)), max_size=3
).map(tuple)


@st.composite
def record_lists(draw: Any, *, dense: bool = True, max_size: int = 8, times: Any = INT64) -> list[Record]:
    """Records in order of offset: from 0 without gaps if `dense`, else from anywhere with gaps."""
    count = draw(st.integers(1, max_size))
    if dense:
        offsets = list(range(count))
    else:
        start = draw(st.integers(0, 2**62))
        gaps = draw(st.lists(st.integers(1, 1 << 20), min_size=count, max_size=count))
        offsets = [start + sum(gaps[:number]) for number in range(count)]
    return [
        Record(
            offset,
            draw(times),
            draw(st.none() | blobs()),
            draw(st.none() | blobs()),
            draw(HEADERS),
        )
        for offset in offsets
    ]


# What build_batch takes besides the records.
FIELDS = st.fixed_dictionaries(
    {
        "leader_epoch": st.integers(-1, 2**31 - 1),
        "producer_id": st.integers(-1, 2**63 - 1),
        "producer_epoch": st.integers(-1, 2**15 - 1),
        "base_sequence": st.integers(-1, 2**31 - 1),
        "transactional": st.booleans(),
        "control": st.booleans(),
        "append_time_ms": st.none() | INT64,
        "delete_horizon_ms": st.none() | INT64,
    }
)
