"""Metric families: what is measured, by the names that operators know from Kafka's JMX exporter and Pulsar.

    kafka.server:type=ReplicaManager,name=IsrShrinksPerSec   kafka_server_replicamanager_isrshrinks_total
    kafka.network:type=RequestMetrics,name=TotalTimeMs       kafka_network_requestmetrics_totaltimems_bucket

What neither of them has is called `anabranch_...`.  docs/metrics.md says what each means, and a test keeps it
in step: so every family is there, whether it has a sample or not.

Labels are few: an API, a listener, a broker; a topic for as many as `anabranch.metrics.max.topics` allows.
Nothing is told by client or by partition.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from anabranch import __version__
from anabranch.admin.measured import Measured, Standing
from anabranch.base.metrics import Histogram
from anabranch.meta.session import SessionState
from anabranch.partition.traffic import Counts
from anabranch.topics.registry import AnyTopic
from anabranch.topics.topic import Topic

_TOPICS = "kafka_server_brokertopicmetrics_"
_REQUESTS = "kafka_network_requestmetrics_"
_REPLICAS = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_ELECTIONS = "kafka_controller_controllerstats_"
_SESSION = "kafka_server_sessionexpirelistener_"
_SOCKETS = "kafka_server_socket_server_metrics_"

_IDLE, _BROKERS_CHANGED = 0, 2  # of Kafka's ControllerState


class _Collected(Collector):
    def __init__(self, found: Sequence[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def text_of(found: Sequence[Metric]) -> str:
    """`found`, and what the system says of the process, for which it may have to be waited."""
    registry = CollectorRegistry()
    registry.register(_Collected(found))
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()


def families(measured: Measured, found: Standing, most_topics: int) -> Iterator[Metric]:
    yield from _traffic(measured, found, most_topics)
    yield from _requests(measured)
    yield from _replicas(measured, found)
    yield from _controller(measured, found)
    yield from _session(measured)
    yield from _node(measured)
    yield from _pulsar(measured)


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help, value=value)


def _counter(name: str, help: str, value: float) -> Metric:
    return CounterMetricFamily(name, help, value=value)


def _gauges(name: str, help: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(name, help, labels=[label])
    for of, value in values:
        family.add_metric([of], value)
    return family


def _counters(name: str, help: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = CounterMetricFamily(name, help, labels=[label])
    for of, value in values:
        family.add_metric([of], value)
    return family


def _buckets(histogram: Histogram, scale: float) -> list[tuple[str, float]]:
    bounds = [f"{bound * scale:.12g}" for bound in histogram.bounds]
    return list(zip([*bounds, "+Inf"], accumulate(histogram.counts), strict=True))


def _histogram(name: str, help: str, histogram: Histogram, scale: float = 1000) -> Metric:
    return HistogramMetricFamily(
        name, help, buckets=_buckets(histogram, scale), sum_value=histogram.total * scale
    )


# --- what goes in and out


def _traffic(measured: Measured, found: Standing, most_topics: int) -> Iterator[Metric]:
    all, busiest = found.counts, found.busiest(most_topics)
    told: tuple[tuple[str, str, Callable[[Counts], int]], ...] = (
        ("messagesin", "Messages appended by leaders.", lambda counts: counts.messages_in),
        ("bytesin", "Bytes of batches appended by leaders.", lambda counts: counts.bytes_in),
        ("bytesout", "Bytes of batches given to consumers by Fetch.", lambda counts: counts.bytes_out),
    )
    for name, help, of in told:
        family = CounterMetricFamily(_TOPICS + name, help)
        family.add_metric([], of(all))
        for topic, counts in busiest:
            family.add_sample(family.name + "_total", {"topic": topic}, of(counts))
        yield family
    replicated = _TOPICS + "replicationbytes"
    yield _counter(
        replicated + "in", "Bytes of batches fetched from other leaders.", all.replication_bytes_in
    )
    yield _counter(replicated + "out", "Bytes of batches given to followers.", all.replication_bytes_out)
    by_name, traffic = measured.requests.by_name, measured.host.traffic
    produced = by_name["Produce"].requests if "Produce" in by_name else 0
    fetched = by_name["FetchConsumer"].requests if "FetchConsumer" in by_name else 0
    yield _counter(_TOPICS + "totalproducerequests", "Produce requests.", produced)
    yield _counter(_TOPICS + "totalfetchrequests", "Fetch requests of consumers.", fetched)
    yield _counter(_TOPICS + "failedproducerequests", "Batches refused.", traffic.failed_produces)
    yield _counter(_TOPICS + "failedfetchrequests", "Partitions not read.", traffic.failed_fetches)


def _requests(measured: Measured) -> Iterator[Metric]:
    asked = sorted((name, times) for name, times in measured.requests.by_name.items() if times.requests)
    yield _counters(
        _REQUESTS + "requests",
        "Requests answered.",
        "request",
        [(name, times.requests) for name, times in asked],
    )
    stages = {
        "requestqueue": "Time behind other requests of the connection.",
        "local": "Time in the handler.",
        "remote": "Time waiting for replicas, a flush, or records.",
        "responsequeue": "Time the answer waited for those before it.",
        "total": "Time from receipt to answer.",
    }
    by_stage = {
        stage: HistogramMetricFamily(f"{_REQUESTS}{stage}timems", help, labels=["request"])
        for stage, help in stages.items()
    }
    for name, times in asked:
        for stage, histogram in times.stages().items():
            by_stage[stage].add_metric([name], _buckets(histogram, 1000), histogram.total * 1000)
    yield from by_stage.values()


# --- replicas


def _replicas(measured: Measured, found: Standing) -> Iterator[Metric]:
    told: Sequence[tuple[str, str, int]] = (
        ("partitioncount", "Replicas on this broker.", found.replicas),
        ("leadercount", "Partitions led by this broker.", found.leaders),
        ("underreplicatedpartitions", "Led here, a replica is not in sync.", found.under_replicated),
        ("underminisrpartitioncount", "Led here, fewer in sync than asked for.", found.under_min_isr),
        ("atminisrpartitioncount", "Led here, as many in sync as asked for.", found.at_min_isr),
        ("reassigningpartitions", "Led here, on the move to other brokers.", found.reassigning),
        ("offlinereplicacount", "Replicas whose disk has failed.", measured.host.flusher.failed),
    )
    for name, help, value in told:
        yield _gauge(_REPLICAS + name, help, value)
    hub = measured.host.replication
    yield _counter(_REPLICAS + "isrshrinks", "ISRs that a replica has left.", hub.isr_shrinks)
    yield _counter(_REPLICAS + "isrexpands", "ISRs that a replica has come back to.", hub.isr_expands)
    yield _counter(_REPLICAS + "failedisrupdates", "ISR changes refused.", hub.failed_isr_updates)
    lags = [
        (f"ReplicaFetcherThread-{number}-{leader}", fetcher.lag)
        for leader, number, fetcher in measured.followers.fetchers()
    ]
    yield _gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "Messages that the replica lacks here that lacks most.",
        max((lag for _, lag in lags), default=0),
    )
    yield _gauges("kafka_server_fetcherlagmetrics_consumerlag", "The same by fetcher.", "clientId", lags)
    yield _gauges(
        "anabranch_follower_lag_messages",
        "Messages that a follower lacks of a partition led here, where it lacks most.",
        "follower",
        [(str(broker), lag) for broker, lag in sorted(found.lags.items())],
    )


def _controller(measured: Measured, found: Standing) -> Iterator[Metric]:
    controller = measured.cluster.controller
    is_active = controller.epoch is not None
    brokers = len(measured.cluster.image.brokers)
    told: Sequence[tuple[str, str, int]] = (
        ("activecontrollercount", "1 on the controller.", 1),
        ("activebrokercount", "Brokers that are registered.", brokers),
        ("globaltopiccount", "Topics of the cluster.", found.topics),
        ("globalpartitioncount", "Partitions of the cluster.", found.partitions),
        ("offlinepartitionscount", "Partitions without a leader.", found.leaderless),
        ("preferredreplicaimbalancecount", "Not led by their first replica.", found.not_preferred),
        (
            "controllerstate",
            "2 while elections are due.",
            _BROKERS_CHANGED if controller.due else _IDLE,
        ),
    )
    for name, help, value in told:
        yield _gauge(_CONTROLLER + name, help, value if is_active else 0)
    yield _gauge(
        "kafka_controller_controllereventmanager_eventqueuesize",
        "Partitions whose leader or ISR is to be decided.",
        controller.due,
    )
    yield _histogram(
        _ELECTIONS + "leaderelectionrateandtimems",
        "Leaders elected, and the time until it was written.",
        controller.elections,
    )
    yield _counter(
        _ELECTIONS + "uncleanleaderelections",
        "Leaders elected that were not in sync.",
        controller.unclean_elections,
    )


def _session(measured: Measured) -> Iterator[Metric]:
    session = measured.session
    yield _gauges(
        "anabranch_metadata_session_state",
        "1 for the state that the metadata session is in.",
        "state",
        [(state.value, float(session.state is state)) for state in SessionState],
    )
    for name, help, state in (
        ("zookeeperexpires", "Metadata sessions that have expired.", SessionState.EXPIRED),
        ("zookeeperdisconnects", "Connections to the metadata lost.", SessionState.SUSPENDED),
        ("zookeepersyncconnects", "Connections to the metadata made.", SessionState.CONNECTED),
    ):
        yield _counter(_SESSION + name, help, session.changes[state])


# --- the node


def _node(measured: Measured) -> Iterator[Metric]:
    info = GaugeMetricFamily("anabranch_info", "Always 1.", labels=["version", "broker", "cluster"])
    info.add_metric([__version__, str(measured.broker), measured.cluster.image.cluster_id], 1)
    yield info
    yield _histogram(
        "kafka_log_logflushstats_logflushrateandtimems",
        "Flushes of logs to the disk.",
        measured.host.flusher.times,
    )
    lag = measured.loop_lag
    yield _histogram("anabranch_event_loop_lag_seconds", "How late timers fired.", lag.lag_s, 1)
    yield _counter("anabranch_event_loop_stalls", "Timers late by more than 100 ms.", lag.stalls)
    yield _gauge(
        "anabranch_event_loop_longest_stall_seconds",
        "The latest that a timer was within the last minute or two.",
        lag.longest_s,
    )
    listeners = list(measured.connections())
    yield _gauges(
        _SOCKETS + "connection_count",
        "Connections.",
        "listener",
        [(one.listener, one.open) for one in listeners],
    )
    yield _counters(
        _SOCKETS + "connection_creation",
        "Connections made.",
        "listener",
        [(one.listener, one.accepted) for one in listeners],
    )
    disk = shutil.disk_usage(measured.host.data)
    yield _gauge("anabranch_disk_bytes", "Size of the disk with the data folder.", disk.total)
    yield _gauge("anabranch_disk_free_bytes", "What is free of it.", disk.free)


def _pulsar(measured: Measured) -> Iterator[Metric]:
    topics = list(measured.pulsar.topics)
    consumers = [number for topic in topics for number in _consumers(topic)]
    traffic = measured.pulsar.traffic
    told: Sequence[tuple[str, str, int]] = (
        ("topics", "Topics that Pulsar clients have open.", len(topics)),
        ("subscriptions", "Subscriptions of these.", len(consumers)),
        ("producers", "Pulsar producers.", sum(len(topic.producers) for topic in topics)),
        ("consumers", "Pulsar consumers.", sum(consumers)),
    )
    for name, help, value in told:
        yield _gauge(f"pulsar_broker_{name}_count", help, value)
    yield _counter("pulsar_in_messages", "Messages from Pulsar producers.", traffic.messages_in)
    yield _counter("pulsar_in_bytes", "Bytes of these.", traffic.bytes_in)
    yield _counter("pulsar_out_messages", "Messages given to Pulsar consumers.", traffic.messages_out)
    yield _counter("pulsar_out_bytes", "Bytes of these.", traffic.bytes_out)


def _consumers(topic: AnyTopic) -> Iterator[int]:
    """How many there are of each subscription."""
    if isinstance(topic, Topic):
        return (len(held.subscription.consumers) for held in topic.subscriptions)
    return (len(live.consumers) for live in topic.subscriptions.values())
