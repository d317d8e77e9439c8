"""Diagnosis without the spectral part on up to 1M nodes and 10M edges, compared with building the graph."""

import dataclasses

import numpy as np
import record

from gpatcher.datasets.synthetic import rmat
from gpatcher.graph.graph import Graph
from gpatcher.spectral.diagnosis import diagnose

LIMIT = 3.0


def main() -> None:
    rows = []
    diagnose(rmat(n=1000, m=5000), spectral=False)  # compile the kernels
    for nodes, edges in ((250_000, 2_500_000), (500_000, 5_000_000), (1_000_000, 10_000_000)):
        graph = rmat(n=nodes, m=edges)
        source = np.repeat(np.arange(graph.n, dtype=np.int32), np.diff(graph.indptr))
        order = np.random.default_rng(0).permutation(source.size)  # unsorted edges, as in files
        pairs = (source[order], graph.indices[order])
        build = record.timed(lambda p=pairs, g=graph: Graph.from_edge_index(p, y=g.y, num_nodes=g.n))
        # a new object each time, since a graph caches what it derives
        fresh = iter([dataclasses.replace(graph) for _ in range(3)])
        cost = record.timed(lambda f=fresh: diagnose(next(f), spectral=False))
        rows.append({"nodes": nodes, "edges": edges, "build_s": build, "diagnose_s": cost, "ratio": cost / build})
    record.write("diagnosis", rows)
    print(f"bound: ratio at most {LIMIT}")


if __name__ == "__main__":
    main()
