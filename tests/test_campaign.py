"""The campaign of tools/campaign: a short slice of it, and its table in the documentation."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
GOOD = ("right", "refused", "reported", "accepted")


def test_a_short_slice_holds(tmp_path):
    earlier = {"try": 1, "what": "made before", "outcome": "right"}
    (tmp_path / "damage.jsonl").write_text(json.dumps(earlier) + "\n")
    command = [sys.executable, "tools/campaign", "--rows", "damage,fields", "--tries", "6", "--seed", "1"]
    command += ["--only", "stored graph,unfinished patch table", "--out", str(tmp_path)]
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert not ended.returncode, ended.stdout + ended.stderr
    for row, tries in {"damage": [1, 0, 2, 3, 4, 5], "fields": [0, 1, 2, 3, 4, 5]}.items():
        records = [json.loads(line) for line in (tmp_path / f"{row}.jsonl").read_text().splitlines()]
        assert [record["try"] for record in records] == tries  # a try on record is not made again
        assert all(record["outcome"] in GOOD for record in records)
        assert "refused" in {record["outcome"] for record in records}


def test_the_table_is_that_of_the_records():
    page = runpy.run_path(str(ROOT / "tools" / "campaign" / "page.py"))
    assert page["made"](ROOT) == (ROOT / page["PAGE"]).read_text(), "run 'python tools/campaign --page'"
