"""Committed offsets: what groups have committed in the partitions of one shard.

    commit ──────────────────────────────────────────> committed ──> fetched, deleted, expired
    commit in a transaction ─> pending ─┬─ committed ─────^
                                        └─ aborted ─> forgotten

An offset that is pending is not fetched; a client that asks for stable offsets is told to come back.  Between
a plain commit and one in a transaction, the later in the log wins, whenever the transaction ends: compaction
keeps the last record of a key, so a restart would otherwise find another offset than was there before.

A group that only commits need not exist otherwise: its first offset creates it, as an empty classic group,
and it is removed with its last one.  Offsets age by their own time or since their group became empty
(`Group.ages_from`), but not while the group is subscribed to their topic, a transaction is about to
replace them, or they are the position of a Pulsar subscription.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from anabranch.groups.commit_records import Outcome, Written, write_commit
from anabranch.groups.committing import BROKERS_RETENTION, Commit, may_commit, refused
from anabranch.groups.effects import Answer, Effects, KeyValue, Producer, Token
from anabranch.groups.group import Group, GroupKind
from anabranch.groups.parts import Surroundings
from anabranch.groups.pending_offsets import Numbered, PendingOffsets
from anabranch.groups.records import (
    OFFSET_KEYS,
    CommittedOffset,
    OffsetKey,
    read_offset,
    read_offset_key,
    write_offset_key,
)
from anabranch.wire.kafka.schema import ErrorCode

_CONSUMER = "consumer"
_EXPIRE = ("offsets", "expire")
_TOMBSTONES_AT_ONCE = 5_000
_LATEST_MS = (1 << 63) - 1  # as late as a record can say
_SOON_MS = 1_000


class TopicPartitions(NamedTuple):
    name: str
    topic_id: UUID | None
    partitions: Sequence[int]


class Fetch(NamedTuple):
    group_id: str
    member_id: str | None
    epoch: int
    topics: Sequence[TopicPartitions] | None
    """None asks for everything the group has committed."""
    require_stable: bool


class CommittedOffsets:
    name = "offsets"
    key_versions = OFFSET_KEYS

    def __init__(
        self, around: Surroundings, groups: dict[str, Group], new_group: Callable[[str], Group]
    ) -> None:
        """`groups` is the shard's; `new_group` makes one that has nothing but offsets."""
        self._around = around
        self._groups = groups
        self._new_group = new_group
        self._committed: dict[str, dict[str, dict[int, Numbered]]] = {}
        self._pending = PendingOffsets()
        self._claims: dict[
            tuple[str, str], dict[int, int]
        ] = {}  # of subscriptions: partition -> leader epoch
        self._replayed = 0
        self._is_loaded = False

    # --- from the log

    def replay(self, key: bytes, value: bytes | None) -> None:
        self._replayed += 1
        name = read_offset_key(key)
        if value is None:
            self._remove(name)
            self._pending.forget(name)
        else:
            self._put(name, Numbered(*read_offset(value), self._replayed))

    def replay_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        self._replayed += 1
        if value is not None:  # nobody deletes within a transaction
            name = read_offset_key(key)
            self._know(name.group_id)
            self._pending.put(producer_id, name, Numbered(*read_offset(value), self._replayed))

    def transaction_ended(self, producer_id: int, *, commit: bool) -> None:
        for name, offset in self._pending.end(producer_id).items():
            if commit:
                there = self._find(name)
                if there is None or there.number < offset.number:
                    self._put(name, offset)

    def loaded(self, effects: Effects, now_ms: int) -> None:
        self._is_loaded = True
        for group_id in self._committed:
            self._know(group_id)  # compaction may have left the end of a group, and offsets from before it
        effects.at(_EXPIRE, now_ms + self._around.config().retention_check_interval_ms)

    # --- decisions

    def commit(self, request: Commit, token: Token, now_ms: int) -> Effects:
        group = self._groups.get(request.group_id)
        code = self._may_commit(request, transactional=False)
        effects = Effects()
        if code:
            effects.reply(token, refused(request.topics, code))
            return effects
        expires_ms = -1
        if request.retention_ms != BROKERS_RETENTION:
            expires_ms = min(max(0, now_ms + request.retention_ms), _LATEST_MS)
        answer, written, encoded = self._write(request, effects, now_ms, expires_ms)
        effects.reply(token, answer)
        if encoded is not None:
            effects.write_encoded(encoded, lambda: self._put_all(request.group_id, written))
        elif written:
            effects.replayed_by(lambda: self._put_all(request.group_id, written))
        if group is not None:
            member_id = request.member_id
            effects.after(lambda: group.heard_of(member_id, now_ms))
        return effects

    def commit_in_transaction(
        self, request: Commit, producer: Producer, token: Token, now_ms: int
    ) -> Effects:
        """As `commit`, to count when the transaction of `producer` commits."""
        code = self._may_commit(request, transactional=True)
        effects = Effects()
        if code:
            effects.reply(token, refused(request.topics, code))
            return effects
        effects.within(producer)
        answer, written, encoded = self._write(request, effects, now_ms, -1)
        effects.reply(token, answer)
        if encoded is not None:
            effects.write_encoded(encoded, lambda: self._pend_all(producer, request.group_id, written))
        return effects

    def delete(self, group_id: str, topics: Sequence[TopicPartitions], token: Token, now_ms: int) -> Effects:
        effects = Effects()
        group = self._groups.get(group_id)
        if group is None or group.state == "Dead" or group.kind is GroupKind.SHARE:
            effects.reply(token, {"error_code": ErrorCode.group_id_not_found, "topics": []})
        elif group.kind is GroupKind.CLASSIC and not group.is_empty and group.protocol_type != _CONSUMER:
            effects.reply(token, {"error_code": ErrorCode.non_empty_group, "topics": []})
        else:
            answers = [self._delete_topic(group, topic, effects) for topic in topics]
            effects.each_for_itself()
            effects.reply(token, {"topics": answers})
        return effects

    def forget_topics(self, topics: Iterable[str]) -> Effects:
        """The topics are deleted, and what was committed for them would mislead if they came again."""
        effects = Effects()
        gone = set(topics)
        names = {
            OffsetKey(group_id, topic, partition)
            for group_id, by_topic in self._committed.items()
            for topic in gone & by_topic.keys()
            for partition in by_topic[topic]
        }
        for topic in gone:
            names.update(self._pending.of_topic(topic))
        effects.records.extend(_tombstone(name) for name in sorted(names))
        effects.each_for_itself()
        return effects

    def timeout(self, timer: Hashable, now_ms: int) -> Effects:
        """Forget what is too old, and groups that nothing is left of."""
        effects = Effects()
        config = self._around.config()
        retention_ms = config.retention_minutes * 60_000
        for group in self._groups.values():
            if len(effects.records) >= _TOMBSTONES_AT_ONCE:
                break
            self._expire(group, retention_ms, now_ms, effects)
        effects.each_for_itself()
        more = len(effects.records) >= _TOMBSTONES_AT_ONCE
        effects.at(_EXPIRE, now_ms + (_SOON_MS if more else config.retention_check_interval_ms))
        return effects

    # --- to look at

    def fetch(self, request: Fetch) -> Answer:
        """The answer for one group: `topics` and `error_code`."""
        group = self._groups.get(request.group_id)
        code = ErrorCode.group_id_not_found
        if group is not None:
            code = group.validate_fetch(request.member_id, request.epoch)
        if code not in (ErrorCode.none, ErrorCode.group_id_not_found):
            return {"group_id": request.group_id, "error_code": code, "topics": []}
        known = {} if code else self._committed.get(request.group_id, {})
        topics = request.topics
        if topics is None:
            topics = [TopicPartitions(name, None, list(offsets)) for name, offsets in known.items()]
        return {
            "group_id": request.group_id,
            "error_code": ErrorCode.none,
            "topics": [
                {
                    "name": topic.name,
                    "topic_id": topic.topic_id,
                    "partitions": [
                        self._fetched(request, topic, index, known.get(topic.name, {}).get(index))
                        for index in topic.partitions
                    ],
                }
                for topic in topics
            ],
        }

    def find(self, name: OffsetKey) -> CommittedOffset | None:
        """What the group has committed for one partition."""
        found = self._find(name)
        return None if found is None else found.value

    def has_open_transaction(self, group_id: str) -> bool:
        """Whether a transaction is about to commit offsets of the group."""
        return self._pending.is_open(group_id)

    def committed(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Topic, partition and offset of everything the group has committed."""
        for topic, offsets in self._committed.get(group_id, {}).items():
            for partition, offset in offsets.items():
                yield topic, partition, offset.value

    def has_subscription(self, group_id: str) -> bool:
        """Whether an offset of the group is the position of a Pulsar subscription."""
        has = self._around.subscriptions.has
        return any(
            has(OffsetKey(group_id, topic, index), committed.metadata)
            for topic, index, committed in self.committed(group_id)
        )

    def is_subscriptions(self, group_id: str, topic: str) -> bool:
        """Whether consumers of the subscription of that name are attached: nobody else commits then."""
        subscriptions = self._around.subscriptions
        claims = self._claims.get((group_id, topic), {})
        if any(subscriptions.is_led_in(topic, partition, epoch) for partition, epoch in claims.items()):
            return True
        return subscriptions.is_attached(group_id, topic)

    def claim(self, name: OffsetKey, epoch: int) -> None:
        """Consumers are attached on the leader that a partition has in `epoch`, as long as it has that."""
        self._claims.setdefault((name.group_id, name.topic), {})[name.partition] = epoch

    def release(self, name: OffsetKey) -> None:
        """They are not any more."""
        claims = self._claims.get((name.group_id, name.topic), {})
        if claims.pop(name.partition, None) is not None and not claims:
            del self._claims[name.group_id, name.topic]

    def tombstones(self, group_id: str) -> list[KeyValue]:
        """The records that make everything forgotten which the group has committed or is about to."""
        names = {OffsetKey(group_id, topic, index) for topic, index, _ in self.committed(group_id)}
        names.update(self._pending.of_group(group_id))
        return [_tombstone(name) for name in sorted(names)]

    # --- how it is done

    def _may_commit(self, request: Commit, *, transactional: bool) -> ErrorCode:
        for topic in request.topics:
            if self.is_subscriptions(request.group_id, topic.name):
                return ErrorCode.unknown_member_id  # as of a group whose members are others
        return may_commit(self._groups.get(request.group_id), request, transactional=transactional)

    def _write(self, request: Commit, effects: Effects, now_ms: int, expires_ms: int) -> Outcome:
        # Nothing is replayed between a decision and its own records, so their numbers are known.
        metadata_max = self._around.config().metadata_max_bytes
        return write_commit(request, (self._replayed + 1, now_ms, expires_ms, metadata_max), effects)

    def _put_all(self, group_id: str, written: Sequence[Written]) -> None:
        """What replaying them would do."""
        subscriptions = self._around.subscriptions
        is_open = subscriptions.is_open(group_id)
        self._know(group_id)
        topics = self._committed.setdefault(group_id, {})
        for topic, partitions, kept in written:
            offsets = topics.setdefault(topic, {})
            for index, offset in zip(partitions, kept, strict=True):
                before = offsets.get(index)
                offsets[index] = offset
                if is_open or (before is not None and offset.offset < before.offset):
                    subscriptions.moved(OffsetKey(group_id, topic, index), offset.value)
            self._replayed += len(kept)

    def _pend_all(self, producer: Producer, group_id: str, written: Sequence[Written]) -> None:
        """As `_put_all`, of records in a transaction."""
        self._know(group_id)
        for topic, partitions, kept in written:
            for index, offset in zip(partitions, kept, strict=True):
                self._pending.put(producer.producer_id, OffsetKey(group_id, topic, index), offset)
            self._replayed += len(kept)

    def _delete_topic(self, group: Group, topic: TopicPartitions, effects: Effects) -> Answer:
        names = [OffsetKey(group.group_id, topic.name, index) for index in dict.fromkeys(topic.partitions)]
        in_use = group.is_subscribed_to(topic.name) or any(map(self._is_position, names))
        code = ErrorCode.group_subscribed_to_topic if in_use else ErrorCode.none
        if not in_use:
            effects.records.extend(
                _tombstone(name) for name in names if self._find(name) is not None or name in self._pending
            )
        answers = [{"partition_index": index, "error_code": code} for index in topic.partitions]
        return {"name": topic.name, "partitions": answers}

    def _is_position(self, name: OffsetKey) -> bool:
        committed = self._find(name)
        return self._around.subscriptions.has(name, "" if committed is None else committed.metadata)

    def _expire(self, group: Group, retention_ms: int, now_ms: int, effects: Effects) -> None:
        """Tombstones for the group's offsets that are too old, and for the group if nothing holds it."""
        old, kept = [], 0
        for topic, offsets in self._committed.get(group.group_id, {}).items():
            in_use = group.is_subscribed_to(topic)
            for index, offset in offsets.items():
                name = OffsetKey(group.group_id, topic, index)
                if (
                    in_use
                    or name in self._pending
                    or not _is_old(group, offset, retention_ms, now_ms)
                    or self._around.subscriptions.has(name, offset.metadata)
                ):
                    kept += 1
                else:
                    old.append(_tombstone(name))
        room = _TOMBSTONES_AT_ONCE - len(effects.records)
        effects.records.extend(old[:room])
        is_held = kept or self._pending.is_open(group.group_id) or group.kind is GroupKind.SHARE
        if len(old) < room and group.is_empty and not is_held:
            effects.records.extend(group.tombstones())

    def _fetched(self, request: Fetch, topic: TopicPartitions, index: int, offset: Numbered | None) -> Answer:
        answer: Answer = {
            "partition_index": index,
            "committed_offset": -1,
            "committed_leader_epoch": -1,
            "metadata": "",
            "error_code": ErrorCode.none,
        }
        if request.require_stable and OffsetKey(request.group_id, topic.name, index) in self._pending:
            answer["error_code"] = ErrorCode.unstable_offset_commit
        elif offset is not None and not _of_another_topic(offset.topic_id, topic.topic_id):
            answer["committed_offset"] = offset.offset
            answer["committed_leader_epoch"] = offset.leader_epoch
            answer["metadata"] = offset.metadata
        return answer

    def _find(self, name: OffsetKey) -> Numbered | None:
        return self._committed.get(name.group_id, {}).get(name.topic, {}).get(name.partition)

    def _put(self, name: OffsetKey, offset: Numbered) -> None:
        self._know(name.group_id)
        offsets = self._committed.setdefault(name.group_id, {}).setdefault(name.topic, {})
        before = offsets.get(name.partition)
        offsets[name.partition] = offset
        if not self._is_loaded:  # what an old log says of moves was seen to when they were made
            return
        is_back = before is not None and offset.offset < before.offset
        if is_back or self._around.subscriptions.is_open(name.group_id):
            self._around.subscriptions.moved(name, offset.value)

    def _know(self, group_id: str) -> None:
        if group_id not in self._groups:
            self._groups[group_id] = self._new_group(group_id)

    def _remove(self, name: OffsetKey) -> None:
        topics = self._committed.get(name.group_id, {})
        offsets = topics.get(name.topic, {})
        if offsets.pop(name.partition, None) is not None and not offsets:
            del topics[name.topic]
            if not topics:
                del self._committed[name.group_id]


def _is_old(group: Group, offset: Numbered, retention_ms: int, now_ms: int) -> bool:
    from_ms = group.ages_from(offset.committed_ms)
    if from_ms is None:
        return False
    return now_ms >= (offset.expires_ms if offset.expires_ms >= 0 else from_ms + retention_ms)


def _of_another_topic(stored: UUID | None, asked: UUID | None) -> bool:
    """The topic was deleted and made again since the commit."""
    return stored is not None and asked is not None and stored != asked


def _tombstone(name: OffsetKey) -> KeyValue:
    return KeyValue(write_offset_key(name), None)
