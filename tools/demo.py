"""The demo: graphs from homophilous to heterophilous, what the diagnosis says of each, and a page for two of them."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gpatcher.data import load_graph
from gpatcher.diagnosis import diagnose
from gpatcher.report.diagnosis import write_diagnosis

GRAPHS = {
    "homophilous": "csbm:phi=0.75,n=2000,features=200",
    "features only": "csbm:phi=0,n=2000,features=200",
    "heterophilous": "csbm:phi=-0.75,n=2000,features=200",
    "colouring": "colouring:n=1200,colours=4",
    "board": "board:rows=50,columns=50",
    "large": "rmat:n=200000,m=2000000",
}
PAGES = ("homophilous", "heterophilous")

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pages")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    console = Console()
    table = Table("graph", "nodes", "edges", title="What gpatcher diagnose says", title_justify="left")
    for column in ("hetero-\nphily", "adjusted\nhomophily", "informa-\ntiveness", "fre-\nquency", "try"):
        table.add_column(column, justify="left" if column == "try" else "right")
    for name, source in GRAPHS.items():
        with console.status(f"{name}: {source}"):
            found = diagnose(load_graph(source))
            if name in PAGES:
                write_diagnosis(found, out / f"{name}.html")
        numbers = (
            found.node_heterophily,
            found.adjusted_homophily,
            found.label_informativeness,
            found.label_frequency,
        )
        table.add_row(
            name,
            f"{found.nodes:,}",
            f"{found.edges:,}",
            *("" if v is None else f"{v:.2f}" for v in numbers),
            found.extractor,
        )
    console.print(table)
    console.print(f"Pages: {', '.join(str(out / f'{name}.html') for name in PAGES)}")
