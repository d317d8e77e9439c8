"""The service on a run with node and edge types: ids of the labelled type, unseen nodes by type."""

import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from gpatcher.datasets.fraud import fraud_tables
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.tables import keep_tables
from gpatcher.patches import PPR
from gpatcher.runs.predict import prediction_columns
from gpatcher.serve.run import ServedRun, UnknownNodeError
from gpatcher.tables.load import load_tables
from gpatcher.training.loop import TrainConfig

COLUMNS = {
    "source": {"uses": "person", "paid": "payer"},
    "target": {"uses": "device", "paid": "payee"},
    "ends": {"uses": ("person", "device"), "paid": ("person", "person")},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    made = {name: pa.table(columns) for name, columns in fraud_tables(60).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tables = load_tables(
            {"person": made["people"], "device": made["devices"]},
            {"uses": made["uses"], "paid": made["payments"]},
            **COLUMNS,
        ).with_split()
        model = GPatcherClassifier(patches=[PPR(size=4), PPR(size=4, edge_type="uses")], train=TrainConfig(epochs=2))
        model.fit(tables.graph).save(folder, source=COLUMNS)
        keep_tables(tables, folder)
        return ServedRun.open(folder, tmp_path_factory.mktemp("shared"))


def test_known_nodes_are_those_of_the_labelled_type(served):
    columns = prediction_columns(served.classifier, served.graph)
    [answer] = served.predict_known([7])
    assert (answer["id"], answer["type"], answer["predicted"]) == (7, "person", columns["predicted"][7])
    np.testing.assert_array_equal(columns["id"], np.arange(60))
    assert served.explain("7")["id"] == served.explain("person:7")["id"] == "person:7"
    for ask in (lambda: served.predict_known([60]), lambda: served.explain("device:999")):
        with pytest.raises(UnknownNodeError):
            ask()


def test_unseen_nodes_have_a_type(served):
    person = {"type": "person", "id": 900, "age": 30, "country": "DE", "joined": "2024-01-01"}
    device = {"type": "device", "id": 900, "system": "ios"}
    uses = [{"type": "uses", "person": 900, "device": end, "hours": 1.0} for end in (900, 0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answers = served.predict_unseen([person, device], uses)
    assert [(answer["id"], answer["type"]) for answer in answers] == [(900, "person")]
    for nodes, edges, word in (
        ([{"id": 900}], uses, "type"),
        ([person], [{**uses[0], "type": "owns"}], "owns"),
        ([person], uses, "900"),  # the device is neither known nor passed
    ):
        with pytest.raises(InputError, match=word):
            served.predict_unseen(nodes, edges)


def test_unseen_nodes_are_tried_at_the_start(served, monkeypatch):
    asked = []
    monkeypatch.setattr(ServedRun, "predict_unseen", lambda _, *tables: asked.append(tables))
    assert served._try_unseen() is None
    [([node], [edge])] = asked
    assert (node["type"], node["id"], node["age"]) == ("person", 60, None)
    assert (edge["type"], edge["person"], edge["device"], edge["hours"]) == ("uses", 60, 0, None)


def test_a_refusal_is_known_at_the_start(served):
    assert served.refusal is None  # it was really tried
    with_edges = replace(served, source={**COLUMNS, "edges": {}}, encoder=None)
    assert "computed from its edges" in with_edges._try_unseen()
