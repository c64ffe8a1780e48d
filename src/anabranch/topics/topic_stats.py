"""Topics looked at from outside: their state as Pulsar's statistics.

    stats_of(topic) -> TopicStats           internal_stats_of(topic) -> InternalStats

Made when somebody asks; nothing is kept for it but counters.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from anabranch.base.rates import average
from anabranch.partition.partition import Partition
from anabranch.partition.places import size_from
from anabranch.partition.standing import epochs_of, standing_of
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.delay_files import PAIR_BYTES
from anabranch.subscriptions.hash_ranges import KeyOwners
from anabranch.subscriptions.key_shared import Draining
from anabranch.subscriptions.keyed_dispatch import KeyedDispatch
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.single_active import SingleActive
from anabranch.topics.backlog import timestamp_at
from anabranch.topics.compacting import Compacting
from anabranch.topics.held import Held
from anabranch.topics.live_subscription import LiveSubscription
from anabranch.topics.message_ids import entry_before
from anabranch.topics.non_persistent import NonPersistentTopic
from anabranch.topics.producer import AccessMode, Producer
from anabranch.topics.stats import (
    NO_LEDGER,
    CompactionStats,
    ConsumerStats,
    CursorStats,
    DrainingHash,
    InternalStats,
    LedgerStats,
    PublisherStats,
    SubscriptionStats,
    TopicStats,
)
from anabranch.topics.subscribing import KIND_NAMES
from anabranch.topics.topic import Topic

_ACCESS_NAMES = {
    AccessMode.SHARED: "Shared",
    AccessMode.EXCLUSIVE: "Exclusive",
    AccessMode.WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    AccessMode.EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}
_NO_RATES = (0.0, 0.0, 0.0, 0.0)


def stats_of(topic: "Topic | NonPersistentTopic", now_ms: int) -> TopicStats:
    if isinstance(topic, NonPersistentTopic):
        return _non_persistent(topic)
    publishing, partition = topic.publishing, topic.partition
    messages_in, bytes_in = topic.meter.rates
    subscriptions = {held.subscription.name: _subscription(topic, held) for held in topic.subscriptions}
    slowest = min(
        (held for held in topic.subscriptions if held.is_durable),
        key=lambda held: held.cursor.mark_delete,
        default=None,
    )
    oldest_ms = None if slowest is None else timestamp_at(partition, slowest.cursor.mark_delete)
    rules, standing = topic.rules, standing_of(partition)
    return TopicStats(
        msg_rate_in=messages_in,
        msg_throughput_in=bytes_in,
        msg_rate_out=sum(each.msg_rate_out for each in subscriptions.values()),
        msg_throughput_out=sum(each.msg_throughput_out for each in subscriptions.values()),
        bytes_in_counter=publishing.bytes_in,
        msg_in_counter=publishing.messages_in,
        bytes_out_counter=sum(each.bytes_out_counter for each in subscriptions.values()),
        msg_out_counter=sum(each.msg_out_counter for each in subscriptions.values()),
        average_msg_size=average(bytes_in, messages_in),
        msg_chunk_published=any(producer.chunked_messages for producer in topic.producers),
        storage_size=partition.size_bytes,
        backlog_size=0 if slowest is None else size_from(partition, slowest.cursor.mark_delete),
        backlog_quota_limit_size=_limit(rules.backlog_size.limit),
        backlog_quota_limit_time=_limit(rules.backlog_age.limit),
        oldest_backlog_message_age_seconds=-1 if oldest_ms is None else max(0, now_ms - oldest_ms) // 1000,
        oldest_backlog_message_subscription_name=(
            None if oldest_ms is None or slowest is None else slowest.subscription.name
        ),
        publish_rate_limited_times=publishing.times_limited,
        earliest_msg_publish_time_in_backlogs=oldest_ms or 0,
        publishers=[_publisher(producer) for producer in topic.producers],
        waiting_publishers=len(topic.producers.waiting()),
        subscriptions=subscriptions,
        deduplication_status="Disabled" if publishing.deduplication is None else "Enabled",
        topic_epoch=topic.producers.epoch,
        non_contiguous_deleted_messages_ranges=sum(
            each.non_contiguous_deleted_messages_ranges for each in subscriptions.values()
        ),
        delayed_message_index_size_in_bytes=topic.subscriptions.delayed_count * PAIR_BYTES,
        topic_creation_time_stamp=topic.created_ms,
        last_publish_time_stamp=max(0, standing.newest_ms),
        ongoing_txn_count=standing.open_transactions,
        aborted_txn_count=standing.aborted_transactions,
        committed_txn_count=standing.committed_transactions,
        compaction=_compaction(topic.compacting),
    )


def _non_persistent(topic: NonPersistentTopic) -> TopicStats:
    messages_in, bytes_in, dropped = topic.meter.rates
    live = topic.subscriptions
    return TopicStats(
        msg_rate_in=messages_in,
        msg_throughput_in=bytes_in,
        msg_rate_out=0.0,
        msg_throughput_out=0.0,
        bytes_in_counter=topic.bytes_in,
        msg_in_counter=topic.messages_in,
        bytes_out_counter=sum(each.bytes_out for each in live.values()),
        msg_out_counter=sum(each.messages_out for each in live.values()),
        average_msg_size=average(bytes_in, messages_in),
        msg_drop_rate=dropped,
        msg_drop_counter=topic.messages_dropped,
        publishers=[_publisher(producer) for producer in topic.producers],
        waiting_publishers=len(topic.producers.waiting()),
        subscriptions={name: _live_subscription(each) for name, each in live.items()},
        topic_epoch=topic.producers.epoch,
        topic_creation_time_stamp=topic.opened_ms,
    )


def _publisher(producer: Producer) -> PublisherStats:
    messages_in, bytes_in = producer.meter.rates
    return PublisherStats(
        access_mode=_ACCESS_NAMES[producer.access_mode],
        msg_rate_in=messages_in,
        msg_throughput_in=bytes_in,
        average_msg_size=average(bytes_in, messages_in),
        producer_id=producer.id,
        supports_partial_producer=producer.supports_partial,
        producer_name=producer.name,
        address=producer.address,
        connected_since=_time(producer.connected_since_ms),
        client_version=producer.client_version,
        metadata=dict(producer.metadata),
    )


def _subscription(topic: Topic, held: Held) -> SubscriptionStats:
    subscription, cursor = held.subscription, held.cursor
    dispatcher = subscription.dispatcher
    draining: list[Draining] = []
    owners: KeyOwners | None = None
    if isinstance(dispatcher, KeyedDispatch):
        draining, owners = dispatcher.router.draining(), dispatcher.router.owners
    consumers = subscription.consumers
    totals = held.totals()
    backlog = cursor.backlog(topic.end)
    delayed = 0 if subscription.delay is None else len(subscription.delay)
    active = dispatcher.active if isinstance(dispatcher, SingleActive) else None
    return SubscriptionStats(
        msg_rate_out=held.rates[0],
        msg_throughput_out=held.rates[1],
        bytes_out_counter=totals[1],
        msg_out_counter=totals[0],
        msg_rate_redeliver=held.rates[2],
        message_ack_rate=held.rates[3],
        msg_backlog=backlog,
        backlog_size=size_from(topic.partition, cursor.mark_delete),
        earliest_msg_publish_time_in_backlog=timestamp_at(topic.partition, cursor.mark_delete) or 0,
        msg_backlog_no_delayed=max(0, backlog - delayed),
        blocked_subscription_on_unacked_msgs=subscription.unacked.is_blocked,
        msg_delayed=delayed,
        unacked_messages=sum(consumer.unacked for consumer in consumers),
        type=None if subscription.kind is None else KIND_NAMES[subscription.kind],
        active_consumer_name=None if active is None else active.name,
        last_consumed_flow_timestamp=max((c.last_flow_ms for c in consumers), default=0),
        last_consumed_timestamp=max((c.last_sent_ms for c in consumers), default=0),
        last_acked_timestamp=max((c.last_acked_ms for c in consumers), default=0),
        consumers=[_consumer(consumer, held, draining, owners) for consumer in consumers],
        is_durable=held.is_durable,
        allow_out_of_order_delivery=any(c.key_sharing.allows_out_of_order for c in consumers),
        key_shared_mode=_key_shared_mode(subscription.kind, consumers),
        draining_hashes_count=len(draining),
        draining_hashes_unacked_messages=sum(each.unacked for each in draining),
        non_contiguous_deleted_messages_ranges=cursor.ranges_ahead(),
        delayed_message_index_size_in_bytes=delayed * PAIR_BYTES,
        subscription_properties={} if held.durable is None else dict(held.durable.document.properties),
        durable=held.is_durable,
    )


def _live_subscription(subscription: LiveSubscription) -> SubscriptionStats:
    return SubscriptionStats(
        msg_rate_out=0.0,
        msg_throughput_out=0.0,
        bytes_out_counter=subscription.bytes_out,
        msg_out_counter=subscription.messages_out,
        msg_drop_counter=subscription.messages_dropped,
        type=None if subscription.kind is None else KIND_NAMES[subscription.kind],
        consumers=[_consumer(consumer, None, [], None) for consumer in subscription.consumers],
        is_durable=False,
        durable=False,
    )


def _consumer(
    consumer: Consumer, held: Held | None, draining: Sequence[Draining], owners: KeyOwners | None
) -> ConsumerStats:
    rates = _NO_RATES if held is None else held.consumer_rates(consumer)
    mine = [each for each in draining if each.holder is consumer]
    ranges = None if owners is None else owners.ranges().get(consumer, [])
    return ConsumerStats(
        msg_rate_out=rates[0],
        msg_throughput_out=rates[1],
        bytes_out_counter=consumer.bytes_out,
        msg_out_counter=consumer.messages_out,
        msg_rate_redeliver=rates[2],
        message_ack_rate=rates[3],
        consumer_name=consumer.name,
        available_permits=consumer.permits,
        unacked_messages=consumer.unacked,
        blocked_consumer_on_unacked_msgs=consumer.is_blocked,
        draining_hashes_count=len(mine),
        draining_hashes_unacked_messages=sum(each.unacked for each in mine),
        draining_hashes=[
            DrainingHash(hash=each.hash, unack_msgs=each.unacked, blocked_attempts=each.waiting)
            for each in mine
        ],
        key_hash_range_arrays=None if ranges is None else [(each.start, each.last) for each in ranges],
        address=consumer.address,
        connected_since=_time(consumer.connected_since_ms),
        client_version=consumer.client_version,
        last_acked_timestamp=consumer.last_acked_ms,
        last_consumed_timestamp=consumer.last_sent_ms,
        last_consumed_flow_timestamp=consumer.last_flow_ms,
        metadata=dict(consumer.properties),
    )


def internal_stats_of(topic: Topic) -> InternalStats:
    """How it is stored: ledgers are leader epochs, entries are counted by their messages."""
    partition = topic.partition
    ledger, entry, _ = topic.last_message()
    standing = standing_of(partition)
    waiting = sum(1 for held in topic.subscriptions if held.subscription.reading.is_at_end)
    return InternalStats(
        entries_added_counter=topic.publishing.entries_in,
        number_of_entries=partition.log_end - partition.log_start,
        total_size=partition.size_bytes,
        current_ledger_entries=standing.active_entries,
        current_ledger_size=standing.active_bytes,
        last_ledger_created_timestamp=_time(topic.opened_ms),
        waiting_cursors_count=waiting,
        last_confirmed_entry=f"{ledger}:{entry}",
        state="Terminated" if topic.terminated_at is not None else "LedgerOpened",
        ledgers=_ledgers(partition),
        cursors={held.subscription.name: _cursor(partition, held) for held in topic.subscriptions},
        compacted_ledger=_compacted_ledger(partition),
    )


def _compaction(compacting: Compacting) -> CompactionStats:
    return CompactionStats(
        last_compaction_removed_event_count=compacting.removed,
        last_compaction_succeed_timestamp=compacting.succeeded_ms,
        last_compaction_failed_timestamp=compacting.failed_ms,
        last_compaction_duration_time_in_mills=compacting.took_ms,
    )


def _compacted_ledger(partition: Partition) -> LedgerStats:
    view = partition.view
    if view is None:
        return NO_LEDGER
    return LedgerStats(
        ledger_id=partition.epoch_of(view.horizon - 1), entries=view.entries, size=view.size_bytes
    )


def _ledgers(partition: Partition) -> list[LedgerStats]:
    size = partition.size_bytes
    count = max(1, partition.log_end - partition.log_start)
    ledgers = []
    for epoch in epochs_of(partition):
        if epoch < 0:
            continue
        start = max(partition.log_start, partition.epoch_end(epoch - 1)[1] if epoch else 0)
        entries = max(0, partition.epoch_end(epoch)[1] - start)
        ledgers.append(LedgerStats(ledger_id=epoch, entries=entries, size=size * entries // count))
    return ledgers


def _cursor(partition: Partition, held: Held) -> CursorStats:
    subscription, cursor = held.subscription, held.cursor
    ledger, entry = entry_before(partition, cursor.mark_delete)
    return CursorStats(
        mark_delete_position=f"{ledger}:{entry}",
        read_position=f"{partition.leader_epoch}:{subscription.reading.offset}",
        waiting_read_op=subscription.reading.is_at_end,
        messages_consumed_counter=cursor.mark_delete + cursor.acked_ahead() - partition.log_start,
        active=bool(subscription.consumers),
        number_of_entries_since_first_not_acked_message=max(
            0, subscription.reading.offset - cursor.mark_delete
        ),
        total_non_contiguous_deleted_messages_range=cursor.ranges_ahead(),
        subscription_have_pending_read=subscription.reading.is_at_end and bool(subscription.consumers),
    )


def _key_shared_mode(kind: SubscriptionKind | None, consumers: Sequence[Consumer]) -> str | None:
    if kind != SubscriptionKind.KEY_SHARED or not consumers:
        return None
    return "AUTO_SPLIT" if consumers[0].key_sharing.ranges is None else "STICKY"


def _limit(limit: int | None) -> int:
    return -1 if limit is None else limit


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
