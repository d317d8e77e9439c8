"""A short slice of fuzz_tables.py, and its record."""

import json
import runpy
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).with_name("fuzz_tables.py")))


@pytest.mark.parametrize(("kind", "examples"), zip(TOOL["FUZZED"], (120, 60), strict=True))
def test_random_tables_are_read_or_rejected(kind, examples):
    assert TOOL["fuzz"](kind, examples).total() >= examples


def test_the_record_is_of_two_thousand_tables_of_every_kind():
    """It shows little unless every outcome is common."""
    records = [json.loads(line) for line in TOOL["RECORDS"].read_text().splitlines()]
    assert [record["kind"] for record in records] == list(TOOL["FUZZED"])
    for record in records:
        assert record["tables"] >= 2000
        seen = {
            word: sum(count for outcome, count in record["outcomes"].items() if word in outcome)
            for word in ("rejected", "read", "split", "numbers", "edge columns")
        }
        assert min(seen.values()) > 100, seen
    assert sum(count for outcome, count in records[1]["outcomes"].items() if "cut" in outcome) > 40
