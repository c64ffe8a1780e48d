"""Machine speed: how slow it is just now, for tests that say how much computing something may take.

    assert spent_s < 0.1 * slowness()

Machines lend their processors to others and take them back: the same work takes two or five times as long an
hour later.
"""

import time

_USUAL_S = 0.014  # on the machine where the tests got their limits
_ITEMS = 60_000


def slowness() -> float:
    """How many times as long a piece of work takes as where the limits were found; at least once."""
    return max(1.0, min(_piece_s() for _ in range(5)) / _USUAL_S)


def _piece_s() -> float:
    """The time of the processor that a piece of work takes, of the kind that Python does all day."""
    began = time.process_time()
    made = {}
    for number in range(_ITEMS):
        made[str(number)] = (number, number * number)
    return time.process_time() - began
