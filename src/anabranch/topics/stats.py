"""Topic statistics: a topic, its producers, subscriptions and consumers in Pulsar's JSON, field by field.

Plain values; `topic_stats.py` fills them in.  Rates are per second, as of the last look (`base/rates.py`).
"""

from typing import Any

import msgspec


class PublisherStats(msgspec.Struct, kw_only=True, rename="camel"):
    access_mode: str
    msg_rate_in: float
    msg_throughput_in: float
    average_msg_size: float
    chunked_message_rate: float = 0.0
    producer_id: int
    supports_partial_producer: bool
    producer_name: str
    address: str
    connected_since: str
    client_version: str
    metadata: dict[str, str]


class DrainingHash(msgspec.Struct, kw_only=True, rename="camel"):
    hash: int
    unack_msgs: int
    blocked_attempts: int


class ConsumerStats(msgspec.Struct, kw_only=True, rename="camel"):
    msg_rate_out: float
    msg_throughput_out: float
    bytes_out_counter: int
    msg_out_counter: int
    msg_rate_redeliver: float
    message_ack_rate: float
    chunked_message_rate: float = 0.0
    consumer_name: str
    available_permits: int
    unacked_messages: int
    avg_messages_per_entry: int = 0
    blocked_consumer_on_unacked_msgs: bool
    draining_hashes_count: int = 0
    draining_hashes_cleared_total: int = 0
    draining_hashes_unacked_messages: int = 0
    draining_hashes: list[DrainingHash] = []
    key_hash_range_arrays: list[tuple[int, int]] | None = None
    address: str
    connected_since: str
    client_version: str
    last_acked_timestamp: int
    last_consumed_timestamp: int
    last_consumed_flow_timestamp: int
    metadata: dict[str, str]


class SubscriptionStats(msgspec.Struct, kw_only=True, rename="camel"):
    msg_rate_out: float
    msg_throughput_out: float
    bytes_out_counter: int
    msg_out_counter: int
    msg_rate_redeliver: float = 0.0
    message_ack_rate: float = 0.0
    chunked_message_rate: float = 0.0
    msg_backlog: int = 0
    backlog_size: int = 0
    earliest_msg_publish_time_in_backlog: int = 0
    msg_backlog_no_delayed: int = 0
    blocked_subscription_on_unacked_msgs: bool = False
    msg_delayed: int = 0
    msg_in_replay: int = 0
    unacked_messages: int = 0
    msg_drop_rate: float = 0.0
    msg_drop_counter: int = 0
    type: str | None = None
    active_consumer_name: str | None = None
    msg_rate_expired: float = 0.0
    total_msg_expired: int = 0
    last_expire_timestamp: int = 0
    last_consumed_flow_timestamp: int = 0
    last_consumed_timestamp: int = 0
    last_acked_timestamp: int = 0
    last_mark_delete_advanced_timestamp: int = 0
    consumers: list[ConsumerStats]
    consumers_after_mark_delete_position: dict[str, str] = {}
    is_durable: bool
    is_replicated: bool = False
    allow_out_of_order_delivery: bool = False
    key_shared_mode: str | None = None
    draining_hashes_count: int = 0
    draining_hashes_unacked_messages: int = 0
    non_contiguous_deleted_messages_ranges: int = 0
    non_contiguous_deleted_messages_ranges_serialized_size: int = 0
    delayed_message_index_size_in_bytes: int = 0
    subscription_properties: dict[str, str] = {}
    durable: bool = True
    replicated: bool = False


class CompactionStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    last_compaction_removed_event_count: int = 0
    last_compaction_succeed_timestamp: int = 0
    last_compaction_failed_timestamp: int = 0
    last_compaction_duration_time_in_mills: int = 0


class TopicStats(msgspec.Struct, kw_only=True, rename="camel"):
    msg_rate_in: float
    msg_throughput_in: float
    msg_rate_out: float
    msg_throughput_out: float
    bytes_in_counter: int
    msg_in_counter: int
    bytes_out_counter: int
    msg_out_counter: int
    average_msg_size: float
    msg_chunk_published: bool = False
    storage_size: int = 0
    backlog_size: int = 0
    backlog_quota_limit_size: int = -1
    backlog_quota_limit_time: int = -1
    oldest_backlog_message_age_seconds: int = -1
    oldest_backlog_message_subscription_name: str | None = None
    publish_rate_limited_times: int = 0
    earliest_msg_publish_time_in_backlogs: int = 0
    msg_drop_rate: float = 0.0
    msg_drop_counter: int = 0
    publishers: list[PublisherStats]
    waiting_publishers: int
    subscriptions: dict[str, SubscriptionStats]
    replication: dict[str, Any] = {}
    deduplication_status: str = "Disabled"
    topic_epoch: int | None = None
    non_contiguous_deleted_messages_ranges: int = 0
    delayed_message_index_size_in_bytes: int = 0
    topic_creation_time_stamp: int = 0
    last_publish_time_stamp: int = 0
    ongoing_txn_count: int = 0
    aborted_txn_count: int = 0
    committed_txn_count: int = 0
    compaction: CompactionStats = CompactionStats()
    owner_broker: str | None = None


class LedgerStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    ledger_id: int
    entries: int
    size: int
    offloaded: bool = False
    under_replicated: bool = False


NO_LEDGER = LedgerStats(ledger_id=-1, entries=-1, size=-1)


class CursorStats(msgspec.Struct, kw_only=True, rename="camel"):
    mark_delete_position: str
    read_position: str
    waiting_read_op: bool
    pending_read_ops: int = 0
    messages_consumed_counter: int
    cursor_ledger: int = -1
    cursor_ledger_last_entry: int = -1
    individually_deleted_messages: str = "[]"
    last_ledger_switch_timestamp: str = ""
    state: str = "Open"
    active: bool
    number_of_entries_since_first_not_acked_message: int
    total_non_contiguous_deleted_messages_range: int
    subscription_have_pending_read: bool
    subscription_have_pending_replay_read: bool = False
    properties: dict[str, int] = {}


class InternalStats(msgspec.Struct, kw_only=True, rename="camel"):
    entries_added_counter: int
    number_of_entries: int
    total_size: int
    current_ledger_entries: int
    current_ledger_size: int
    last_ledger_created_timestamp: str
    last_ledger_creation_failure_timestamp: str | None = None
    waiting_cursors_count: int
    pending_add_entries_count: int = 0
    last_confirmed_entry: str
    state: str
    ledgers: list[LedgerStats]
    cursors: dict[str, CursorStats]
    schema_ledgers: list[LedgerStats] = []
    compacted_ledger: LedgerStats = NO_LEDGER
