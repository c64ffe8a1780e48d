"""Classic groups under members that come, go, fall silent and come back, and a broker that restarts.

Each client here behaves as Kafka's do: it asks for an id, joins, the leader assigns, all sync and heartbeat,
and every code sends it where it sends a real client.  Some stop in the middle.  After every step:

  * within a generation every partition has at most one owner, and assignments are those of its leader;
  * a generation that was assigned is never assigned again to other members;
  * a group's own invariants hold (see `classic_group`);
  * once everybody who is left behaves, the group becomes stable with exactly them: it cannot be stuck.
"""

from random import Random

import pytest

from anabranch.groups.classic_group import ClassicGroup, State
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.classic import Groups, Request

PARTITIONS = 6
GROUP = "g"


class Client:
    """A consumer.  `step` does the next thing it would do."""

    def __init__(self, groups: Groups, instance_id: str | None, version: int) -> None:
        self.groups = groups
        self.instance_id = instance_id
        self.version = version
        self.member_id = ""
        self.joined: Request | None = None
        self.joining: Request | None = None
        self.syncing: Request | None = None
        self.heartbeat: Request | None = None
        self.owned: bytes | None = None
        self.fenced = False

    def step(self) -> None:
        if self.fenced:
            return
        if self.joining is not None:
            self._see_join(self.joining)
        elif self.joined is None:
            self.joining = self.groups.join(
                GROUP, self.member_id, instance_id=self.instance_id, version=self.version
            )
        elif self.syncing is not None:
            self._see_sync(self.syncing)
        elif self.owned is None:
            self._sync(self.joined)
        else:
            self._beat(self.joined)

    def _see_join(self, request: Request) -> None:
        if request.waits:
            return
        self.joining = None
        if request.code == 0:
            self.joined, self.member_id = request, request.id
        elif request.code == ErrorCode.member_id_required:
            self.member_id = request.id
        else:
            self._react(request.code)

    def _sync(self, joined: Request) -> None:
        given: dict[str, bytes] = {}
        answer = joined.answer or {}
        if joined.leads and not answer["skip_assignment"]:
            ids = [member["member_id"] for member in answer["members"]]
            for index, member_id in enumerate(ids):
                given[member_id] = bytes(range(PARTITIONS))[index :: len(ids)]
        self.syncing = self.groups.sync(GROUP, joined, given, instance_id=self.instance_id)

    def _see_sync(self, request: Request) -> None:
        if request.waits:
            return
        self.syncing = None
        if request.code == 0:
            self.owned = (request.answer or {})["assignment"]
        else:
            self._react(request.code)

    def _beat(self, joined: Request) -> None:
        if self.heartbeat is None:
            self.heartbeat = self.groups.heartbeat(GROUP, joined, instance_id=self.instance_id, may_hold=True)
        if not self.heartbeat.waits:
            code, self.heartbeat = self.heartbeat.code, None
            if code:
                self._react(code)

    def _react(self, code: int) -> None:
        self.joined = self.owned = self.heartbeat = self.syncing = None
        if code == ErrorCode.unknown_member_id:
            self.member_id = ""
        elif code == ErrorCode.fenced_instance_id:
            self.fenced = True

    def reconnect(self) -> None:
        """The broker has restarted: whatever it owed will not come."""
        self.joining = self.syncing = self.heartbeat = None

    def leave(self) -> None:
        if self.member_id:
            self.groups.leave(GROUP, (self.member_id, self.instance_id))


class World:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.groups = Groups(seed, initial_rebalance_delay_ms=self.chance.choice((0, 1000, 3000)))
        self.clients: list[Client] = []
        self.assigned: dict[int, dict[str, bytes]] = {}
        self.instances = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            getattr(self, self.chance.choices(*zip(*WEIGHTS.items(), strict=True))[0])()
            self.check()
        self.settle()

    # --- what happens

    def act(self) -> None:
        if self.clients:
            self.chance.choice(self.clients).step()

    def act_all(self) -> None:
        for client in self.chance.sample(self.clients, len(self.clients)):
            client.step()

    def wait(self) -> None:
        self.groups.pass_ms(self.chance.choice((10, 100, 500, 2000)))

    def wait_long(self) -> None:
        self.groups.pass_ms(self.chance.choice((8000, 15_000, 70_000)))

    def come(self) -> None:
        if len(self.clients) < 6:
            name = None
            if self.chance.random() < 0.4:
                self.instances += 1
                name = f"i{self.instances}"
            self.clients.append(Client(self.groups, name, self.chance.choice((3, 5, 9))))

    def die(self) -> None:
        if self.clients:
            self.clients.remove(self.chance.choice(self.clients))

    def go(self) -> None:
        if self.clients:
            client = self.chance.choice(self.clients)
            client.leave()
            self.clients.remove(client)

    def come_back(self) -> None:
        """A static member restarts, while the one before it may still be there."""
        static = [client for client in self.clients if client.instance_id is not None]
        if static:
            old = self.chance.choice(static)
            if self.chance.random() < 0.8:
                self.clients.remove(old)
            self.clients.append(Client(self.groups, old.instance_id, old.version))

    def restart(self) -> None:
        self.groups.restart()
        for client in self.clients:
            client.reconnect()

    def lose(self) -> None:
        self.groups.losing = not self.groups.losing

    # --- what must hold

    def check(self) -> None:
        group = self.groups.groups.get(GROUP)
        if group is None:
            return
        assert isinstance(group, ClassicGroup)
        members = set(group.members)
        assert set(group.joining) <= members
        assert set(group.syncing) <= members
        assert set(group.held) <= members
        assert group.unsynced <= members
        assert not group.promised & members
        assert (group.leader in members) if members else group.leader is None
        assert set(group.static.values()) == {m.member_id for m in group.members.values() if m.instance_id}
        if group.state is State.STABLE:
            assert group.protocol is not None
            owned = {member_id: member.assignment for member_id, member in group.members.items()}
            parts = [part for assignment in owned.values() for part in assignment]
            assert len(parts) == len(set(parts)), "a partition has two owners"
            before = self.assigned.setdefault(group.generation, owned)
            # A static member may have taken the place of another, under a new id.
            assert sorted(before.values()) == sorted(owned.values()), "a generation was assigned twice"
        if group.state in (State.PREPARING, State.COMPLETING):
            timers = {timer[1] for timer in self.groups.timers if timer[2] == GROUP}
            assert ("join" if group.state is State.PREPARING else "sync") in timers

    def settle(self) -> None:
        """From here on everybody behaves."""
        self.groups.losing = False
        for _ in range(400):
            for client in self.clients:
                client.step()
            self.groups.pass_ms(500)
            self.check()
        alive = [client for client in self.clients if not client.fenced]
        names = [client.instance_id for client in alive if client.instance_id is not None]
        if len(names) != len(set(names)):
            return  # two twins fence each other, one after the other
        if not alive:
            return
        group = self.groups[GROUP]
        assert group.state is State.STABLE
        assert {client.member_id for client in alive} == set(group.members)
        owned = [part for client in alive for part in client.owned or b""]
        assert sorted(owned) == list(range(PARTITIONS)), "a partition is read by nobody, or by two"


WEIGHTS = {
    "act": 30,
    "act_all": 30,
    "wait": 20,
    "wait_long": 1,
    "come": 6,
    "die": 2,
    "go": 2,
    "come_back": 2,
    "restart": 1,
    "lose": 1,
}


@pytest.mark.parametrize("seed", range(60))
def test_groups_keep_their_promises(seed: int) -> None:
    World(seed).run(300)
