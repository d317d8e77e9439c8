"""Measure the named data sets that are on this machine, for the list that `gpatcher datasets` prints.

python tools/datasets.py [root]    (folder of the data sets; by default $GPATCHER_DATA)
"""

import json
import sys
from pathlib import Path

import gpatcher.cli.inspect
from gpatcher.datasets.load import load_dataset
from gpatcher.datasets.registry import NAMED, is_present
from gpatcher.io import write_json
from gpatcher.spectral.diagnosis import diagnose

PATH = Path(gpatcher.cli.inspect.__file__).with_name("datasets.json")
MEASURES = ("nodes", "edges", "classes", "features")


def measure(key: str, root: str | None = None) -> dict[str, float]:
    """Return the statistics of one data set."""
    result = diagnose(load_dataset(key, root), spectral=False)
    return {name: getattr(result, name) for name in MEASURES} | {"heterophily": round(result.node_heterophily, 4)}


if __name__ == "__main__":
    root = sys.argv[1] if len(sys.argv) > 1 else None
    measured = json.loads(PATH.read_text()) if PATH.is_file() else {}
    measured |= {key: measure(key, root) for key in NAMED if is_present(key, root)}
    write_json(PATH, {key: measured[key] for key in NAMED if key in measured})
