"""Run time of the mixer for n nodes and patches of p, as a table and as a page with the figure.

python benchmarks/mixer.py [PAGE] [MOST]    mixer.html by default; MOST nodes, 100000 by default
"""

import sys
from pathlib import Path

import record

from gpatcher.bench.runtime import NODES, run_times
from gpatcher.report.page import write_page
from gpatcher.report.runtime import runtime_figure


def main() -> None:
    page = Path(sys.argv[1] if len(sys.argv) > 1 else "mixer.html")
    most = int(sys.argv[2]) if len(sys.argv) > 2 else max(NODES)
    rows = list(run_times([n for n in NODES if n <= most]))
    record.write("mixer", rows)
    about = "two blocks, 64 features"
    write_page(page, "Run time of the mixer", about, [runtime_figure(rows)])


if __name__ == "__main__":
    main()
