"""The portfolio that ships."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from gpatcher.datasets.synthetic import csbm, neighbour_sum
from gpatcher.estimator.portfolio import KINDS, shipped_portfolio

ROOT = Path(__file__).parents[2]


def test_every_candidate_can_be_made_and_has_a_name_of_its_own():
    candidates = shipped_portfolio()
    assert len({candidate.name for candidate in candidates}) == len(candidates)
    graph, numbers = csbm(phi=0.5, n=60, features=4), neighbour_sum(n=60)
    adapted = [candidate.adapted(one) for one in (graph, numbers) for candidate in candidates]
    assert {candidate.kind for candidate in adapted} == set(KINDS)
    for candidate in adapted:
        assert candidate.make(seed=1).seed == 1


@pytest.mark.parametrize("candidate", shipped_portfolio(), ids=lambda candidate: candidate.name)
def test_every_candidate_trains(candidate, shortened):
    graph = csbm(phi=0.5, n=60, features=4)
    model = shortened(candidate.adapted(graph)).make().fit(graph)
    logits = model.decision_function()
    assert logits.shape == (60, 2)
    assert np.isfinite(logits).all()
    assert not np.allclose(logits, logits[0])


@pytest.mark.slow
def test_it_is_what_the_log_gives(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    tool = runpy.run_path(str(ROOT / "tools" / "portfolio.py"))
    log = tool["read_log"]()
    names, regret = tool["order"](log, len(tool["POOL"]))
    shipped = json.loads((ROOT / "src/gpatcher/estimator/portfolio.json").read_text())
    assert [member["name"] for member in shipped["members"]] == names
    costs = tool["_costs"](log)
    assert [member["cost"] for member in shipped["members"]] == [round(costs[name], 2) for name in names]
    assert shipped["regret"] == pytest.approx(regret, abs=1e-3)
