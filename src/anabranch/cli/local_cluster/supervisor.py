"""Supervisor: the processes of a local cluster together, and what commands tell it to do with them.

ZooKeeper is there before the first broker starts, and until the last has stopped.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from anabranch.base.errors import Invalid, NotFound, Unavailable
from anabranch.cli.local_cluster.member import Member
from anabranch.cli.local_cluster.plan import (
    BROKER,
    CLUSTER_FILE,
    ZOOKEEPER,
    Founded,
    Wanted,
    broker_process,
    replication_defaults,
    zookeeper_process,
)
from anabranch.cli.local_cluster.ports import FreePorts

log = logging.getLogger(__name__)


class Supervisor:
    def __init__(
        self,
        wanted: Wanted,
        cluster: Founded,
        host_id: str,
        defaults: Mapping[str, str],
        ports: FreePorts,
        told_to_stop: asyncio.Event,
    ) -> None:
        """`defaults` are settings of brokers that hold where nobody said otherwise."""
        self._wanted = wanted
        self._host_id = host_id
        self._defaults = defaults
        self._ports = ports
        self._own_zookeeper = cluster.zookeeper is None
        self._members: dict[str, Member] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._told_to_stop = told_to_stop
        self.stopped = asyncio.Event()
        if cluster.zookeeper is None:
            planned = zookeeper_process(wanted, ports.take)
            self._enlist(Member(planned))
            self.zookeeper = f"127.0.0.1:{planned.ports['client']}"
        else:
            self.zookeeper = cluster.zookeeper
        for number in cluster.brokers:
            self._enlist(self._broker(number))

    async def start(self) -> None:
        """Returns when all of them serve.  Unavailable if one does not start."""
        self._keep()
        first = [member for member in self._members.values() if member.planned.role == ZOOKEEPER]
        for several in (first, self._brokers()):
            for member in several:
                member.want()
                self._tasks.append(asyncio.ensure_future(member.run()))
            await asyncio.gather(*(member.serving() for member in several))

    async def stop(self) -> None:
        await asyncio.gather(*(member.stop() for member in self._brokers()))
        await asyncio.gather(*(member.stop() for member in self._members.values()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.stopped.set()

    def rows(self) -> list[dict[str, Any]]:
        """As `status` tells them."""
        return [member.row() for member in self._members.values()]

    async def do(self, verb: str, id: str | None) -> list[dict[str, Any]]:
        """What a command asks for; the rows of what it was about."""
        match verb:
            case "status":
                return self.rows()
            case "add":
                return [await self._add()]
            case "down":
                self._told_to_stop.set()
                await self.stopped.wait()
                return self.rows()
        member = self._members.get(id or "")
        if member is None:
            raise NotFound(f"there is no process {id!r}; there are: {', '.join(self._members)}")
        match verb:
            case "kill":
                await member.kill()
            case "restart":
                await member.restart()
            case "pause":
                member.pause()
            case "resume":
                member.resume()
            case _:
                raise Invalid(f"the supervisor does not know what {verb!r} is")
        log.info("%s: %s, as it was told", member.planned.id, member.state.value)
        return [member.row()]

    async def _add(self) -> dict[str, Any]:
        number = 1 + max(_number_of(member) for member in self._brokers())
        member = self._broker(number)
        self._enlist(member)
        self._keep()
        member.want()
        task = asyncio.ensure_future(member.run())
        self._tasks.append(task)
        try:
            await member.serving()
        except Unavailable as error:
            await self._take_out(member, task)
            raise Unavailable(f"{error}\n{member.planned.id} is not added") from error
        return {**member.row(), "note": self._note()}

    def _note(self) -> str | None:
        """What the next `up` would set otherwise, with so many brokers."""
        usual = replication_defaults(len(self._brokers()))
        if all(usual[name] == value for name, value in self._defaults.items()):
            return None
        told = ", ".join(
            f"{name}={self._defaults[name]}"
            for name in ("default.replication.factor", "min.insync.replicas")
            if name in self._defaults
        )
        return (
            f"settings of replicas stay as `up` gave them ({told or 'of internal topics'}) "
            "until the next `cluster down` and `up`; topics that are there keep the replicas they have"
        )

    async def _take_out(self, member: Member, task: "asyncio.Task[None]") -> None:
        """What has never served is no part of the cluster, and would be started again for ever."""
        await member.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._tasks.remove(task)
        del self._members[member.planned.id]
        self._keep()
        log.warning("%s: did not start, and is not added", member.planned.id)

    def _brokers(self) -> list[Member]:
        return [member for member in self._members.values() if member.planned.role == BROKER]

    def _broker(self, number: int) -> Member:
        planned = broker_process(
            number, self._wanted, self.zookeeper, self._host_id, self._defaults, self._ports.take
        )
        return Member(planned)

    def _enlist(self, member: Member) -> None:
        self._members[member.planned.id] = member

    def _keep(self) -> None:
        """Write down what cluster it is, for the next start."""
        said = {
            "brokers": [_number_of(member) for member in self._brokers()],
            "zookeeper": None if self._own_zookeeper else self.zookeeper,
        }
        path = self._wanted.data / CLUSTER_FILE
        beside = path.with_name(f"{path.name}.tmp")
        beside.write_text(json.dumps(said) + "\n", encoding="utf-8")
        beside.replace(path)


def _number_of(broker: Member) -> int:
    return int(broker.planned.id.removeprefix(f"{BROKER}-"))
