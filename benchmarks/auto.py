"""The default of `gpatcher fit` on own tables: from two CSV files to the page, against one configuration.

python benchmarks/auto.py

The tables are those of 2,200 generated people with 91,000 friendships (``friends`` of tools/held_out_graphs.py).
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import record

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from held_out_graphs import friends
from real_graphs import write_tables

RUNS = {"one configuration": ["--model", "gpatcher"], "quick": ["--quality", "quick"], "good": ["--quality", "good"]}


def main() -> None:
    """Run each command once, with compiled kernels cached."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "friends"
        write_tables(folder, ("status", "major", "dorm", "year", "school"), *friends(2200, 91000, 1), None)
        tables = ["--nodes", str(folder / "nodes.csv"), "--edges", str(folder / "edges.csv")]
        subprocess.run([*record.COMMAND, "fit", *tables, "--quality", "quick", "--out", f"{scratch}/warm"], check=True)
        for name, options in RUNS.items():
            out = Path(scratch) / name.replace(" ", "-")
            started = time.perf_counter()
            subprocess.run([*record.COMMAND, "fit", *tables, *options, "--out", str(out)], check=True)
            seconds = time.perf_counter() - started
            training = json.loads((out / "records.jsonl").read_text().splitlines()[-1])["train_seconds"]
            rows.append({"what": name, "seconds to the page": seconds, "of it training": training})
    for row in rows:
        row["times one configuration"] = row["seconds to the page"] / rows[0]["seconds to the page"]
        row["bound"] = "120 s; 12 x" if row["what"] == "good" else ""
    record.write("auto", rows)


if __name__ == "__main__":
    main()
