"""Draw a result of bench/anchors: a line a figure, its ratio to Kafka's or Pulsar's, its spread, its target.

    python bench/plot.py bench/results/2026-11-15-matrix.json        writes the .svg beside it

The axis is logarithmic: half and double are equally far from 1.  The bar is the spread of the pairs, the
dot their median, the tick the target; the shaded side is where the target is met.  What has a bound in
seconds of its own has our median beside it.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, ROW = 1000, 430, 180, 96, 24
LEAST, GREATEST = 0.02, 8.0
TICKS = (0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8)
LABELS = {
    "records_s": "throughput",
    "records_per_s": "throughput",
    "cpu_per_record": "broker CPU a record",
    "broker_peak_rss_mb": "memory",
    "ack_ms.p50": "acknowledged, p50",
    "ack_ms.p99": "acknowledged, p99",
    "e2e_ms.p50": "consumed, p50",
    "e2e_ms.p99": "consumed, p99",
    "end_to_end_ms.p50": "consumed, p50",
    "end_to_end_ms.p99": "consumed, p99",
    "redelivery_ms.p50": "delivered again, p50",
    "seek_ms.p50": "seek answered, p50",
    "seek_to_message_ms.p50": "seek to message, p50",
    "settled_s": "until all is owned",
    "commits_s": "commits a second",
    "offsets_s": "offsets a second",
    "cpu_per_commit": "broker CPU a commit",
    "rows_s": "rows a second",
    "latency_ms.p50": "from topic to topic, p50",
    "latency_ms.p99": "from topic to topic, p99",
    "ack_s": "until the next acknowledgement",
    "commit_s": "until the next commit of a group",
    "transaction_s": "until the next transaction",
    "moved_s": "until all are led by others",
}
GOOD, BAD, PLAIN = "#1a7f37", "#c93c37", "#57606a"


def x_of(ratio: float) -> float:
    clipped = min(max(ratio, LEAST), GREATEST)
    share = math.log(clipped / LEAST) / math.log(GREATEST / LEAST)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def text(x: float, y: float, words: str, anchor: str = "start", style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {style}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1.0) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def draw_figure(y: float, label: str, found: dict[str, Any]) -> list[str]:
    met = found.get("met", found.get("met_s"))
    colour = PLAIN if met is None else GOOD if met else BAD
    parts = [text(LEFT - 12, y + 4, label, "end", f'fill="{PLAIN}"')]
    if "target" in found:
        sign, bound = found["target"].split()
        at = x_of(float(bound))
        start, end = (at, x_of(GREATEST)) if sign == ">=" else (x_of(LEAST), at)
        parts.append(
            f'<rect x="{start:.1f}" y="{y - 8}" width="{end - start:.1f}" height="16" fill="#1a7f3714"/>'
        )
        parts.append(line(at, y - 9, at, y + 9, "#24292f", 2))
    parts.append(line(x_of(found["least"]), y, x_of(found["greatest"]), y, colour, 5))
    parts.append(f'<circle cx="{x_of(found["ratio"]):.1f}" cy="{y}" r="6" fill="{colour}"/>')
    told = f"{found['ratio']:.2f}x"
    if "target" in found:
        told += f"  ({found['target']})"
    elif "target_s" in found:
        told += f"  {found['anabranch']:.2f} s  (<= {found['target_s']:g} s)"
    parts.append(text(WIDTH - RIGHT + 12, y + 4, told, "start", f'fill="{colour}"'))
    return parts


def draw(report: dict[str, Any]) -> str:
    body: list[str] = []
    y = TOP
    for row in report["rows"]:
        y += 12
        body.append(text(16, y + 4, row["name"], "start", 'font-weight="600"'))
        body.append(text(16, y + 18, f"{row['pairs']} pairs", "start", f'font-size="11" fill="{PLAIN}"'))
        for path, found in row["ratios"].items():
            body += draw_figure(y, LABELS[path], found)
            y += ROW
    grid = []
    for tick in TICKS:
        grid.append(line(x_of(tick), TOP - 14, x_of(tick), y, "#24292f" if tick == 1 else "#d8dee4"))
        grid.append(text(x_of(tick), TOP - 20, f"{tick}x", "middle", f'font-size="11" fill="{PLAIN}"'))
    facts = report["machine"]
    peer, client = "Apache Kafka", f"Apache Kafka {facts['kafka']}, librdkafka {facts['librdkafka']}"
    if "pulsar" in facts:
        peer, client = "Apache Pulsar", f"Apache Pulsar {facts['pulsar']}, pulsar-client {facts['client']}"
    if "connector" in facts:
        peer = "Spark's Kafka connector"
        client = f"PySpark {facts['pyspark']}, connector {facts['connector']}, our broker"
    if "before" in facts:
        peer, client = f"commit {facts['before']}", f"librdkafka {facts['librdkafka']}"
    under = (
        f"{report['at'][:10]}, commit {facts['commit']}, {client}, {facts['cores']} cores of {facts['cpu']}"
    )
    head = [
        text(
            16,
            28,
            f"Ours / {peer}, same machine, alternating runs",
            "start",
            'font-size="17" font-weight="600"',
        ),
        text(16, 48, under, "start", f'font-size="11" fill="{PLAIN}"'),
    ]
    height = y + 16
    style = 'font-family="system-ui, sans-serif" font-size="13"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {style}>'
    return "\n".join(
        [opening, f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>', *head, *grid, *body, "</svg>"]
    )


def draw_beside(path: Path) -> Path:
    """The picture of a result, in a file beside it."""
    report = json.loads(path.read_text())
    if "rows" not in report:
        sys.exit(f"{path} has no rows to draw: it was made without --what matrix")
    picture = path.with_suffix(".svg")
    picture.write_text(draw(report) + "\n")
    return picture


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[1:]:
        print(draw_beside(Path(name)))


if __name__ == "__main__":
    main()
