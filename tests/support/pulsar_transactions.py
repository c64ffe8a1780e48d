"""A client of Pulsar's transactions, frame by frame: in memory (`pulsar_wire`) or over a socket.

    who = Transacting(client)
    txn = await who.begin()                       # NEW_TXN
    await who.send(txn, 1, b"a")                  # ADD_PARTITION_TO_TXN once, SEND
    await who.ack(txn, 7, message_id)             # ADD_SUBSCRIPTION_TO_TXN once, ACK
    await who.end(txn, commit=True)               # END_TXN

An answer that is a refusal raises `Refused` with its code.
"""

from itertools import count
from typing import Any

from anabranch.groups.transaction_ids import TxnId
from anabranch.wire.pulsar import commands_pb2 as pb
from tests.support.entries import batch_of, entry_of
from tests.support.pulsar_socket import SocketClient
from tests.support.pulsar_wire import Client

C = pb.BaseCommand
MINUTE_MS = 60_000


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{pb.ServerError.Name(code)}: {message}")
        self.code = code


class Transacting:
    def __init__(self, client: Client | SocketClient) -> None:
        self.client = client
        self.requests = count(1000)
        self._producers: dict[int, str] = {}
        self._consumers: dict[int, tuple[str, str]] = {}
        self._sequences = count()
        self._told: set[tuple[TxnId, object]] = set()

    # --- without a transaction

    async def produce(self, id: int, topic: str, **fields: Any) -> None:
        _check(
            await self.client.ask(
                C.PRODUCER, topic=topic, producer_id=id, request_id=next(self.requests), **fields
            )
        )
        self._producers[id] = topic

    async def consume(
        self, id: int, topic: str, subscription: str = "s", kind: int = 0, permits: int = 100, **fields: Any
    ) -> None:
        told = {"topic": topic, "subscription": subscription, "initial_position": 1, **fields}
        request_id = next(self.requests)
        _check(await self.client.ask(C.SUBSCRIBE, type=kind, consumer_id=id, request_id=request_id, **told))
        self._consumers[id] = topic, subscription
        if permits:
            self.client.tell(C.FLOW, consumer_id=id, message_permits=permits)

    async def received(self) -> tuple[pb.MessageId, bytes]:
        """The next message: its id, and the last byte of what it holds."""
        said = await self.client.message()
        assert said.entry is not None
        return said.command.message.message_id, bytes(said.entry[-1:])

    async def plain(self, id: int, *values: bytes) -> pb.MessageId:
        return await self._sent(id, values, {})

    # --- within one

    async def begin(self, timeout_ms: int = MINUTE_MS, coordinator: int = 0) -> TxnId:
        answer = await self._ask(C.NEW_TXN, ttl_ms=timeout_ms, coordinator_id=coordinator)
        return TxnId(answer.txnid_most_bits, answer.txnid_least_bits)

    async def send(self, txn: TxnId, id: int, *values: bytes) -> pb.MessageId:
        """One entry: a message, or a batch of several."""
        topic = self._producers[id]
        if (txn, topic) not in self._told:
            await self._ask(C.ADD_PARTITION_TO_TXN, partitions=[topic], **_bits(txn))
            self._told.add((txn, topic))
        return await self._sent(id, values, _bits(txn))

    async def _sent(self, id: int, values: tuple[bytes, ...], bits: dict[str, int]) -> pb.MessageId:
        entry = entry_of(values[0], **bits) if len(values) == 1 else batch_of(*values, **bits)
        self.client.tell(C.SEND, entry, producer_id=id, sequence_id=next(self._sequences), **bits)
        while True:
            said = await self.client.wait_for(
                lambda said: said.command.type in (C.SEND_RECEIPT, C.SEND_ERROR)
            )
            if said.command.type == C.SEND_ERROR:
                raise Refused(said.command.send_error.error, said.command.send_error.message)
            return said.command.send_receipt.message_id

    async def ack(self, txn: TxnId, id: int, *ids: pb.MessageId, cumulative: bool = False) -> None:
        topic, subscription = self._consumers[id]
        if (txn, (topic, subscription)) not in self._told:
            told = pb.TransactionSubscription(topic=topic, subscription=subscription)
            await self._ask(C.ADD_SUBSCRIPTION_TO_TXN, subscription=[told], **_bits(txn))
            self._told.add((txn, (topic, subscription)))
        kind = pb.Ack.Cumulative if cumulative else pb.Ack.Individual
        answer = await self.client.ask(
            C.ACK, consumer_id=id, type=kind, message_id=ids, request_id=next(self.requests), **_bits(txn)
        )
        _check(answer)

    async def end(self, txn: TxnId, *, commit: bool) -> None:
        await self._ask(C.END_TXN, action=pb.COMMIT if commit else pb.ABORT, **_bits(txn))

    async def _ask(self, type: int, **fields: Any) -> pb.TransactionResponse:
        return _check(await self.client.ask(type, request_id=next(self.requests), **fields))


def _bits(txn: TxnId) -> dict[str, int]:
    return {"txnid_most_bits": txn.coordinator, "txnid_least_bits": txn.number}


def _check(answer: C) -> Any:
    message = getattr(answer, C.DESCRIPTOR.fields_by_number[answer.type].name)
    if "error" in message.DESCRIPTOR.fields_by_name and message.HasField("error"):
        raise Refused(message.error, message.message)
    return message
