"""Asyncio client: what brokers ask other brokers with.

    client = AsyncClient(Settings("b1:9092"), network, clock, random)
    await client.send(Address("b2", 9092), fetch, timeout_s=5)

Any number of coroutines may ask at once.  Requests to one broker share a connection and go out in the order
of the calls; their waits overlap.  Whoever is cancelled leaves the connection as it is: the answer comes and
is dropped.  One that does not come in time ends the connection, since all behind it wait for it.  For the
same reason who asks what waits at the broker (Fetch) has a client to itself.

Memory is bounded: a connection takes no further request while `_MOST_UNSENT_BYTES` have not left, and an
answer is as large as its request allows (`frames`).  Answers have memory of their own; the records of a Fetch
are views into it.

Network, clock and chance are passed in.
"""

import asyncio
from random import Random
from typing import Any

from anabranch.base.backoff import Backoff
from anabranch.base.clock import Clock
from anabranch.base.errors import AnabranchError, Corrupt, Unavailable, UnknownTopic
from anabranch.base.network import Link, Network
from anabranch.client.destinations import Address, To, addresses
from anabranch.client.protocol import ClientProtocol
from anabranch.client.requests import Request
from anabranch.client.routing import Routing
from anabranch.client.sending import Ask, Lookup, Pace, Step, Steps, looking_up, sending
from anabranch.client.settings import CONNECT_S, FIRST_PAUSE_S, LONGEST_PAUSE_S, Settings

_MOST_UNSENT_BYTES = 8 << 20


class AsyncClient:
    def __init__(self, settings: Settings, network: Network, clock: Clock, random: Random) -> None:
        self.routing = Routing(addresses(settings.bootstrap) if settings.bootstrap else [])
        self._settings = settings
        self._network = network
        self._clock = clock
        self._random = random
        self._connections: dict[Address, AsyncConnection] = {}
        self._opening: dict[Address, asyncio.Future[None]] = {}
        self._looking: dict[To, asyncio.Future[None]] = {}
        self._closed = False

    async def send(self, to: To, request: Request, timeout_s: float | None = None) -> Any:
        """The answer to `request`.  Unavailable when `timeout_s`, or the settings', is over."""
        most_s = self._settings.timeout_s if timeout_s is None else timeout_s
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, self._random)
        pace = Pace(self._clock.monotonic, most_s, backoff, self._settings.topics_come_s)
        return await self._take(sending(to, request, self.routing, pace), pace)

    async def ask(self, address: Address, request: Request, timeout_s: float) -> Any:
        """The answer of the broker at `address`, asked once.  Unavailable or Corrupt if there is none."""
        deadline = self._clock.monotonic() + timeout_s
        connection = await self._connection(address, timeout_s)
        return await connection.ask(request, max(0.0, deadline - self._clock.monotonic()))

    async def _take(self, steps: Steps, pace: Pace) -> Any:
        """What the steps come to."""
        result: Any = None
        failure: AnabranchError | None = None
        while True:
            try:
                step = steps.send(result) if failure is None else steps.throw(failure)
            except StopIteration as done:
                return done.value
            result = failure = None
            try:
                result = await self._do(step, pace)
            except (Unavailable, Corrupt, UnknownTopic) as error:
                failure = error

    async def _do(self, step: Step, pace: Pace) -> Any:
        if isinstance(step, Ask):
            return await self.ask(step.address, step.request, min(pace.left_s(), step.most_s))
        if isinstance(step, Lookup):
            return await self._look_up(step.to, pace)
        return await asyncio.sleep(step.seconds)

    async def _look_up(self, to: To, pace: Pace) -> None:
        """Look `to` up; those who come while somebody does so wait for that."""
        if (underway := self._looking.get(to)) is not None:
            await _over(underway, pace.left_s())
            return
        self._looking[to] = asyncio.get_running_loop().create_future()
        try:
            await self._take(looking_up(to, self.routing), pace)
        finally:
            self._looking.pop(to).set_result(None)

    async def _connection(self, address: Address, left_s: float) -> "AsyncConnection":
        deadline = self._clock.monotonic() + left_s
        while True:
            if self._closed:
                raise Unavailable("the client is closed")
            known = self._connections.get(address)
            if known is not None and known.is_open:
                return known
            if (underway := self._opening.get(address)) is None:
                return await self._open(address, min(CONNECT_S, left_s))
            await _over(underway, deadline - self._clock.monotonic())

    async def _open(self, address: Address, timeout_s: float) -> "AsyncConnection":
        self._opening[address] = asyncio.get_running_loop().create_future()
        opened = AsyncConnection(address, self._settings.client_id)
        try:
            await self._network.connect(address.host, address.port, opened, timeout_s)
            await opened.greet(timeout_s)
        except BaseException:
            opened.close()
            raise
        finally:
            self._opening.pop(address).set_result(None)
        if self._closed:
            opened.close()
            raise Unavailable("the client is closed")
        self._connections[address] = opened
        return opened

    def close(self) -> None:
        """Whoever waits for an answer gets Unavailable."""
        self._closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


