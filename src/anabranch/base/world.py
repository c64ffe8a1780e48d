"""The world: all that a node reaches outside itself, passed in as one.

    clock · randomness · network · disk and its descriptors · threads · child processes · metadata store

`node.py` takes it apart: a part gets the clock or the pool that it needs, never the world.  So two nodes live
in one process without sharing anything but what their worlds share, and a simulation is a world of its own.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

from anabranch.base.clock import Clock, SystemClock
from anabranch.base.descriptors import Shares, claim_descriptors
from anabranch.base.disk import DirectDisk, Disk
from anabranch.base.executors import Executors, thread_pool
from anabranch.base.network import Network, TcpNetwork
from anabranch.base.processes import Processes, RealProcesses

Store = TypeVar("Store", covariant=True)
"""Of the metadata; which one is for those above to know."""

OpenStore = Callable[[Path, Disk, Executors], Awaitable[Store]]
"""Opens the metadata store of the node whose data folder this is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World(Generic[Store]):
    clock: Clock
    random: Random
    network: Network
    disk: Callable[[int, Executors], Disk]
    """A disk that keeps so many files open."""
    descriptors: Callable[[int, int], Shares]
    """How many files and connections there may be, of so many files wanted and connections waiting."""
    executors: Executors
    processes: Processes
    open_store: OpenStore[Store]


def real_world(open_store: OpenStore[Store]) -> World[Store]:
    """This machine."""
    return World(
        clock=SystemClock(),
        random=Random(),
        network=TcpNetwork(),
        disk=DirectDisk,
        descriptors=claim_descriptors,
        executors=thread_pool,
        processes=RealProcesses(),
        open_store=open_store,
    )
