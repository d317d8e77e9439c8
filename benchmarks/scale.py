"""Figure of growth and cost model of docs/how-to/scale.md, from the records of growth.py and hundred_million.py.

python benchmarks/scale.py

A figure is measured where the record has it. Others are extrapolated by the fitted exponent of the stage, by 1 at
least; patches, epochs and predictions are divided by the number of machines, building the graph is not. The table of
patches is estimated by the function that ``gpatcher patches --dry-run`` uses. What hundred_million.py has measured so
far is set beside what the model says.
"""

import json
import math
from pathlib import Path
from typing import Any

import record
from growth import DEGREE, EXTRACTOR, FEATURES

from gpatcher.io import write_text
from gpatcher.runs.estimate import estimate_table

ROOT = Path(__file__).parents[1]
PAGE, FIGURE = ROOT / "docs" / "how-to" / "scale.md", ROOT / "docs" / "images" / "growth.svg"
START, END = "<!-- made by benchmarks/scale.py -->\n", "<!-- end -->\n"
NODES = (1_000_000, 16_000_000, 111_000_000)  # the last as many as ogbn-papers100M has
MACHINES = (1, 8, 64)
PRICE = 0.1  # USD for an hour of a machine of 2 cores, an assumption
BUILD, PATCHES, EPOCH, PREDICT = (
    "build the graph",
    "patches of all nodes",
    "an epoch on a tenth of the nodes",
    "prediction of all nodes",
)
GIB = 2**30
# stage of hundred_million.py, stage of the model, and the part of it for n nodes
MEASURED = {
    "generate": None,
    "store": (BUILD, lambda n: 1.0),
    "sample patches": (PATCHES, lambda n: 0.001),
    "recall": None,
    "all patches": (PATCHES, lambda n: 1.0),
    "train": (EPOCH, lambda n: 0.1),
    "predict": (PREDICT, lambda n: 1_000_000 / n),
}


def curves(rows: list[dict[str, Any]]) -> dict[str, dict[int, float]]:
    """Return the seconds of each stage by the number of nodes."""
    sizes = [name for name in rows[0] if name.endswith(" nodes, s")]
    return {row["stage"]: {int(name.split()[0].replace(",", "")): row[name] for name in sizes} for row in rows}


def seconds(curve: dict[int, float], exponent: float, nodes: int) -> float:
    """Return the measured seconds, or those of the largest measured size scaled by the exponent, by 1 at least."""
    largest = max(curve)
    return curve.get(nodes, curve[largest] * (nodes / largest) ** max(exponent, 1.0))


def text(value: float, measured: bool) -> str:
    """Return seconds in a unit that suits them, extrapolated ones in italics."""
    units = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
    size, unit = next((size, unit) for size, unit in units if value >= 2 * size or unit == "s")
    figure = f"{value / size:,.0f} {unit}" if value >= 10 * size else f"{value / size:.1f} {unit}"
    return figure if measured else f"*{figure}*"


def model(data: dict[str, Any]) -> list[str]:
    """Return the lines of the table of costs."""
    cores = data["environment"]["cores"]
    exponents = {row["stage"]: row["exponent"] for row in data["rows"]}
    stages = curves(data["rows"])
    columns = ["nodes", "machines", "build", "patches", "epoch", "prediction", "machine-hours", "USD"]
    lines = [columns, ["---:"] * len(columns)]
    for nodes in NODES:
        known = nodes in stages[BUILD]
        alone = {name: seconds(curve, exponents[name], nodes) for name, curve in stages.items()}
        for machines in MACHINES:
            table = estimate_table(nodes, EXTRACTOR.size, alone[PATCHES] * cores / nodes, cores * machines)
            times = {name: alone[name] / machines for name in (EPOCH, PREDICT)} | {PATCHES: table.seconds}
            shared = [text(times[name], known and machines == 1) for name in (PATCHES, EPOCH, PREDICT)]
            hours = (alone[BUILD] + machines * (table.seconds + 5 * times[EPOCH] + times[PREDICT])) / 3600
            money = [f"*{hours:,.2g}*", f"*{hours * PRICE:,.2g}*"]
            lines.append([f"{nodes:,}", str(machines), text(alone[BUILD], known), *shared, *money])
    return [f"| {' | '.join(line)} |" for line in lines]


