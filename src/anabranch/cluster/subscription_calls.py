"""Subscription calls: what the owner of a topic asks the brokers that keep its subscriptions.

    StoredPositions ─> SubscriptionCalls ─┬─ the shard is here:  KeptSubscriptions
                                          └─ elsewhere:          Envelope (58) ─> KeptSubscriptions there

The state of a subscription is in a shard of `__subscription_state`, its position in the shard of the same
number of `__consumer_offsets`; each of the two may be led by any broker.  Calls carry the epoch in which the
owner leads its partition and a number that rises with every attempt.  A broker that has heard from a later
owner refuses an earlier one for good; a call that was overtaken by a later one of its subscription is refused
too, so that a write which was given up and comes late does not undo what came after it.
"""

import asyncio
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable
from random import Random
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints
from uuid import UUID

import msgspec

from anabranch.base.backoff import Backoff
from anabranch.base.errors import (
    AnabranchError,
    Conflict,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    Corrupt,
    FencedLeaderEpoch,
    NotOwner,
    TooLarge,
    Unavailable,
    UnknownTopic,
)
from anabranch.base.ids import BrokerId
from anabranch.client.answers import error_name, kind_of
from anabranch.client.requests import ENVELOPE, Request
from anabranch.groups.coordinator import GroupCoordinator
from anabranch.groups.effects import Effects, Token
from anabranch.groups.other_brokers import OtherBrokers
from anabranch.groups.positions import OWN, Position, commit_positions, delete_position, has_readers
from anabranch.groups.records import OffsetKey
from anabranch.groups.shard import GroupShard
from anabranch.groups.subscription_shard import StateChanges
from anabranch.groups.subscription_states import SubscriptionStates
from anabranch.groups.transaction_ids import TxnId
from anabranch.meta.image import NO_BROKER
from anabranch.wire.kafka.schema import ErrorCode

_HERE = BrokerId(0)
_KINDS: dict[int, type[AnabranchError]] = {
    int(ErrorCode.fenced_leader_epoch): FencedLeaderEpoch,
    int(ErrorCode.message_too_large): TooLarge,
}

ANY_EPOCH = -1
"""Of what is asked for no topic that is served."""
_PATIENCE_S, _LAST_PATIENCE_S = 10.0, 2.0
_ASK_S = 5.0
_MOST_STAMPS = 100_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5

MOST_NAMES = 10_000
"""Of one question."""

Shards = set[Annotated[int, msgspec.Meta(ge=0)]]
"""A set, or one client could have the same shard read without end."""
Place = tuple[str, int]
"""A partition, by the name of its topic and its index."""


class Stamp(NamedTuple):
    """Who writes for a partition, and which attempt it is."""

    epoch: int
    number: int


class State(NamedTuple):
    """What is kept of a subscription, its position apart."""

    document: bytes
    floor: int | None
    chunks: dict[int, bytes]


class Committed(NamedTuple):
    """A group's committed offset, -1 if there is none."""

    offset: int
    is_own: bool
    topic_id: UUID | None
    is_read: bool
    """Members of the group read the topic."""


