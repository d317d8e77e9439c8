"""Make tables of graphs that the portfolio was not learned from, for `tools/own_tables.py`.

    apt-get download python3-graph-tool && dpkg-deb -x python3-graph-tool_*.deb graph-tool
    pip download --no-deps Orange3-Network
    python tools/held_out_graphs.py TABLES --graph-tool graph-tool --orange orange3_network-*.whl

Real ones: political blogs (in Debian's graph-tool), artists and airports (in Orange3-Network), and scikit-learn's
digits with edges to their five nearest neighbours. Generated ones: two friendship networks, in which friends tell the
gender by who they are, and a network of players with a list of games. Without an option its graphs are left out.
"""

from __future__ import annotations

import argparse
import gzip
import struct
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from real_graphs import Row, write_tables
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

Edge = tuple[str, str]
_TAGS = 8  # classes of artists: the most frequent tags


class Reader:
    """Reads graph-tool's binary format: a header, the out-neighbours of each node, then property maps."""

    def __init__(self, path: Path) -> None:
        with gzip.open(path) as file:
            self.data = file.read()
        self.at = len("⛾ gt".encode()) + 2
        self.order = ">" if self.data[self.at - 1] else "<"

    def value(self, code: str) -> Any:
        """Return the next number."""
        (number,) = struct.unpack_from(self.order + code, self.data, self.at)
        self.at += struct.calcsize(code)
        return number

    def text(self) -> str:
        """Return the next string."""
        length = self.value("Q")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def graph(self) -> tuple[int, list[tuple[int, int]], dict[str, list[Any]]]:
        """Return the number of nodes, the edges, and the property maps of the nodes by name."""
        self.text()  # comment
        self.value("?")  # directed
        n = self.value("Q")
        kind = next(code for code, limit in (("B", 1 << 8), ("H", 1 << 16), ("I", 1 << 32)) if n < limit)
        edges = [(node, self.value(kind)) for node in range(n) for _ in range(self.value("Q"))]
        properties: dict[str, list[Any]] = {}
        for _ in range(self.value("Q")):
            owner, name, value_type = self.value("B"), self.text(), self.value("B")
            values = [self._property(value_type) for _ in range((1, n, len(edges))[owner])]
            if owner == 1:
                properties[name] = values
        return n, edges, properties

    def _property(self, value_type: int) -> Any:
        if value_type == 6:
            return self.text()
        if value_type < 5:
            return self.value("Bhiqd"[value_type])
        return [self.value("hiqd"[value_type - 8]) for _ in range(self.value("Q"))]  # vectors of numbers


def blogs(folder: Path) -> tuple[list[Row], list[Edge]]:
    """Return political blogs and the links between them; the label is the side."""
    n, edges, properties = Reader(next(folder.rglob("polblogs.gt.gz"))).graph()
    linked = {node for edge in edges for node in edge}
    sides = ("left", "right")
    rows = [
        {"id": f"b{i}", "label": sides[int(properties["value"][i])], "url": properties["label"][i]}
        for i in range(n)
        if i in linked
    ]
    return rows, [(f"b{i}", f"b{j}") for i, j in edges if i != j]


def read_orange(wheel: Path, table: str, network: str) -> tuple[list[Row], list[Edge]]:
    """Return the rows of a table of Orange, and the edges of a network in Pajek's format."""
    with zipfile.ZipFile(wheel) as archive:
        names = (f"orangecontrib/network/networks/{name}" for name in (table, network))
        lines, net = (archive.read(name).decode("latin1").splitlines() for name in names)
    header = lines[0].split("\t")
    rows = [
        dict(zip(header, line.split("\t"), strict=True)) | {"id": str(number)}
        for number, line in enumerate(lines[3:], 1)
    ]
    start = max(number for number, line in enumerate(net) if line.startswith("*"))
    return rows, [(line.split()[0], line.split()[1]) for line in net[start + 1 :] if line.strip()]


def digits() -> tuple[list[Row], list[Edge]]:
    """Return images of digits with edges to their nearest neighbours."""
    x, y = load_digits(return_X_y=True)
    near = kneighbors_graph(x, 5).tocoo()
    rows = [
        {"id": f"d{i}", "label": f"c{y[i]}", **{f"p{j}": int(v) for j, v in enumerate(x[i])}} for i in range(len(y))
    ]
    return rows, [(f"d{i}", f"d{j}") for i, j in zip(near.row, near.col, strict=True)]


