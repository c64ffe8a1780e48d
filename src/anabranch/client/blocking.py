"""The client for programs that wait: Spark's tasks and drivers, the command line.

    with Client(Settings("127.0.0.1:9092")) as client:
        client.send(ANY, request)               the answer, looked up and tried again as `sending` says
        client.send(Leader(partition), request)

        first = client.start(to, request)       or several on their way, in order:
        second = client.start(to, request)      the broker works on the second
        first.take(timeout_s)                   while we work on the first; these are not tried again,
        client.persist(lambda: ...)             unless by the caller, as long as there is time

One connection per broker, in the thread that asks.  Records that are fetched use the same memory again: what
`take` gave may not be looked at once the next answer is taken.
"""

import socket
import time
from collections import deque
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from anabranch.base.backoff import Backoff
from anabranch.base.errors import AnabranchError, Corrupt, Unavailable, UnknownTopic
from anabranch.client.destinations import ANY, Address, AnyBroker, To, addresses
from anabranch.client.protocol import ClientProtocol
from anabranch.client.requests import Request
from anabranch.client.routing import Routing
from anabranch.client.sending import Ask, Lookup, Pace, Step, Steps, looking_up, metadata, sending
from anabranch.client.settings import CONNECT_S, FIRST_PAUSE_S, LONGEST_PAUSE_S, Settings

T = TypeVar("T")

_LEAST_S = 0.001  # a timeout of 0 would make a socket that does not wait at all
Dial = Callable[[Address, float], socket.socket]


def dial(address: Address, timeout_s: float) -> socket.socket:
    """A socket connected to `address`.  One that encrypts goes here."""
    connected = socket.create_connection(address, timeout_s)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


