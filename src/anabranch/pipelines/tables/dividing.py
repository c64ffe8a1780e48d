"""Pieces of work that are done together, and in halves if they cannot be.

Spark gives up on a whole job if one task of it cannot be done, say because its process is killed for want of
memory.  Then halves are tried, and halves of those, until what cannot be done is alone:

    a b c d e f g h      gives up
    a b c d | e f g h    the first half is done, the second one gives up
              e f | g h  …

So one piece stops no other, for a few jobs more.  If hardly any can be done it is not the pieces' fault: the
rest is not tried then.
"""

from collections.abc import Callable, Sequence

from anabranch.base.errors import Unavailable
from anabranch.pipelines.tables.copying import Copy, Done, Merge, failed

Runs = Callable[[Sequence[Copy | Merge]], list[Done]]
_MOST_FAILURES = 32


def done_in_parts(run: Runs, work: Sequence[Copy | Merge]) -> list[Done]:
    """What came of each piece of `work`, which `run` does, or gives up on as a whole (Unavailable)."""
    return _Division(run).done(work)


class _Division:
    def __init__(self, run: Runs) -> None:
        self._run = run
        self._failures = 0

    def done(self, work: Sequence[Copy | Merge]) -> list[Done]:
        try:
            return self._run(work) if work else []
        except Unavailable as error:
            self._failures += 1
            if len(work) == 1 or self._failures > _MOST_FAILURES:
                return [failed(one, str(error)) for one in work]
        middle = len(work) // 2
        return [*self.done(work[:middle]), *self.done(work[middle:])]