def storage() -> list[str]:
    """Return the lines of the table of bytes, which are counted."""
    columns = ["nodes", "edges", "graph, GiB", "features, GiB", "patches, GiB", "memory of a worker, GiB"]
    lines = [columns, ["---:"] * len(columns)]
    for nodes in NODES:
        edges = DEGREE * nodes
        table = estimate_table(nodes, EXTRACTOR.size, 0.0, 1)
        arrays = [8 * (nodes + 1) + 8 * edges, 4 * FEATURES * nodes, table.disk, 9 * nodes + table.memory]
        lines.append([f"{nodes:,}", f"{edges:,}", *(f"{size / GIB:.2g}" for size in arrays)])
    return [f"| {' | '.join(line)} |" for line in lines]


def measured(rows: list[dict[str, Any]], data: dict[str, Any]) -> list[str]:
    """Return the lines of the table of what was measured on large graphs, none without a record."""
    if not rows:
        return []
    exponents = {row["stage"]: row["exponent"] for row in data["rows"]}
    stages = curves(data["rows"])
    columns = ["nodes", "edges", "stage", "measured", "on the cores", "model", "memory, GB", "disk, GB", "other work"]
    lines = [[*columns, "result"], ["---:"] * 2 + ["---"] + ["---:"] * 6 + ["---"]]
    for row in sorted(rows, key=lambda row: (-row["nodes"], list(MEASURED).index(row["stage"]))):
        model = ""
        if (known := MEASURED[row["stage"]]) is not None:
            stage, part = known
            whole = seconds(stages[stage], exponents[stage], row["nodes"])
            model = text(whole * part(row["nodes"]), False)
        times = [text(row["seconds"], True), text(row["cpu_seconds"], True), model]
        sizes = [f"{row['peak_gb']:.1f}", f"{row['disk_gb']:.1f}", f"{row['other_cores']:.1f} cores"]
        lines.append([f"{row['nodes']:,}", f"{row['edges']:,}", row["stage"], *times, *sizes, row["result"]])
    intro = (
        "Measured by `benchmarks/hundred_million.py` on one machine of two cores: an R-MAT graph with as many nodes",
        "and edges as ogbn-papers100M and a quarter, 32 features in a file, patches of 32. The model, extrapolated,",
        "is that of the first table, for ten edges per node and 128 features. Memory is without pages of mapped files.",
        "Other work is the mean number of cores that other processes used. The first stage draws the edges.",
    )
    return [*intro, "", *(f"| {' | '.join(line)} |" for line in lines), ""]


def figure(rows: list[dict[str, Any]]) -> str:
    """Return a figure with logarithmic axes: seconds of each stage against the number of nodes."""
    stages = curves(rows)
    sizes = sorted(stages[BUILD])
    values = [value for curve in stages.values() for value in curve.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    left, top, width, height = 70.0, 20.0, 420.0, 300.0

    def x(nodes: float) -> float:
        return left + width * math.log(nodes / sizes[0]) / math.log(sizes[-1] / sizes[0])

    def y(value: float) -> float:
        return top + height * (high - math.log10(value)) / (high - low)

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 370" font-family="sans-serif" font-size="13">',
        '<rect width="760" height="370" fill="#fff"/>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<path d="M{left} {at:.1f}H{left + width}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:,g} s</text>')
    for nodes in sizes:
        label = f"{nodes / 1e6:g}M nodes"
        parts.append(f'<path d="M{x(nodes):.1f} {top}V{top + height}" stroke="#ddd"/>')
        parts.append(f'<text x="{x(nodes):.1f}" y="{top + height + 20}" text-anchor="middle">{label}</text>')
    ends = sorted((y(curve[sizes[-1]]), name) for name, curve in stages.items())
    exponents = {row["stage"]: row["exponent"] for row in rows}
    below = 0.0
    for (at, name), colour in zip(ends, ("#0072b2", "#d55e00", "#009e73", "#8a4f7d"), strict=True):
        points = [(x(nodes), y(stages[name][nodes])) for nodes in sizes]
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"/>' for a, b in points]
        below = max(at + 4, below + 32)
        place = f'x="{left + width + 12}" fill="{colour}"'
        parts.append(f'<text y="{below:.1f}" {place}>{name}</text>')
        parts.append(f'<text y="{below + 15:.1f}" {place}>exponent {exponents[name]:.2f}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def made() -> dict[Path, str]:
    """Return the text of the page and of the figure."""
    data = json.loads((record.RESULTS / "growth.json").read_text())
    before, _, rest = PAGE.read_text().partition(START)
    large = record.RESULTS / "hundred_million.json"
    rows = json.loads(large.read_text())["rows"] if large.exists() else []
    lines = [*model(data), "", *storage(), "", *measured(rows, data)]
    return {PAGE: before + START + "\n".join(lines) + END + rest.partition(END)[2], FIGURE: figure(data["rows"])}


if __name__ == "__main__":
    for path, content in made().items():
        write_text(path, content)
