"""Header values: one header of all records at once, by its name in the column of headers."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.spark.varints import Ints


def header_values(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """The header `name` of each record, the last if there are several; null where there is none."""
    found: Ints = np.full(len(headers), -1, np.int64)
    owners, pairs = headers_with_owners(headers)
    hits = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(pairs.field("key"), name), False)))
    found[owners[hits]] = hits  # of several, the one that comes last
    return pairs.field("value").take(pa.array(found, mask=found < 0))


def headers_with_owners(headers: pa.ListArray) -> tuple[Ints, pa.StructArray]:
    """All headers, and which record each is of."""
    counts = np.asarray(pc.fill_null(pc.list_value_length(headers), 0)).astype(np.int64)
    return np.repeat(np.arange(len(headers)), counts), headers.flatten()
