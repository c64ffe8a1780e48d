"""Dead letters of share groups (KIP-1191): records given up, in the topic that the group names.

One record becomes one record, in the partition of the source's number modulo the topic's partitions.  Headers
say where it came from and why; the key and the value come with it if the group asks for that.

A dead letter is written before the record is archived.  So a crash in between may write it again, and none
is lost.  What cannot be written (no such topic, one that does not allow it, no room, a record that is larger
than the topic takes) is logged, and the record is archived all the same: it must not stand in the way of the
others.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

from anabranch.base.errors import AnabranchError, Exists, Invalid, UnknownTopic
from anabranch.base.network import FileRange
from anabranch.base.seldom import Seldom
from anabranch.groups.config import GroupConfig
from anabranch.groups.share_state import ShareKey
from anabranch.partition.host import PartitionHost
from anabranch.partition.kafka_part import kafka_part
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.partition.served_topic import ServedTopic
from anabranch.records.batch import split_batches
from anabranch.records.builder import build_batch
from anabranch.records.record import Header, Record, iter_records, payload_of
from anabranch.subscriptions.share_partition import Cause, GivenUp

_trouble = Seldom(logging.getLogger(__name__), 1.0)

_WHY = {
    Cause.REJECTED: b"Offset rejected by client.",
    Cause.DELIVERED_TOO_OFTEN: b"Offset delivery count exceeded the threshold.",
}
_AT_ONCE = 500  # records per batch
_BATCH_BYTES = 512 << 10  # and so much of keys and values, unless the last one is larger
_READ_BYTES = 1 << 20
_UNPACKED_BYTES = 64 << 20

Create = Callable[[str], Awaitable[object]]
"""Make a topic that allows dead letters, by its name."""


class DeadLetters:
    def __init__(
        self,
        host: PartitionHost,
        config_of: Callable[[str], GroupConfig],
        create: Create,
        now_ms: Callable[[], int],
    ) -> None:
        self._host = host
        self._config_of = config_of
        self._create = create
        self._now_ms = now_ms

    async def bury(self, key: ShareKey, source: Partition, given_up: Sequence[GivenUp]) -> None:
        """Write what is given up of `source` to the group's topic for that, if it has one."""
        config = self._config_of(key.group)
        if not config.dead_letter_topic:
            return
        try:
            topic = await self._topic(config)
            target = self._host.partition_of(topic, key.partition % len(topic.partitions))
            async for batch in _batches(
                self._letters(key, source, given_up, copies=config.dead_letter_copies)
            ):
                await _append(target, batch)
        except (AnabranchError, OSError) as error:
            _trouble.warning(
                "%s, group %s: offsets from %d on are given up and leave no dead letters: %s",
                self._subject(key),
                key.group,
                given_up[0].first,
                error,
            )

    def _subject(self, key: ShareKey) -> str:
        found = self._host.topic_by_id(key.topic_id)
        return f"{'a deleted topic' if found is None else found.name.kafka}-{key.partition}"

    async def _topic(self, config: GroupConfig) -> ServedTopic:
        name = config.dead_letter_topic
        if name.startswith("__") or not name.startswith(config.dead_letter_prefix):
            raise Invalid(f"{name!r} is no name for a topic of dead letters")
        topic = self._host.find(name)
        if topic is None and config.dead_letter_creates:
            with suppress(Exists):  # if somebody else was first
                await self._create(name)
            topic = self._host.find(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r} for dead letters")
        if not topic.config.errors_deadletterqueue_group_enable:
            raise Invalid(
                f"topic {name!r} takes no dead letters: errors.deadletterqueue.group.enable is false"
            )
        return topic

    async def _letters(
        self, key: ShareKey, source: Partition, given_up: Sequence[GivenUp], *, copies: bool
    ) -> AsyncIterator[Record]:
        found = self._host.topic_by_id(key.topic_id)
        name = b"" if found is None else found.name.kafka.encode()
        now_ms = self._now_ms()
        for first, end, count, cause in given_up:
            common = (
                (b"__dlq.errors.topic", name),
                (b"__dlq.errors.partition", b"%d" % key.partition),
                (b"__dlq.errors.group", key.group.encode()),
                (b"__dlq.errors.delivery.count", b"%d" % count),
                (b"__dlq.errors.message", _WHY[cause]),
            )
            if not copies:
                for offset in range(first, end):
                    yield Record(offset, now_ms, None, None, _with_offset(common, offset))
                continue
            async for record in _records(source, first, end):
                headers = _with_offset(common, record.offset)
                yield Record(record.offset, now_ms, record.key, record.value, headers)


async def _records(source: Partition, first: int, end: int) -> AsyncIterator[Record]:
    """The records as they were written, those that are still there."""
    at = max(first, source.log_start)
    while at < end:
        part = source.read(at, _READ_BYTES, Isolation.UNCOMMITTED, whole_first=True)
        if part is None:
            return
        given = kafka_part(source, part) if source.has_entries else part
        if isinstance(given, asyncio.Future):
            await given
            continue
        data = given.file.pread(given.size, given.position) if isinstance(given, FileRange) else given
        for header, batch in split_batches(data):
            if header.base_offset >= end:
                return
            if header.last_offset >= at:
                payload = await source.translations.aside(payload_of, header, batch, _UNPACKED_BYTES)
                for record in iter_records(header, payload):
                    if at <= record.offset < end:
                        yield record
                at = header.last_offset + 1


def _with_offset(headers: tuple[Header, ...], offset: int) -> tuple[Header, ...]:
    return (*headers[:2], (b"__dlq.errors.offset", b"%d" % offset), *headers[2:])


async def _batches(letters: AsyncIterator[Record]) -> AsyncIterator[list[Record]]:
    """Renumbered."""
    batch: list[Record] = []
    size = 0
    async for letter in letters:
        batch.append(letter._replace(offset=len(batch)))
        size += len(letter.key or b"") + len(letter.value or b"")
        if len(batch) == _AT_ONCE or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def _append(target: Partition, letters: list[Record]) -> None:
    """As one batch; as several if the topic takes no such.  A letter that is too large alone is left out."""
    batch = build_batch(letters)
    is_too_large = len(batch) > target.config.max_message_bytes
    if is_too_large and len(letters) == 1:
        _trouble.warning("a dead letter of %d bytes is left out, its topic takes none as large", len(batch))
        return
    if is_too_large:
        half = len(letters) // 2
        await _append(target, letters[:half])
        await _append(target, [letter._replace(offset=at) for at, letter in enumerate(letters[half:])])
        return
    appended = target.append(memoryview(batch), -1)
    if appended.acknowledged is not None:
        await appended.acknowledged