class Client:
    def __init__(
        self,
        settings: Settings,
        dial: Dial = dial,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Random | None = None,
    ) -> None:
        self.routing = Routing(addresses(settings.bootstrap))
        self.settings = settings
        self._dial = dial
        self._monotonic = monotonic
        self._sleep = sleep
        self._random = random or Random()
        self._connections: dict[Address, Connection] = {}

    def send(self, to: To, request: Request, timeout_s: float | None = None) -> Any:
        """The answer to `request`.  Unavailable when `timeout_s`, or the settings', is over."""
        pace = self.pace(timeout_s)
        return self._take(sending(to, request, self.routing, pace), pace)

    def metadata(self, topics: list[str] | None, *, create: bool = False) -> Any:
        """What any broker says of `topics`, of all if None.  Their leaders are known from then on."""
        answer = self.send(ANY, metadata(topics, create=create))
        self.routing.learn(answer)
        return answer

    def start(self, to: To, request: Request) -> "Pending":
        """`request` goes out, behind those before it.  Tried once: Unavailable if it cannot now."""
        address = self.locate(to)
        try:
            return self._connection(address, self.settings.timeout_s).start(request)
        except Unavailable:
            self.routing.lost(address)
            raise

    def locate(self, to: To) -> Address:
        """Where `to` is now.  Unavailable if nobody knows."""
        if isinstance(to, AnyBroker):
            return self.routing.candidates()[0]
        address = self.routing.address_of(to)
        if address is None:
            pace = self.pace(None)
            self._take(looking_up(to, self.routing), pace)
            address = self.routing.address_of(to)
        if address is None:
            raise Unavailable(f"there is no {str(to).removeprefix('the ')} now")
        return address

    def persist(self, ask: Callable[[], T], timeout_s: float | None = None) -> T:
        """What `ask` returns, asked again while it raises Unavailable and there is time.

        Who serves what is looked up again in between.
        """
        pace = self.pace(timeout_s)
        while True:
            try:
                return ask()
            except Unavailable as error:
                self.pause(pace, error)
            except UnknownTopic as error:
                if not pace.topic_may_come():
                    raise
                self.pause(pace, error)

    def pause(self, pace: Pace, error: Unavailable | UnknownTopic) -> None:
        """Wait before the next try, in which all is looked up again.  Raises `error` if time is up."""
        step = pace.pause(error)
        self.routing.expire_all()
        self._sleep(step.seconds)

    def pace(self, timeout_s: float | None = None) -> Pace:
        """For tries that are the caller's own: see `pause`."""
        most_s = self.settings.timeout_s if timeout_s is None else timeout_s
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, self._random)
        return Pace(self._monotonic, most_s, backoff, self.settings.topics_come_s)

    def _take(self, steps: Steps, pace: Pace) -> Any:
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
                result = self._do(step, pace)
            except (Unavailable, Corrupt, UnknownTopic) as error:
                failure = error

    def _do(self, step: Step, pace: Pace) -> Any:
        if isinstance(step, Ask):
            began = self._monotonic()
            most_s = min(pace.left_s(), step.most_s)
            pending = self._connection(step.address, most_s).start(step.request, max(most_s, _LEAST_S))
            left_s = most_s - (self._monotonic() - began)
            return pending.take(max(left_s, _LEAST_S)) if step.request.is_answered else None
        if isinstance(step, Lookup):
            return self._take(looking_up(step.to, self.routing), pace)
        return self._sleep(step.seconds)

    def _connection(self, address: Address, left_s: float) -> "Connection":
        known = self._connections.get(address)
        if known is None or not known.is_open:
            timeout_s = max(min(CONNECT_S, left_s), _LEAST_S)
            known = Connection(address, self.settings.client_id, self._dial, self._monotonic, timeout_s)
            self._connections[address] = known
            known.greet(max(left_s, _LEAST_S))
        return known

    def close(self) -> None:
        """Answers that are due do not come any more; whoever asks again connects again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Pending:
    """A request that is on its way."""

    __slots__ = ("_connection", "answer", "is_there", "request")

    def __init__(self, connection: "Connection", request: Request) -> None:
        self._connection = connection
        self.request = request
        self.is_there = False
        self.answer: Any = None

    def take(self, timeout_s: float) -> Any:
        """Its answer, waited for.  Unavailable if the connection is lost before."""
        if not self.is_there:
            self._connection.receive(self, timeout_s)
        return self.answer


class Connection:
    """A connection to one broker."""

    def __init__(
        self, address: Address, client_id: str, dial: Dial, monotonic: Callable[[], float], timeout_s: float
    ) -> None:
        self._address = address
        self._monotonic = monotonic
        self._protocol = ClientProtocol(client_id)
        self._pending: deque[Pending] = deque()
        self.is_open = False
        try:
            self._socket = dial(address, timeout_s)
        except OSError as error:
            raise Unavailable(f"{address} cannot be reached: {error}") from error
        self.is_open = True

    def greet(self, timeout_s: float) -> None:
        """The versions are known afterwards."""
        self.start(self._protocol.first, timeout_s).take(timeout_s)

    def start(self, request: Request, timeout_s: float | None = None) -> Pending:
        """`request` goes out."""
        data = self._protocol.send(request)[1]
        pending = Pending(self, request)
        if request.is_answered:
            self._pending.append(pending)
        self._write(data, timeout_s)
        return pending

    def _write(self, data: bytearray, timeout_s: float | None) -> None:
        try:
            if timeout_s is not None:
                self._socket.settimeout(timeout_s)
            self._socket.sendall(data)
        except OSError as error:
            self.close()
            raise Unavailable(f"{self._address} does not take a request: {error}") from error

    def receive(self, wanted: Pending, timeout_s: float) -> None:
        """Take answers up to that to `wanted`."""
        if not self.is_open:
            raise Unavailable(f"{self._address} closed the connection")
        deadline = self._monotonic() + timeout_s
        self._socket.settimeout(timeout_s)
        try:
            while not wanted.is_there:
                # Whose answer waits for others must not share their memory.
                self._protocol.reuse_memory(self._pending[0] is wanted)
                answered = self._protocol.next_answer()
                if answered is not None:
                    pending = self._pending.popleft()
                    pending.answer, pending.is_there = answered[1], True
                else:
                    self._read(deadline)
        except BaseException:
            self.close()
            raise

    def _read(self, deadline: float) -> None:
        try:
            count = self._socket.recv_into(self._protocol.buffer())
        except OSError as error:
            raise Unavailable(f"{self._address} does not answer: {error}") from error
        if not count:
            raise Unavailable(f"{self._address} closed the connection")
        self._protocol.received(count)
        if self._monotonic() > deadline:
            raise Unavailable(f"{self._address} does not answer: timed out")

    def close(self) -> None:
        self.is_open = False
        self._socket.close()