def draw_pairs(
    m: int, activity: Any, logit: Callable[[Any, Any], Any], rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Draw m pairs by activity, each kept with a probability that depends on its ends."""
    keys: dict[tuple[int, int], None] = {}
    chance = activity / activity.sum()
    while len(keys) < m:
        i, j = rng.choice(len(activity), (2, 20 * m), p=chance)
        kept = (i != j) & (rng.random(i.size) < 1 / (1 + np.exp(-logit(i, j))))
        pairs = zip(np.minimum(i, j)[kept].tolist(), np.maximum(i, j)[kept].tolist(), strict=True)
        keys |= dict.fromkeys(pairs)
    return sorted(list(keys)[:m])


def friends(n: int, m: int, seed: int) -> tuple[list[Row], list[Edge]]:
    """Draw a friendship network: people prefer a year, a dormitory and, each in their own way, a gender."""
    rng = np.random.default_rng(seed)
    gender, dorm, school = rng.integers(0, 2, n), rng.integers(0, 25, n), rng.integers(0, n // 3, n)
    year = rng.choice(range(2004, 2010), n, p=[0.05, 0.15, 0.2, 0.2, 0.2, 0.2])
    major = rng.zipf(1.5, n) % 60
    major = np.where(rng.random(n) < 0.35, major // 2 * 2 + gender, major)
    activity, preference = np.minimum(rng.pareto(2.0, n) + 0.3, 6), rng.normal(0, 0.35, n)

    def logit(i: Any, j: Any) -> Any:
        alike = 2.2 * (year[i] == year[j]) + 1.2 * (dorm[i] == dorm[j]) + 0.15 * (gender[i] == gender[j])
        return alike - 4.2 + preference[i] * (2 * gender[j] - 1) + preference[j] * (2 * gender[i] - 1)

    edges = [(f"u{i}", f"u{j}") for i, j in draw_pairs(m, activity, logit, rng)]
    missing = rng.random((n, 2)) < 0.1
    rows = [
        {"id": f"u{i}", "label": "MF"[gender[i]], "status": int(rng.integers(1, 4)), "year": int(year[i])}
        | {"major": "" if missing[i, 0] else int(major[i]), "dorm": "" if missing[i, 1] else int(dorm[i])}
        | {"school": int(school[i])}
        for i in range(n)
    ]
    return rows, edges


def players(n: int, m: int, seed: int) -> tuple[list[Row], list[Edge]]:
    """Draw players with a list of games; a weak trait shows in their games, their friends and their activity."""
    rng = np.random.default_rng(seed)
    activity, trait = np.minimum(rng.pareto(1.3, n) + 0.2, 40), rng.normal(size=(n, 4))
    games, popular = rng.normal(size=(3170, 4)), np.arange(1, 3171) ** -0.8
    mature = 0.6 * trait[:, 0] + 0.25 * np.log(activity) + 1.2 * rng.normal(size=n) > 0.8
    pairs = draw_pairs(m, activity, lambda i, j: 0.5 * (trait[i] * trait[j]).sum(1) - 2, rng)
    rows = []
    for i in range(n):
        weights = popular * np.exp(0.4 * games @ trait[i])
        played = rng.choice(len(games), max(3, rng.poisson(20)), replace=False, p=weights / weights.sum())
        rows.append(
            {"id": f"s{i}", "label": ("all", "mature")[int(mature[i])], "games": ";".join(map(str, sorted(played)))}
        )
    return rows, [(f"s{i}", f"s{j}") for i, j in pairs]


def main() -> None:
    """Write the graphs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--graph-tool", type=Path, help="Debian's package, unpacked")
    parser.add_argument("--orange", type=Path, help="wheel of Orange3-Network")
    options = parser.parse_args()
    pixels = tuple(f"p{j}" for j in range(64))
    write_tables(options.folder / "digits", pixels, *digits(), 20)
    people = ("status", "major", "dorm", "year", "school")
    write_tables(options.folder / "friends", people, *friends(2200, 91000, 1), None)
    write_tables(options.folder / "friends-small", people, *friends(960, 18800, 2), None)
    write_tables(options.folder / "players", ("games",), *players(1900, 31000, 3), None)
    if options.graph_tool:
        write_tables(options.folder / "blogs", ("url",), *blogs(options.graph_tool), None)
        write_tables(options.folder / "blogs-few", ("url",), *blogs(options.graph_tool), 30)
    if options.orange:
        rows, edges = read_orange(options.orange, "lastfm.tab", "lastfm.net")
        frequent = {tag for tag, _ in Counter(row["best tag"] for row in rows).most_common(_TAGS)}
        for row in rows:
            row["label"] = row["best tag"] if row["best tag"] in frequent else ""
        columns = ("last album", "first album", "album count", "listeners", "plays", "albums")
        write_tables(options.folder / "artists", columns, rows, edges, None)
        rows, edges = read_orange(options.orange, "airtraffic_items.tab", "airtraffic.net")
        rows = [row | {"label": row["FAA Hub"]} for row in rows]
        write_tables(
            options.folder / "airports", ("Lufthansa", "American Airlines", "United", "Adria"), rows, edges, None
        )


if __name__ == "__main__":
    main()
