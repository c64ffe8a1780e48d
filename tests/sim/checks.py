"""Checks of a simulated cluster from within: what must hold of its replicas at any time.

  checks = Checks(world, cluster)
  checks.look()              after each fault, and several times per second
  checks.settled()           in the end: all replicas are the same

* one leader per epoch: no two brokers, and no two lives of one, lead a partition in the same epoch
* the epoch of a leader is one that the metadata store has given to its broker
* a high watermark does not go back while its role lasts
* below the high watermark all replicas have the same bytes
"""

from typing import Any
from uuid import UUID

from anabranch.base.errors import AnabranchError
from anabranch.meta import paths
from anabranch.meta.documents import PartitionStatesDocument, decode
from anabranch.meta.tree import Change, Set
from anabranch.partition.partition import Partition
from anabranch.partition.replica import Replica
from tests.sim.cluster import SimBroker, SimCluster
from tests.sim.history import Violation
from tests.sim.world import SimWorld

Place = tuple[UUID, int]
_PIECE_BYTES = 1 << 20


class _Looked:
    """How far a replica was compared."""

    __slots__ = ("cuts", "end", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.cuts = replica.log.cuts
        self.end = replica.log.log_start


class Checks:
    def __init__(self, world: SimWorld, cluster: SimCluster) -> None:
        self._world = world
        self._cluster = cluster
        self._leaders: dict[tuple[Place, int], tuple[SimBroker, int, int]] = {}
        self._watermarks: dict[tuple[Place, int], tuple[Partition, int]] = {}
        self._safe: dict[Place, dict[int, bytes]] = {}
        self._looked: dict[tuple[str, Place], _Looked] = {}
        self._elected: dict[tuple[Any, int, int], int] = {}
        world.store.on_commit = self._committed

    def _committed(self, changes: list[Change]) -> None:
        """What the store was told of leaders."""
        for change in changes:
            if isinstance(change, Set) and change.path.startswith(paths.PARTITIONS + "/"):
                document = decode(change.data, PartitionStatesDocument, change.path) if change.data else None
                for index, state in ({} if document is None else document.states).items():
                    known = self._elected.setdefault((change.path, index, state.leader_epoch), state.leader)
                    if known != state.leader:
                        self._world.failed(
                            Violation(
                                f"{change.path}: brokers {known} and {state.leader} were both elected "
                                f"for partition {index} in epoch {state.leader_epoch}"
                            )
                        )

    def look(self) -> None:
        for broker in self._cluster.serving:
            assert broker.node is not None
            for topic in broker.node.parts.host.topics():
                for index, replica in enumerate(topic.replicas):
                    if replica is not None and not replica.is_closed:
                        place = (topic.topic_id, index)
                        if replica.leader is not None:
                            self._check_leader(place, broker, replica.leader)
                        self._check_bytes(place, broker, replica)

    def _check_leader(self, place: Place, broker: SimBroker, role: Partition) -> None:
        key = (place, role.leader_epoch)
        first, life, end = self._leaders.get(key, (broker, broker.lives, 0))
        if first is not broker:
            raise Violation(f"{role}: {first.name} and {broker.name} both lead in epoch {role.leader_epoch}")
        if life != broker.lives and role.log_end < end and len(role.state.replicas) > 1:
            raise Violation(
                f"{role}: {broker.name} leads again in epoch {role.leader_epoch}, from {role.log_end} on: "
                f"its log ended at {end} before it was started again"
            )
        self._leaders[key] = (broker, broker.lives, role.log_end)
        known, watermark = self._watermarks.get(key, (role, 0))
        if known is not role:
            if life == broker.lives:
                raise Violation(f"{role}: {broker.name} leads twice in epoch {role.leader_epoch}")
            watermark = 0
        if role.high_watermark < watermark:
            raise Violation(
                f"{role}: the high watermark went back from {watermark} to {role.high_watermark} "
                f"in epoch {role.leader_epoch}"
            )
        if role.high_watermark > role.log_end:
            raise Violation(f"{role}: high watermark {role.high_watermark}, the log ends at {role.log_end}")
        self._watermarks[key] = (role, role.high_watermark)

    def _check_bytes(self, place: Place, broker: SimBroker, replica: Replica) -> None:
        """What is newly below the high watermark is what others have there."""
        looked = self._looked.get((broker.name, place))
        if looked is None or looked.replica is not replica or looked.cuts != replica.log.cuts:
            looked = self._looked[broker.name, place] = _Looked(replica)
        end = min(replica.high_watermark, replica.log.log_end)
        safe = self._safe.setdefault(place, {})
        while looked.end < end:
            try:
                part = replica.log.read(looked.end, _PIECE_BYTES, end, whole_first=True)
            except AnabranchError as error:
                raise Violation(
                    f"{replica} on {broker.name}: {looked.end} cannot be read: {error}"
                ) from error
            if part is None:
                return
            at = part.position
            for base, batch, after in _batches(part):
                if safe.setdefault(base, batch) != batch:
                    raise Violation(
                        f"{replica}: the batches at {base}, below the high watermark, differ: on "
                        f"{broker.name} {_told(batch)}, elsewhere {_told(safe[base])}"
                    )
                looked.end = after
                at += len(batch)

    # --- in the end

    def is_settled(self) -> bool:
        """Whether all replicas of each partition end alike, and all of it is safe."""
        replicas: dict[Place, list[Replica]] = {}
        for broker in self._cluster.brokers.values():
            if not broker.serves or broker.node is None:
                return False
            for topic in broker.node.parts.host.topics():
                for index in range(topic.image.partition_count):
                    replica = topic.replicas[index]
                    if replica is not None:
                        replicas.setdefault((topic.topic_id, index), []).append(replica)
        for each in replicas.values():
            if len(each) < len(self._cluster.brokers):
                return False
            if len({(one.log.log_end, one.high_watermark) for one in each}) > 1:
                return False
            if each[0].log.log_end != each[0].high_watermark:
                return False
        return True


def _batches(part: Any) -> list[tuple[int, bytes, int]]:
    from anabranch.client.visible import whole_batches

    data = part.file.pread(part.size, part.position)
    found = []
    at = 0
    for batch in whole_batches(data):
        found.append((batch.header.base_offset, data[at : batch.end], batch.header.last_offset + 1))
        at = batch.end
    return found


def _told(batch: bytes) -> str:
    from anabranch.records.batch import read_header

    header = read_header(batch)
    return f"{header.base_offset}..{header.last_offset} of epoch {header.leader_epoch}"
