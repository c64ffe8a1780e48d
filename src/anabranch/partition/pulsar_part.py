"""Reads in Pulsar's form: the entries that a Kafka producer's batch becomes for Pulsar's consumers.

    all together          one entry, a message for every offset
    message by message    an entry each, for consumers who share a subscription by keys: a batch has several

Made once (`translations`): small batches at once, large ones in turns, for which the reader has to come
again.  A batch that cannot be translated becomes nothing, and a line in the log: readers go on behind it.
"""

import asyncio
from collections.abc import Iterable

from anabranch.base.disk import Buffer
from anabranch.base.errors import AnabranchError, TooLarge
from anabranch.partition.translations import (
    LARGE_BYTES,
    MANY_MESSAGES,
    NOTHING,
    Translated,
    Translations,
    in_turns,
    key_of,
    passed_over,
)
from anabranch.records.batch import HEADER_SIZE, BatchHeader
from anabranch.records.entry_payloads import LIMIT_BYTES
from anabranch.records.record import payload_of
from anabranch.records.to_pulsar import entry_pieces, gaps_in, message_pieces, seal_entry

Pending = asyncio.Future[None]

_READERS = "Pulsar's clients"


def pulsar_part(
    partition: object, translations: Translations, header: BatchHeader, batch: memoryview, *, splits: bool
) -> Translated | Pending:
    """What a batch of a Kafka producer has become; or when to ask again."""
    key = key_of((partition, "messages") if splits else partition, header)
    made = translations.find(key)
    if made is not None:
        return made
    fits_bytes = translations.fits_bytes()
    if len(batch) <= LARGE_BYTES and header.last_offset_delta < MANY_MESSAGES:
        made = _made_now(partition, header, batch, fits_bytes, splits)
    if made is None:
        return translations.begin(
            key, lambda: _made(partition, translations, header, batch, fits_bytes, splits)
        )
    translations.keep(key, made)
    return made


def _made_now(
    partition: object, header: BatchHeader, batch: memoryview, fits_bytes: int, splits: bool
) -> Translated | None:
    """None if it is larger than it looks."""
    try:
        payload = payload_of(header, batch, LARGE_BYTES)
        if splits:
            return _split(message_pieces(header, payload))
        data = seal_entry(header, entry_pieces(header, payload), fits_bytes) if header.count else b""
        return Translated(data, gaps_in(header, payload))
    except TooLarge:
        return None
    except AnabranchError as error:
        passed_over(partition, header, _READERS, error)
        return NOTHING


async def _made(
    partition: object,
    translations: Translations,
    header: BatchHeader,
    batch: memoryview,
    fits_bytes: int,
    splits: bool,
) -> Translated:
    try:
        payload: Buffer = batch[HEADER_SIZE:]
        if header.codec:
            payload = await translations.aside(payload_of, header, batch, LIMIT_BYTES)
        if splits:
            return _split(await in_turns(message_pieces(header, payload)))
        if not header.count:
            return NOTHING
        pieces = await in_turns(entry_pieces(header, payload))
        gaps = gaps_in(header, payload)
        del payload  # large ones would be there several times over
        return Translated(await translations.aside(seal_entry, header, pieces, fits_bytes), gaps)
    except AnabranchError as error:
        passed_over(partition, header, _READERS, error)
        return NOTHING


def _split(pieces: Iterable[list[tuple[int, bytes]]]) -> Translated:
    return Translated(b"", messages=tuple(message for piece in pieces for message in piece))
