"""Share partitions, put together from what they need of the cluster and of the partitions."""

import asyncio
from collections.abc import Callable, Mapping

from anabranch.base.clock import Clock
from anabranch.base.ids import TopicName
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.topics import NewTopic
from anabranch.groups.config import GroupConfig
from anabranch.groups.group_options import config_for_group
from anabranch.groups.share_state import ShareStates
from anabranch.partition.host import PartitionHost
from anabranch.subscriptions.share_dead_letters import DeadLetters
from anabranch.subscriptions.share_live import ShareSurroundings
from anabranch.subscriptions.share_partitions import SharePartitions

_MOST_KNOWN = 1_000
_DEAD_LETTERS_ALLOWED = {"errors.deadletterqueue.group.enable": "true"}


def share_partitions(
    cluster: Cluster,
    host: PartitionHost,
    clock: Clock,
    config: Callable[[], GroupConfig],
    states: ShareStates,
) -> SharePartitions:
    """Those of this broker.  Needs a running loop."""

    async def create(name: str) -> None:
        await cluster.create_topic(
            NewTopic(TopicName.from_kafka(name), config=_DEAD_LETTERS_ALLOWED, asked_by="dead letters")
        )

    configs = _Configs(config, lambda group: cluster.image.group_configs.get(group))
    letters = DeadLetters(host, configs.of, create, clock.now_ms)
    timers = asyncio.get_running_loop()
    made = SharePartitions(host, ShareSurroundings(clock, timers, states, configs.of, letters.bury))
    cluster.subscribe(lambda change: made.topics_deleted({topic.id for topic in change.deleted}))
    return made


class _Configs:
    """What holds for each group, worked out again when the broker or the group is told something."""

    def __init__(
        self, config: Callable[[], GroupConfig], overrides_of: Callable[[str], Mapping[str, str] | None]
    ) -> None:
        self._config = config
        self._overrides_of = overrides_of
        self._known: dict[str, tuple[GroupConfig, Mapping[str, str], GroupConfig]] = {}

    def of(self, group: str) -> GroupConfig:
        config, overrides = self._config(), self._overrides_of(group)
        if not overrides:
            return config
        known = self._known.get(group)
        if known is None or known[0] is not config or known[1] is not overrides:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[group] = (config, overrides, config_for_group(config, overrides))
        return known[2]
