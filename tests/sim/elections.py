"""Elections in the store itself: what a controller that hears of everything at once would write.

For clusters whose controller does not see to brokers that come and go.  A broker that is gone leads nothing
any more before it is back: in the same epoch it would write other records at offsets that followers have.
"""

from collections.abc import Callable, Iterator
from random import Random

from anabranch.base.ids import BrokerId
from anabranch.cluster.partition_states import elect, new_state
from anabranch.meta import paths
from anabranch.meta.documents import PartitionState, PartitionStatesDocument, TopicDocument, decode, encode
from anabranch.meta.image import NO_BROKER
from anabranch.meta.plans import plan_put
from tests.sim.store import SimStore


def _topics(store: SimStore) -> Iterator[TopicDocument]:
    for path, value in store.tree.scan(paths.TOPICS):
        if value.data:
            yield decode(value.data, TopicDocument, path)


def elect_instead(store: SimStore, random: Random, lives: Callable[[BrokerId], bool]) -> None:
    """Every partition is led by who lives and is in sync, or by nobody."""
    for topic in _topics(store):
        for index, replicas in enumerate(topic.replicas):
            path = paths.partition_states(topic.id, paths.page_of(index))
            value = store.tree.get(path)
            states: dict[int, PartitionState] = {}
            if value is not None and value.data:
                states = dict(decode(value.data, PartitionStatesDocument, path).states)
            state = states.get(index) or new_state(replicas)
            if state.leader != NO_BROKER and lives(state.leader):
                continue
            eligible = [broker for broker in state.isr if lives(broker)]
            if state.leader == NO_BROKER and not eligible:
                continue
            chosen = random.choice(eligible) if eligible else NO_BROKER
            states[index] = elect(state, chosen)
            store.commit(plan_put(store.tree, path, encode(PartitionStatesDocument(states)), None).changes)
