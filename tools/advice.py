"""Check the advice of `gpatcher diagnose` on the data sets: is the source that it names the best one?

    python tools/advice.py        # results/portfolio/log.jsonl → results/portfolio/advice.csv

The candidates of the portfolio are grouped by the source of information they rely on most. The advice is correct if the
best candidate of the recommended group has the highest validation score of all, or is within one standard error of it.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
from candidates import POOL

from gpatcher.datasets.load import load_graph
from gpatcher.datasets.registry import NAMED, canonical_key
from gpatcher.spectral.probes import best_source, probe_sources

RESULTS = Path(__file__).parents[1] / "results/portfolio"
GROUPS = {
    "columns": "node",
    "adjacency": "adjacency",
    "two_hop_labels": "adjacency",
    "neighbours": "neighbours",
    "labels": "neighbours",
}


def group_of(name: str) -> str:
    """Return the main source of a candidate: the node itself, its adjacency rows, or its neighbours."""
    settings = next(candidate.settings for candidate in POOL if candidate.name == name)
    if settings.get("features", {}).get("adjacency_features"):
        return "adjacency"
    return "node" if name == "node first" else "neighbours"


def main() -> None:
    """Write a row per data set."""
    known = {candidate.name for candidate in POOL}
    records = [json.loads(line) for line in (RESULTS / "log.jsonl").read_text().splitlines()]
    rows = []
    for dataset in sorted({r["dataset"] for r in records if canonical_key(r["dataset"]) in NAMED}):
        graph = load_graph(dataset)
        scores: dict[str, dict[str, list[float]]] = {}
        for record in records:
            if record["dataset"] == dataset and record["candidate"] in known:
                by_name = scores.setdefault(group_of(record["candidate"]), {})
                by_name.setdefault(record["candidate"], []).append(record["val"])
        best = {group: max(float(np.mean(values)) for values in names.values()) for group, names in scores.items()}
        highest = max(best.values())
        nodes = len(graph.splits[0].val) * len({r["split"] for r in records if r["dataset"] == dataset})
        error = float(np.sqrt(highest * (1 - highest) / nodes))
        source = best_source(probe_sources(graph))
        group = GROUPS.get(source or "", "none")  # no advice is not right
        right = group != "none" and best[group] >= highest - error
        row = {"dataset": dataset, "source": source or "none", "group": group, "error": round(error, 4)}
        rows.append(row | {group: round(figure, 4) for group, figure in sorted(best.items())} | {"right": int(right)})
        print(rows[-1], flush=True)
    with (RESULTS / "advice.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"right on {sum(row['right'] for row in rows)} of {len(rows)}")


if __name__ == "__main__":
    main()
