"""Counts and times of requests in the text format of Prometheus, added up over all workers."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path

import numpy as np

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATHS = ("predict", "explain", "health", "metrics", "page", "other")
STATUSES = (200, 400, 401, 404, 405, 408, 413, 421, 422, 500, 503)
KINDS = ("known", "unseen")
BOUNDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
_FILE = "metrics-{}.npy"
_SHAPES = {
    "requests": (len(PATHS), len(STATUSES) + 1),
    "seconds": (len(PATHS), len(BOUNDS) + 1),
    "total": (len(PATHS),),
    "nodes": (len(KINDS),),
}


class Metrics:
    """Counters of one worker, in a file of its own in a folder that all workers share.

    Only the worker writes its file, so no lock is needed; files of workers that ended still count.

    Parameters
    ----------
    folder : Path
        Where the files of all workers are.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     metrics = Metrics(Path(scratch))
    ...     metrics.count("health", 200, 0.001)
    ...     'gpatcher_requests_total{path="health",status="200"} 1' in metrics.text({}).splitlines()
    True
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        size = sum(int(np.prod(shape)) for shape in _SHAPES.values())
        path = folder / _FILE.format(os.getpid())
        self._own = _split(np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(size,)))

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        row = PATHS.index(path)
        column = STATUSES.index(status) if status in STATUSES else len(STATUSES)
        self._own["requests"][row, column] += 1
        self._own["seconds"][row, bisect_left(BOUNDS, seconds)] += 1
        self._own["total"][row] += seconds

    def count_nodes(self, kind: str, number: int) -> None:
        """Count nodes that were predicted, known or unseen."""
        self._own["nodes"][KINDS.index(kind)] += number

    def text(self, run: Mapping[str, object], ready: float = 1.0) -> str:
        """Return the page; ``run`` are labels that describe the run, ``ready`` the fraction of its predictions."""
        files = [np.load(path, mmap_mode="r", allow_pickle=False) for path in self.folder.glob(_FILE.format("*"))]
        sums = _split(np.sum(files, axis=0))
        lines = [
            "# HELP gpatcher_requests_total Requests that were answered.",
            "# TYPE gpatcher_requests_total counter",
        ]
        for path, row in zip(PATHS, sums["requests"], strict=True):
            for status, value in zip((*STATUSES, "other"), row, strict=True):
                if value:
                    lines.append(f'gpatcher_requests_total{{path="{path}",status="{status}"}} {value:.0f}')
        lines += ["# HELP gpatcher_request_seconds Time of a request.", "# TYPE gpatcher_request_seconds histogram"]
        for path, row, total in zip(PATHS, sums["seconds"].cumsum(1), sums["total"], strict=True):
            for bound, value in zip((*BOUNDS, "+Inf"), row, strict=True):
                lines.append(f'gpatcher_request_seconds_bucket{{path="{path}",le="{bound}"}} {value:.0f}')
            lines.append(f'gpatcher_request_seconds_sum{{path="{path}"}} {total}')
            lines.append(f'gpatcher_request_seconds_count{{path="{path}"}} {row[-1]:.0f}')
        lines += ["# HELP gpatcher_nodes_total Nodes that were predicted.", "# TYPE gpatcher_nodes_total counter"]
        for kind, value in zip(KINDS, sums["nodes"], strict=True):
            lines.append(f'gpatcher_nodes_total{{kind="{kind}"}} {value:.0f}')
        lines += [
            "# HELP gpatcher_ready_ratio Fraction of the predictions for nodes of the graph that are made.",
            "# TYPE gpatcher_ready_ratio gauge",
            f"gpatcher_ready_ratio {ready:.6g}",
        ]
        lines += ["# HELP gpatcher_run_info The run that is served.", "# TYPE gpatcher_run_info gauge"]
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in run.items())
        lines.append(f"gpatcher_run_info{{{labels}}} 1")
        return "\n".join(lines) + "\n"


def _split(values: np.ndarray) -> dict[str, np.ndarray]:
    """Return the counters as views of one array."""
    views, at = {}, 0
    for name, shape in _SHAPES.items():
        size = int(np.prod(shape))
        views[name] = values[at : at + size].reshape(shape)
        at += size
    return views


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