class KeptSubscriptions:
    """The subscriptions whose shards this broker leads."""

    def __init__(
        self, groups: GroupCoordinator, states: SubscriptionStates, epoch_of: Callable[[str, int], int]
    ) -> None:
        """`epoch_of`: the leader epoch of a partition, as far as this broker knows."""
        self.groups = groups
        self.states = states
        self._epoch_of = epoch_of
        self._owners: dict[Place, int] = {}
        self._stamps: OrderedDict[OffsetKey, Stamp] = OrderedDict()

    def check_owner(self, place: Place, epoch: int) -> None:
        """FencedLeaderEpoch if there is a later owner."""
        if epoch == ANY_EPOCH:
            return
        known = self._owners.get(place, ANY_EPOCH)
        if known < epoch:  # the first that is heard of it
            led = self._epoch_of(*place)
            if led == ANY_EPOCH:
                raise CoordinatorNotAvailable(f"partition {place[0]}-{place[1]} is not known here yet")
            known = max(known, led)
        if epoch < known:
            raise FencedLeaderEpoch(f"{place[0]}-{place[1]} has a later leader, of epoch {known}")
        self._owners[place] = epoch

    def check(self, name: OffsetKey, stamp: Stamp) -> None:
        """As `check_owner`.  Conflict if a later attempt to write has come already."""
        self.check_owner((name.topic, name.partition), stamp.epoch)
        if stamp.epoch == ANY_EPOCH:
            return
        if stamp < self._stamps.get(name, stamp):
            raise Conflict(f"{name}: overtaken by a later write")
        self._stamps[name] = stamp
        self._stamps.move_to_end(name)
        if len(self._stamps) > _MOST_STAMPS:  # of what was written so long ago nothing is on its way
            self._stamps.popitem(last=False)

    def topics_deleted(self, names: Iterable[str]) -> None:
        gone = set(names)
        self._owners = {place: kept for place, kept in self._owners.items() if place[0] not in gone}
        self._stamps = OrderedDict(item for item in self._stamps.items() if item[0].topic not in gone)

    async def answer(self, data: bytes) -> bytes:
        """What another broker asks.  Corrupt if it is no call."""
        try:
            call = _calls.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Corrupt(f"not a call about subscriptions: {error}") from error
        try:
            return _encode(await self.carry_out(call))
        except struct.error as error:  # before anything was written
            raise Corrupt(f"a number in a call about subscriptions is too large: {error}") from error

    async def carry_out(self, call: "_Call") -> Any:
        try:
            return await call.run(self)
        except UnknownTopic as error:  # of the shard's: it has just been made, and is not known here yet
            raise CoordinatorNotAvailable(str(error)) from error


# --- calls


class _Call(msgspec.Struct, tag=True, array_like=True, frozen=True):
    async def run(self, kept: KeptSubscriptions) -> Any:
        raise NotImplementedError


class ReadStates(_Call, frozen=True):
    """The subscriptions of a partition in some shards, by name."""

    topic: str
    partition: int
    epoch: int
    shards: Shards

    async def run(self, kept: KeptSubscriptions) -> dict[str, State]:
        kept.check_owner((self.topic, self.partition), self.epoch)
        found = await kept.states.of_shards(self.topic, self.partition, self.shards)
        return {
            group: State(state.document, state.floor, dict(state.chunks))
            for group, state in found.items()
            if state.document is not None
        }


class ReadNames(_Call, frozen=True):
    """Every subscription in some shards."""

    shards: Shards

    async def run(self, kept: KeptSubscriptions) -> list[OffsetKey]:
        return await kept.states.names(self.shards)


class ReadCommitted(_Call, frozen=True):
    """Where groups of one shard are, each with a partition."""

    names: Annotated[list[OffsetKey], msgspec.Meta(min_length=1, max_length=MOST_NAMES)]
    epoch: int
    """Of the owner, if they are about one partition."""

    async def run(self, kept: KeptSubscriptions) -> list[Committed]:
        kept.check_owner(self.names[0][1:], self.epoch)

        def seen(shard: GroupShard) -> list[Committed]:
            return [_committed(shard, name) for name in self.names]

        return await kept.groups.ask(self.names[0].group_id, seen)


class Written(NamedTuple):
    position: Position
    stamp: Stamp
    is_attached: bool
    """Consumers are, so nobody else moves it."""


class WritePositions(_Call, frozen=True):
    """Of one shard.  Answers those that were refused: members of the group read the topic."""

    written: Annotated[list[Written], msgspec.Meta(min_length=1)]

    async def run(self, kept: KeptSubscriptions) -> list[OffsetKey]:
        def commit(shard: GroupShard, token: Token, now_ms: int) -> Effects:
            for position, stamp, is_attached in self.written:
                kept.check(position.name, stamp)
                if is_attached:
                    shard.offsets.claim(position.name, stamp.epoch)
            return commit_positions(shard, [one.position for one in self.written], token, now_ms)

        answer = await kept.groups.submit(self.written[0].position.name.group_id, commit)
        return list(answer["refused"])


