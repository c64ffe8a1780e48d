"""What `make demo` shows: a broker, and streams that real clients of both protocols send through it.

    confluent-kafka  --->             --->  kafka-python, aiokafka        both get everything
                          anabranch
    pulsar-client    --->             --->  shared, key_shared            three consumers each share it

First a trickle, slow enough to watch and to time each message; then a flood, as fast as the clients go.  What
each side must end up with is said in `kafka_half` and `pulsar_half`.  The broker is a process of its own in a
temporary folder, on free ports, and is stopped as an operator would stop it.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from half import Row
from kafka_half import KafkaHalf
from pulsar_half import PulsarHalf
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

START_SECONDS = 15
BAR = 30

AnyHalf = KafkaHalf | PulsarHalf


@contextmanager
def broker(folder: Path, console: Console) -> Iterator[dict[str, str]]:
    """A broker in `folder`, its addresses, and a clean stop at the end."""
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "anabranch.cli.main", "standalone", "--data", str(folder / "data")]
    started = time.monotonic()
    process = subprocess.Popen(
        [*command, "--kafka-port", "0", "--ready-file", str(ready)], stdout=subprocess.DEVNULL
    )
    try:
        while not ready.exists():
            if process.poll() is not None or time.monotonic() - started > START_SECONDS:
                raise SystemExit("the broker did not start; its reason is above")
            time.sleep(0.01)
        at = json.loads(ready.read_text())
        seconds = time.monotonic() - started
        console.print(
            f"[green]✓[/] broker from nothing to serving in {seconds:.2f} s: "
            f"Kafka [bold]{at['kafka']}[/], Pulsar [bold]{at['pulsar']}[/], HTTP [bold]{at['http']}[/]"
        )
        yield at
        memory = _memory_mb(process.pid)
        console.print(f"[green]✓[/] broker memory after all that: {memory:.0f} MB" if memory else "")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            raise SystemExit("the broker did not stop when told to") from None
    if code != 0:
        raise SystemExit(f"the broker stopped with exit code {code}")
    console.print("[green]✓[/] broker stopped cleanly")


def _memory_mb(pid: int) -> float | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return None
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kilobytes) / 1024


def picture(halves: list[AnyHalf]) -> Group:
    parts: list[Text | Table] = []
    for half in halves:
        phase = "a flood" if half.flood_started else "a trickle, to watch"
        table = Table(box=None, padding=(0, 2), show_header=False)
        table.add_column(no_wrap=True, min_width=18)
        table.add_column(justify="right", no_wrap=True, min_width=7)
        table.add_column(no_wrap=True, min_width=BAR)
        for row in half.rows():
            table.add_row(row.name, f"{row.messages:,}", _bar(row))
        flowing = [Text(f"  {line}", style="cyan") for line in half.latest]
        parts += [Text(f"{half.protocol}: {half.what}: {phase}", style="bold"), table, *flowing]
    return Group(*parts)


def _bar(row: Row) -> str:
    return "█" * (BAR * row.messages // row.total) or "▏"


def watch(halves: list[AnyHalf], console: Console) -> None:
    """Show the streams until everybody has everything."""
    if console.is_terminal:
        with Live(picture(halves), console=console, refresh_per_second=12) as live:
            while not all(half.done for half in halves):
                time.sleep(0.08)
                live.update(picture(halves))
            live.update(picture(halves))
        return
    while not all(half.done for half in halves):
        for half in halves:
            console.print("  " + ", ".join(f"{row.name} {row.messages:,}" for row in half.rows()))
        time.sleep(1)


def verdict(halves: list[AnyHalf], console: Console) -> bool:
    """Say what came of it.  True if all that was to hold holds."""
    claims = [claim for half in halves for claim in half.claims()]
    for claim in claims:
        console.print(f"{'[green]✓[/]' if claim.holds else '[red]✗[/]'} {claim.words}")
    return all(claim.holds for claim in claims)


def main() -> int:
    console = Console(highlight=False, soft_wrap=True)
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-demo-") as folder,
        broker(Path(folder), console) as at,
        closing(PulsarHalf(at["pulsar"])) as pulsar_half,
    ):
        kafka_half = KafkaHalf(at["kafka"])
        halves: list[AnyHalf] = [kafka_half, pulsar_half]
        for half in halves:
            half.start()
        watch(halves, console)
        for half in halves:
            half.join()
        good = verdict(halves, console)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
