"""Executors: the pools of threads in which work that blocks runs, passed in and bounded.

A part asks for a pool of its own, by name and size; the size bounds what such work may take of memory and of
the disk at a time.  Nobody shares a pool across nodes, so two of them in one process do not wait for each
other, and a simulation gives out executors that run the work in the loop.
"""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

Executors = Callable[[str, int], Executor]
"""Makes a pool from its name and its number of threads."""


def thread_pool(name: str, threads: int) -> Executor:
    """A pool of real threads, each started when there is work for it."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


class Pools:
    """The pools of one node, which end with it."""

    def __init__(self, make: Executors) -> None:
        self._make = make
        self._made: list[Executor] = []

    def __call__(self, name: str, threads: int) -> Executor:
        made = self._make(name, threads)
        self._made.append(made)
        return made

    def close(self) -> None:
        """Take no more work.  What is under way ends by itself: who has to wait for it has done so."""
        for pool in self._made:
            pool.shutdown(wait=False)
        self._made.clear()