class Claim(_Call, frozen=True):
    """The first consumer attaches (before it is looked whether members read), or the last has left."""

    name: OffsetKey
    stamp: Stamp
    is_attached: bool

    async def run(self, kept: KeptSubscriptions) -> None:
        shard = await kept.groups.look(self.name.group_id)
        kept.check(self.name, self.stamp)
        if not self.is_attached:
            shard.offsets.release(self.name)
        elif not has_readers(shard, self.name.group_id, self.name.topic):
            shard.offsets.claim(self.name, self.stamp.epoch)


class DeletePosition(_Call, frozen=True):
    name: OffsetKey
    stamp: Stamp

    async def run(self, kept: KeptSubscriptions) -> None:
        def delete(shard: GroupShard, token: Token, now_ms: int) -> Effects:
            kept.check(self.name, self.stamp)
            shard.offsets.release(self.name)
            return delete_position(shard, self.name, token)

        await kept.groups.submit(self.name.group_id, delete)


class DeleteState(_Call, frozen=True):
    name: OffsetKey
    stamp: Stamp

    async def run(self, kept: KeptSubscriptions) -> None:
        kept.check(self.name, self.stamp)
        await kept.states.delete(self.name)


class WriteDocument(_Call, frozen=True):
    name: OffsetKey
    stamp: Stamp
    document: bytes
    new: bool

    async def run(self, kept: KeptSubscriptions) -> None:
        kept.check(self.name, self.stamp)
        await kept.states.write_document(self.name, self.document, new=self.new)


class WriteChunks(_Call, frozen=True):
    """Of one shard."""

    changes: Annotated[list[tuple[StateChanges, Stamp]], msgspec.Meta(min_length=1)]

    async def run(self, kept: KeptSubscriptions) -> None:
        for change, stamp in self.changes:
            kept.check(change.name, stamp)
        await kept.states.write_chunks([change for change, _ in self.changes])


class ReadSnapshot(_Call, frozen=True):
    topic: str
    partition: int
    epoch: int
    topic_id: UUID

    async def run(self, kept: KeptSubscriptions) -> bytes | None:
        kept.check_owner((self.topic, self.partition), self.epoch)
        return await kept.states.snapshot_of((self.topic, self.partition), self.topic_id)


class WriteSnapshot(_Call, frozen=True):
    topic: str
    partition: int
    stamp: Stamp
    topic_id: UUID
    snapshot: bytes | None

    async def run(self, kept: KeptSubscriptions) -> None:
        kept.check(OffsetKey("", self.topic, self.partition), self.stamp)
        await kept.states.write_snapshot((self.topic, self.partition), self.topic_id, self.snapshot)


class PendingAcks(NamedTuple):
    txn: TxnId
    acks: dict[int, bytes]


class ReadPendingAcks(_Call, frozen=True):
    name: OffsetKey

    async def run(self, kept: KeptSubscriptions) -> list[PendingAcks]:
        found = await kept.states.pending_acks(self.name)
        return [PendingAcks(txn, acks) for txn, acks in found.items()]


class DropPendingAcks(_Call, frozen=True):
    name: OffsetKey
    txn: TxnId

    async def run(self, kept: KeptSubscriptions) -> None:
        await kept.states.drop_pending_acks(self.name, self.txn)


_Any = (
    ReadStates
    | ReadNames
    | ReadCommitted
    | WritePositions
    | Claim
    | DeletePosition
    | DeleteState
    | WriteDocument
    | WriteChunks
    | ReadSnapshot
    | WriteSnapshot
    | ReadPendingAcks
    | DropPendingAcks
)
_calls: msgspec.msgpack.Decoder[_Any] = msgspec.msgpack.Decoder(_Any)
_encode = msgspec.msgpack.Encoder().encode
_ANSWERS: dict[type[_Call], Any] = {
    kind: msgspec.msgpack.Decoder(get_type_hints(kind.run)["return"]) for kind in get_args(_Any)
}


def _committed(shard: GroupShard, name: OffsetKey) -> Committed:
    is_read = has_readers(shard, name.group_id, name.topic)
    found = shard.offsets.find(name)
    if found is None:
        return Committed(-1, False, None, is_read)
    return Committed(max(0, found.offset), found.metadata == OWN, found.topic_id, is_read)