async def _over(underway: "asyncio.Future[None]", left_s: float) -> None:
    """Wait until what somebody else has begun is over."""
    try:
        async with asyncio.timeout(max(0.0, left_s)):
            await asyncio.shield(underway)
    except TimeoutError as error:
        raise Unavailable("what others wait for, too, is not over in time") from error


class AsyncConnection:
    """A connection to one broker: the upper half of a link."""

    def __init__(self, address: Address, client_id: str) -> None:
        self._address = address
        self._protocol = ClientProtocol(client_id)
        self._link: Link | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._room: asyncio.Future[None] | None = None
        self.is_open = False

    # --- the link's side

    def opened(self, link: Link) -> None:
        self._link = link
        self.is_open = True

    def buffer(self) -> memoryview:
        return self._protocol.buffer()

    def received(self, size: int) -> None:
        protocol = self._protocol
        protocol.received(size)
        try:
            while (answered := protocol.next_answer()) is not None:
                waiting = self._waiting.pop(answered[0])
                if not waiting.done():
                    waiting.set_result(answered[1])
        except Corrupt as error:
            self._fail(Corrupt(f"{self._address}: {error}"))

    def drained(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    def closed(self) -> None:
        self._fail(Unavailable(f"{self._address} closed the connection"))

    # --- the client's side

    async def greet(self, timeout_s: float) -> None:
        """The versions are known afterwards."""
        await self._exchange(self._protocol.first, timeout_s)

    async def ask(self, request: Request, timeout_s: float) -> Any:
        """Its answer.  Unavailable if the connection is lost before, or the time is over."""
        if self._link is not None and self._link.unsent > _MOST_UNSENT_BYTES:
            await self._drain(timeout_s)
        return await self._exchange(request, timeout_s)

    async def _exchange(self, request: Request, timeout_s: float) -> Any:
        if not self.is_open or self._link is None:
            raise Unavailable(f"{self._address} closed the connection")
        number, data = self._protocol.send(request)
        if not request.is_answered:
            self._link.send([data])
            return None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._link.send([data])
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            failure = Unavailable(f"{self._address} gave no answer within {timeout_s:g} s")
            self._fail(failure)
            raise failure from error

    async def _drain(self, timeout_s: float) -> None:
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._room)
        except TimeoutError as error:
            raise Unavailable(f"{self._address} does not take requests") from error

    def close(self) -> None:
        self._fail(Unavailable("the client is closed"))

    def _fail(self, error: AnabranchError) -> None:
        """The connection is of no use any more."""
        self.is_open = False
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.done():
                one.set_exception(error)
        self.drained()
        if self._link is not None:
            link, self._link = self._link, None
            link.abort()
