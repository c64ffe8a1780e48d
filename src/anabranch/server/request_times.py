"""Request times: how long requests of each API took, by stage, as Kafka cuts it.

    received ──> begun ───────> handled ────────> answered ──> sent
             queue       local           remote          response queue
    └──────────────────────────── total ────────────────────────┘

queue           behind other requests of the connection
local           the handler: reading, checking, appending, looking at logs
remote          what is waited for: replicas, a flush, records that come
response queue  the answers to requests before it

Small requests are answered by their handlers in less time than the first bucket has: these are only counted,
and their times added up.  Of others the stages are kept where there were any.  `stages` puts that together
when somebody asks.
"""

from anabranch.base.metrics import LATENCY_S, Histogram

QUICK_S = LATENCY_S[0]
"""The first bucket."""


class RequestTimes:
    """Of one API."""

    __slots__ = ("local", "queue", "quick", "quick_queue_s", "quick_s", "remote", "response_queue", "total")

    def __init__(self) -> None:
        self.quick = 0
        """Requests that waited for nothing and took less than `QUICK_S` from receipt to answer."""
        self.quick_s = self.quick_queue_s = 0.0
        """How long these took, and of that how long they were in the queue."""
        self.queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.response_queue = Histogram()
        self.total = Histogram()

    @property
    def requests(self) -> int:
        return self.quick + self.total.count

    def observe(
        self, received_s: float, begun_s: float, handled_s: float, answered_s: float, sent_s: float
    ) -> None:
        if begun_s > received_s:
            self.queue.observe(begun_s - received_s)
        self.local.observe(handled_s - begun_s)
        if answered_s > handled_s:
            self.remote.observe(answered_s - handled_s)
        if sent_s > answered_s:
            self.response_queue.observe(sent_s - answered_s)
        self.total.observe(sent_s - received_s)

    def stages(self) -> dict[str, Histogram]:
        """By stage, each with all requests."""
        requests, quick = self.requests, self.quick
        return {
            "requestqueue": _with(self.queue, requests - self.queue.count, self.quick_queue_s),
            "local": _with(self.local, quick, self.quick_s - self.quick_queue_s),
            "remote": _with(self.remote, requests - self.remote.count, 0.0),
            "responsequeue": _with(self.response_queue, requests - self.response_queue.count, 0.0),
            "total": _with(self.total, quick, self.quick_s),
        }


def _with(some: Histogram, quick: int, quick_s: float) -> Histogram:
    """`some`, and those that went through the stage in no time, or nearly."""
    whole = Histogram(some.bounds)
    whole.counts = [some.counts[0] + quick, *some.counts[1:]]
    whole.total = some.total + quick_s
    return whole


NOT_KEPT = RequestTimes()
"""Of requests that do not come through a connection."""


class Requests:
    """The times of all APIs of a node, by the names that Kafka's metrics have for them."""

    def __init__(self) -> None:
        self.by_name: dict[str, RequestTimes] = {}
        self.fetch_follower = self._named("FetchFollower")

    def of(self, api: str) -> RequestTimes:
        """Of an API, by the name of its handler: `offset_commit`."""
        name = "".join(word.capitalize() for word in api.split("_"))
        return self._named("FetchConsumer" if name == "Fetch" else name)

    def _named(self, name: str) -> RequestTimes:
        return self.by_name.setdefault(name, RequestTimes())
