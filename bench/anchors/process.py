"""Process figures from /proc: CPU, memory, descriptors."""

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(*pids: int) -> float:
    """What they have taken of the processors."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / _TICKS


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def idle_cpu_percent(pid: int, over_s: float) -> float:
    """CPU of a process that nobody asks anything, in percent of a core."""
    before, started = cpu_s(pid), time.monotonic()
    time.sleep(over_s)
    return (cpu_s(pid) - before) / (time.monotonic() - started) * 100
