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
    command = [sys.executable, "tools/campaign", "--rows", "damage,fields", "--tries", "8", "--seed", "1"]
    command += ["--only", "stored graph,unfinished patch table", "--out", str(tmp_path)]
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert not ended.returncode, ended.stdout + ended.stderr
    for row in ("damage", "fields"):
        records = [json.loads(line) for line in (tmp_path / f"{row}.jsonl").read_text().splitlines()]
        assert [record["try"] for record in records] == list(range(8))
        assert all(record["outcome"] in GOOD for record in records)
        assert "refused" in {record["outcome"] for record in records}
    before = (tmp_path / "damage.jsonl").read_text()
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)  # continues: nothing is left to do
    assert (tmp_path / "damage.jsonl").read_text() == before


def test_the_table_is_that_of_the_records():
    page = runpy.run_path(str(ROOT / "tools" / "campaign" / "page.py"))
    assert page["made"](ROOT) == (ROOT / page["PAGE"]).read_text(), "run 'python tools/campaign --page'"
