"""What the demo cannot do without, said before anything is started: packages, a Java, memory.

Ports are no question: every one is free when it is taken.
"""

import importlib.util
from pathlib import Path

from anabranch.base.errors import Invalid

MEMORY_MB = 1_500  # Spark's driver with 1 GB of heap, its Python workers, the broker
CLUSTER_MB = 200  # ZooKeeper, the supervisor
BROKER_MB = 100
_PACKAGES = {
    "pyspark": "'anabranch[spark]'",
    "pyarrow": "'anabranch[spark]'",
    "pandas": "'anabranch[spark]'",
    "grpc_status": "'anabranch[spark]'",
    "yaml": "'anabranch[spark]'",
    "rich": "'anabranch[spark]'",
    "pulsar": "'anabranch[pulsar]'",
}
_CLUSTER_PACKAGES = {"kazoo": "'anabranch[cluster]'"}


def missing(brokers: int) -> list[str]:
    """A line for each thing that is missing, with what to do about it; none if all is there."""
    from anabranch.base.java import find_java  # needs nothing of Spark

    packages, memory_mb = _PACKAGES, MEMORY_MB
    if brokers > 1:
        packages = _PACKAGES | _CLUSTER_PACKAGES
        memory_mb += CLUSTER_MB + (brokers - 1) * BROKER_MB
    absent = {wanted for name, wanted in packages.items() if importlib.util.find_spec(name) is None}
    lines = [f"packages are missing: pip install {wanted}" for wanted in sorted(absent)]
    try:
        find_java()
    except Invalid as error:
        lines.append(str(error))
    free_mb = free_memory_mb()
    if free_mb is not None and free_mb < memory_mb:
        wanting = "the broker" if brokers == 1 else f"{brokers} brokers"
        lines.append(f"{free_mb:,.0f} MB of memory are free; Spark and {wanting} want {memory_mb:,}")
    return lines


def free_memory_mb() -> float | None:
    """What can be had without swapping; None where the system does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = [line.split()[1] for line in text.splitlines() if line.startswith("MemAvailable:")]
    return int(found[0]) / 1024 if found else None
