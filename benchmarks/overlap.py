"""Overlap patches: nodes/s compared with SciPy's product of all rows, of which a sample is timed.

python benchmarks/overlap.py
"""

from functools import partial

import numpy as np
import record
import scipy.sparse as sp

from gpatcher.datasets.synthetic import rmat
from gpatcher.patches import Overlap, extract_patches
from gpatcher.patches.direction import step_matrix

_SAMPLE, _BLOCK = 20_000, 1000  # nodes of the peer, and of one product
_SHAPES = ((200_000, 2_000_000), (1_000_000, 10_000_000))  # nodes, undirected edges
_THRESHOLDS = (0.95, 0.8)


def multiply(rows: sp.csr_array, threshold: float) -> int:
    """Compare a sample of the rows with all rows; return the number of cosines that reach the threshold."""
    count = 0
    columns = sp.csr_array(rows.T)
    nodes = np.random.default_rng(0).choice(rows.shape[0], _SAMPLE, replace=False)
    for block in np.split(nodes, _SAMPLE // _BLOCK):
        count += int(((rows[block] @ columns).data >= threshold).sum())
    return count


def main() -> None:
    """Measure two graphs."""
    extract_patches(rmat(n=1000, m=5000), Overlap())  # compiles
    lines = []
    for n, m in _SHAPES:
        graph = rmat(n=n, m=m)
        step = step_matrix(graph, False, "both")
        norms = np.sqrt(step.multiply(step).sum(axis=1))
        rows = sp.csr_array(step.multiply(1 / np.maximum(norms, 1e-300)[:, None]))
        for threshold in _THRESHOLDS:
            record.reset_peak()
            before = record.memory_bytes("VmRSS")
            seconds = record.timed(partial(extract_patches, graph, Overlap(threshold=threshold)))
            peak = record.memory_bytes("VmHWM") - before
            theirs = record.timed(partial(multiply, rows, threshold), 1)
            speed, peer = n / seconds, _SAMPLE / theirs
            lines.append({"nodes": n, "edges": m, "threshold": threshold, "nodes/s": speed, "scipy_nodes/s": peer})
            lines[-1] |= {"ratio": speed / peer, "added_MiB": peak / 2**20}
    record.write("overlap", lines)


if __name__ == "__main__":
    main()