# --- the way


class SubscriptionCalls:
    def __init__(self, kept: KeptSubscriptions, brokers: OtherBrokers | None, random: Random) -> None:
        """`brokers`: None if there are no others."""
        self.kept = kept
        self._brokers = brokers
        self._random = random
        self._attempts = 0
        self._last_s = float("inf")

    @property
    def are_all_here(self) -> bool:
        return self._brokers is None

    async def ask(self, topic: str, index: int, call: Callable[[int], Any]) -> Any:
        """The answer of whoever leads a shard to `call(the number of the attempt)`."""
        (answer,) = await self.ask_each(topic, [index], lambda _, number: call(number))
        return answer

    async def ask_each(
        self, topic: str, shards: Iterable[int], call: Callable[[list[int], int], Any]
    ) -> list[Any]:
        """The answers of all who lead some of the shards, each asked about its own.

        Who moves, or does not answer, is asked again for `_PATIENCE_S`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_S
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, self._random)
        answers: list[Any] = []
        left = list(shards)
        while left:
            led = self._by_leader(topic, left)
            outcomes = await asyncio.gather(
                *[self._try(broker, topic, call(mine, self._next())) for broker, mine in led.items()],
                return_exceptions=True,
            )
            left = []
            for (broker, mine), outcome in zip(led.items(), outcomes, strict=True):
                if not isinstance(outcome, BaseException):
                    answers.append(outcome)
                    continue
                if not self._may_pass(broker, outcome) or loop.time() > min(deadline, self._last_s):
                    raise outcome
                left += mine
            if left:
                await asyncio.sleep(backoff.next_s())
        return answers

    def _by_leader(self, topic: str, shards: list[int]) -> dict[BrokerId, list[int]]:
        led: dict[BrokerId, list[int]] = {}
        for index in shards:
            led.setdefault(self.leader_of(topic, index), []).append(index)
        return led

    def leader_of(self, topic: str, index: int) -> BrokerId:
        return _HERE if self._brokers is None else self._brokers.leader_of(topic, index)

    def _next(self) -> int:
        self._attempts += 1
        return self._attempts

    async def _try(self, broker: BrokerId, topic: str, call: _Call) -> Any:
        brokers = self._brokers
        if brokers is None:
            return await self.kept.carry_out(call)
        if broker == brokers.me:
            return await self._try_here(topic, call)
        if broker == NO_BROKER:
            raise CoordinatorNotAvailable(f"a shard of {topic} has no leader now")
        request = Request(
            ENVELOPE, {"request_data": _encode(call), "request_principal": None, "client_host_address": b""}
        )
        answer = await brokers.ask(broker, request, _ASK_S)
        data = b"" if answer.response_data is None else bytes(answer.response_data)
        if answer.error_code:
            kind = _KINDS.get(answer.error_code) or kind_of(answer.error_code)
            raise kind(data.decode() or f"broker {broker} says {error_name(answer.error_code)}")
        try:
            return _ANSWERS[type(call)].decode(data)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"broker {broker} gave no answer about subscriptions: {error}") from error

    async def _try_here(self, topic: str, call: _Call) -> Any:
        """As elsewhere, no longer: a shard may wait for its replicas, and these for this broker's stop."""
        try:
            async with asyncio.timeout(_ASK_S):
                return await self.kept.carry_out(call)
        except TimeoutError as error:
            raise CoordinatorLoading(
                f"a shard of {topic} takes long, it may wait for its replicas"
            ) from error

    def _may_pass(self, broker: BrokerId, error: BaseException) -> bool:
        """Whether it is worth asking again."""
        if self._brokers is None:
            return False
        if broker == self._brokers.me:
            return isinstance(error, NotOwner | Conflict | CoordinatorLoading | CoordinatorNotAvailable)
        return isinstance(error, Unavailable | NotOwner | Corrupt | Conflict)

    def hurry(self) -> None:
        """The broker stops: others may be gone already, and nobody waits for them much longer."""
        self._last_s = asyncio.get_running_loop().time() + _LAST_PATIENCE_S

    def close(self) -> None:
        if self._brokers is not None:
            self._brokers.close()
