"""Explanations: contributions sum to the logit difference and match an oracle; hops and edges are the graph's."""

import json
from dataclasses import replace

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
import torch

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model.views import split_views
from gpatcher.tables.encoder import TableEncoder
from gpatcher.tables.load import load_tables
from gpatcher.trust.attribution import TOLERANCE, _gauss_legendre
from gpatcher.trust.columns import column_groups
from gpatcher.trust.explain import explain_nodes, hops
from gpatcher.trust.lookup import find_node
from gpatcher.trust.words import member_rows, sentences

TWO = ({"name": "ppr", "size": 6}, {"name": "heterophily-aware", "size": 4, "K": 4})  # two patch sources
SAME = ({"name": "hop", "size": 4}, {"name": "overlap", "size": 5, "threshold": 0.2})
DIRECTED = ({"name": "hop", "size": 4, "direction": "out"}, {"name": "ppr", "size": 3, "direction": "in"})


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.5, n=80, features=6)


def fitted(graph, patches="ppr", *, train=None, **model):
    """A small trained classifier; ``patches`` is the name of an extractor or the settings of several sources."""
    patches = {"name": patches, "size": 6, "K": 4} if isinstance(patches, str) else list(patches)
    settings = {
        "patches": patches,
        "model": {"hidden": 8, "mixer_hidden": 4, **model},
        "train": {"epochs": 8, **(train or {})},
    }
    return GPatcherClassifier.from_settings(settings).fit(graph)


def logits_of(model, h, index, score):
    """The logits of one patch whose members are encoded as ``h``, by the layers of the model."""
    views = split_views(
        torch.arange(h.shape[0])[None], score[None], (index[None] >= 0).float(), [s.size for s in model.sources]
    )
    return model.classify(h, views)[0]


def patch_of(model, node):
    """Index and score of the patches of a node, the sources side by side."""
    with torch.no_grad():
        patches = [source(torch.tensor([node])) for source in model.sources]
    return (torch.cat(tensors, 1)[0] for tensors in zip(*patches, strict=True))


READOUTS = [("ego",), ("mean",), ("mixer",), ("ego", "mean"), ("ego", "mean", "mixer")]


@pytest.mark.parametrize(
    ("patches", "readout"),
    [
        *(("ppr", readout) for readout in READOUTS),
        *((patches, READOUTS[-1]) for patches in ("heterophily-aware", "polynomial", "heat", TWO)),
    ],
    ids=["+".join(readout) for readout in READOUTS] + ["heterophily-aware", "polynomial", "heat", "two sources"],
)
@pytest.mark.parametrize("head_layers", [1, 2])
def test_contributions_sum_to_the_logit_difference(graph, patches, readout, head_layers):
    model = fitted(graph, patches, readout=readout, head_layers=head_layers)
    logits = model.decision_function()
    for explanation in model.explain_nodes(range(0, 80, 8)):
        two = np.sort(logits[explanation.node])[::-1][:2]
        assert explanation.margin == pytest.approx(two[0] - two[1], abs=1e-5)
        total = sum(m.contribution for m in explanation.members)
        assert explanation.start + total + explanation.remainder == pytest.approx(explanation.margin, abs=1e-5)
        difference = abs(explanation.margin - explanation.start)
        assert abs(explanation.remainder) <= TOLERANCE * max(1.0, difference) + 1e-5


@pytest.mark.parametrize(
    "options",
    [
        {"skip": False},
        {"mixer_hidden": None},
        {"layers": 3, "mean_ego": True},
        {"readout": ("mixer",)},
        {"patches": TWO},
    ],
    ids=["plain", "wide mixer", "deep mixer", "mixer alone", "two sources"],
)
def test_the_remainder_is_small_after_long_training(graph, options):
    model = fitted(graph, train={"epochs": 120, "lr": 0.05}, dropout=0.0, input_dropout=0.0, **options)
    explanations = model.explain_nodes(range(80))
    assert max(abs(e.margin - e.start) for e in explanations) > 1
    for e in explanations:
        assert abs(e.remainder) <= TOLERANCE * max(1.0, abs(e.margin - e.start)) + 1e-4


def test_a_model_with_a_small_share_is_explained_with_less_work(graph, monkeypatch):
    monkeypatch.setattr("gpatcher.trust.attribution.TOLERANCE", tolerance := 1e-5)
    model = fitted(graph, train={"epochs": 120, "lr": 0.05}, dropout=0.0, input_dropout=0.0)
    points = []
    classify = type(model.model_).classify
    monkeypatch.setattr(type(model.model_), "classify", lambda *args: points.append(len(args[1])) or classify(*args))
    work = []
    for share in (1.0, 0.01):
        points.clear()
        for e in model.explain_nodes(range(80), share=share):
            assert abs(e.remainder) <= tolerance / share**0.5 * max(1.0, abs(e.margin - e.start)) + 1e-4
            total = sum(m.contribution for m in e.members)
            assert e.start + total + e.remainder == pytest.approx(e.margin, abs=1e-5)
        work.append(sum(points))
    assert work[1] < work[0]


ROUNDS = {
    "three rounds": ("ppr", {"rounds": 3, "readout": ("ego", "mean")}),
    "three rounds, two directions": (
        DIRECTED,
        {"rounds": 3, "readout": ("ego", "mean"), "norm": "batch", "aggregate": "sum"},
    ),
    "rounds that replace": ("ppr", {"rounds": 3, "readout": ("ego", "mean"), "norm": "batch", "residual": False}),
    "selection": (TWO, {"selection": True, "head_layers": 2}),
    "two rounds with selection": (DIRECTED, {"rounds": 2, "readout": ("ego", "mean"), "selection": True}),
    "rounds with mixers": ("ppr", {"rounds": 2, "norm": "batch", "skip": True}),
    "labels": (TWO, {"readout": ("ego", "mean", "mixer", "labels")}),
    "labels alone beside the mean": ("ppr", {"readout": ("mean", "labels")}),
    "labels of nodes with the same neighbours": (SAME, {"readout": ("ego", "mean", "labels"), "selection": True}),
    "three rounds with labels": (TWO, {"rounds": 3, "readout": ("ego", "mean", "labels")}),
}


@pytest.mark.parametrize(("patches", "options"), ROUNDS.values(), ids=ROUNDS)
def test_rounds_and_labels_are_explained(graph, patches, options):
    model = fitted(graph, patches, train={"epochs": 30, "lr": 0.02}, **options)
    logits = model.decision_function()
    for explanation in model.explain_nodes([0, 11, 42]):
        two = np.sort(logits[explanation.node])[::-1][:2]
        assert explanation.margin == pytest.approx(two[0] - two[1], abs=1e-4)
        total = sum(m.contribution for m in explanation.members)
        assert explanation.start + total + explanation.remainder == pytest.approx(explanation.margin, abs=1e-5)
        difference = abs(explanation.margin - explanation.start)
        assert abs(explanation.remainder) <= TOLERANCE * max(1.0, difference) + 1e-5
        assert explanation.members[0].node == explanation.node


@pytest.mark.parametrize("rounds", [2, 3])
@pytest.mark.parametrize("patches", ["ppr", DIRECTED], ids=["one source", "two sources"])
def test_a_node_that_is_no_member_has_no_influence(graph, patches, rounds):
    """The members are the receptive field: other features elsewhere leave the logits as they are, here they do not."""
    patches = [{"name": "ppr", "size": 3}] if patches == "ppr" else [{**source, "size": 2} for source in patches]
    model = fitted(graph, patches, rounds=rounds, readout=("ego", "mean", "mixer"))
    before = model.decision_function()
    for node in (0, 42):
        explanation = model.explain(node, graph)
        members = {m.node for m in explanation.members}
        outside = np.setdiff1d(np.arange(graph.n), list(members))
        assert outside.size
        assert len(members) == len(explanation.members), "each node counts once"
        for nodes, same in ((outside, True), (sorted(members - {node}), False)):
            x = np.array(graph.x)
            x[nodes] += 3.0
            after = model.decision_function(graph.with_features(x), nodes=[node])[0]
            assert (np.abs(after - before[node]).max() < 1e-6) == same


@pytest.mark.parametrize("patches", ["ppr", TWO], ids=["one source", "two sources"])
def test_a_linear_model_by_hand(graph, patches):
    """With ego and mean into a linear classifier, a member adds weight · (h - average) · (w_a - w_b), exactly."""
    classifier = fitted(graph, patches, readout=("ego", "mean"), train={"epochs": 40})
    model, x = classifier.model_, classifier.features_
    with torch.no_grad():
        h = model.eval().encode(x)
    average = h[torch.as_tensor(classifier.split_.train.copy())].mean(0)
    w = model.classifier.weight.detach()
    for node in (0, 17, 42):
        explanation = classifier.explain(node)
        a, b = (classifier.classes_.tolist().index(c) for c in (explanation.predicted, explanation.runner_up))
        ego, *means = (w[a] - w[b]).split(8)
        weights = []
        for source in model.sources:
            with torch.no_grad():
                score = source(torch.tensor([node]))[1][0]
            score[0] = 0
            weights.append(score / score.abs().sum())
        for member in explanation.members:
            delta = h[member.node] - average
            expected = weights[member.source][member.position] * (delta @ means[member.source])
            if (member.source, member.position) == (0, 0):
                expected = expected + delta @ ego
            assert member.contribution == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("patches", ["ppr", "heterophily-aware", TWO], ids=["ppr", "heterophily-aware", "two sources"])
def test_the_start_is_the_logit_difference_of_average_nodes(graph, patches):
    classifier = fitted(graph, patches, train={"epochs": 30})
    model, x = classifier.model_, classifier.features_
    with torch.no_grad():
        average = model.eval().encode(x.take(torch.as_tensor(classifier.split_.train.copy()))).mean(0)
        for node in (3, 50):
            explanation = classifier.explain(node)
            index, score = patch_of(model, node)
            logits = logits_of(model, average.expand(len(index), -1), index, score)
            a, b = (classifier.classes_.tolist().index(c) for c in (explanation.predicted, explanation.runner_up))
            assert explanation.start == pytest.approx(float(logits[a] - logits[b]), abs=1e-5)


def test_members_are_the_patch_in_order(graph):
    model = fitted(graph, "heterophily-aware")
    explanation = model.explain(11)
    patch = model.patches_[11]
    mask = patch.index >= 0
    assert [m.node for m in explanation.members] == patch.index[mask].tolist()
    assert [m.position for m in explanation.members] == np.flatnonzero(mask).tolist()
    assert {m.source for m in explanation.members} == {0}
    np.testing.assert_allclose([m.score for m in explanation.members], patch.score[mask], rtol=1e-5)
    first = explanation.members[0]
    assert (first.node, first.hops, first.position) == (11, 0, 0)
    assert explanation.predicted == model.predict(nodes=[11])[0]
    assert explanation.probability == pytest.approx(model.predict_proba(nodes=[11]).max(), abs=1e-6)
    split = model.split_
    for member in explanation.members:
        assert (member.part == "train") == (member.node in split.train)
        assert (member.part == "validation") == (member.node in split.val)
        assert member.label == model.classes_[graph.y[member.node]]
        assert member.hops == nx.shortest_path_length(graph.to_networkx(), 11, member.node)


def test_a_node_is_a_member_once_per_source(graph):
    model = fitted(graph, TWO)
    shared = 0
    for node in (0, 11, 42):
        explanation = model.explain(node)
        assert explanation.num_sources == 2
        # first the members of the first source, then those of the second, each from position 0
        expected = []
        for number, source in enumerate(model.model_.sources):
            index, score = source.patches().index[node], source.patches().score[node]
            expected += [(number, p, int(index[p]), float(score[p])) for p in np.flatnonzero(index >= 0)]
        members = [(m.source, m.position, m.node) for m in explanation.members]
        assert members == [member[:3] for member in expected]
        np.testing.assert_allclose([m.score for m in explanation.members], [s for *_, s in expected], rtol=1e-5)
        assert len(set(members)) == len(members)
        assert [m.node for m in explanation.members if m.position == 0] == [node, node]
        shared += len(members) - len({member[2] for member in members})
        # tables tell the two apart
        named = {row[0] for row in member_rows(explanation)}
        assert named == {f"{node} (source {source})" for source, _, node in members}
    assert shared > 3  # nodes beside the ego that both sources selected


def test_members_beyond_the_limit_are_summed(graph):
    explanation = fitted(graph, "ppr", train={"epochs": 20}).explain(3)
    rows = member_rows(explanation, 2)
    assert rows[:2] == member_rows(explanation)[:2]
    ranked = [explanation.members[i].contribution for i in explanation.ranked()]
    assert rows[2][0] == f"{len(ranked) - 2} others"
    assert f"{abs(sum(ranked[2:])):+.3f} for" in rows[2][-1]
    assert len(member_rows(explanation, len(ranked))) == len(ranked)


@pytest.mark.parametrize("patches", ["ppr", TWO], ids=["one source", "two sources"])
def test_edges_are_those_among_the_members_of_a_source(graph, patches):
    explanation = fitted(graph, patches).explain(5)
    pairs = graph.to_networkx()
    members = explanation.members
    expected = {
        (i, j)
        for i in range(len(members))
        for j in range(i + 1, len(members))
        if members[i].source == members[j].source and pairs.has_edge(members[i].node, members[j].node)
    }
    assert set(explanation.edges) == expected
    assert {members[i].source for i, _ in expected} == set(range(explanation.num_sources))


@pytest.mark.parametrize("seed", range(4))
def test_hops_match_networkx(seed):
    pairs = nx.gnp_random_graph(60, 0.03, seed=seed)
    graph = Graph.from_networkx(pairs)
    far = nx.single_source_shortest_path_length(pairs, 0)
    assert hops(graph, 0, np.arange(60)).tolist() == [far.get(v, -1) for v in range(60)]


@pytest.mark.parametrize("patches", ["ppr", TWO], ids=["one source", "two sources"])
def test_an_isolated_node_without_label(patches):
    edges = np.array([[0, 1, 2, 3, 1, 2], [1, 0, 3, 2, 2, 1]])
    graph = Graph.from_edge_index(edges, x=np.eye(6), y=[0, 1, 0, 1, 1, -1], num_nodes=6)
    graph = graph.with_splits([Split([0, 1], [2, 3], [4])])
    explanation = fitted(graph, patches).explain(5)
    sources = explanation.num_sources
    assert sources == (1 if patches == "ppr" else 2)
    members = [(m.source, m.position, m.node, m.hops, m.label, m.part) for m in explanation.members]
    assert members == [(source, 0, 5, 0, None, "") for source in range(sources)]
    assert explanation.label is None
    assert explanation.edges == ()
    total = sum(m.contribution for m in explanation.members)
    assert explanation.start + total + explanation.remainder == pytest.approx(explanation.margin, abs=1e-5)


def test_a_member_that_is_not_connected_has_no_hops():
    """A learned filter may select nodes of another component once its response is not smooth; here by hand."""
    edges = np.array([[0, 1, 2, 3], [1, 0, 3, 2]])
    graph = Graph.from_edge_index(edges, x=np.eye(4), y=[0, 1, 0, 1], num_nodes=4)
    explanation = fitted(graph.with_splits([Split([0, 1], [2], [3])])).explain(0)
    far = replace(explanation.members[1], node=3, id=3, hops=None)
    explanation = replace(explanation, members=(explanation.members[0], far), edges=())
    assert np.linalg.norm(explanation.layout()[1]) == pytest.approx(1)  # outside all others
    assert "not connected" in explanation.plot().data[1].hovertext[1]


@pytest.mark.parametrize("patches", ["ppr", TWO], ids=["one source", "two sources"])
def test_export_as_json_table_and_figure(graph, patches):
    explanation = fitted(graph, patches).explain(5)
    decoded = json.loads(json.dumps(explanation.to_dict(), allow_nan=False))
    assert [m["node"] for m in decoded["members"]] == [m.node for m in explanation.members]
    frame = explanation.frame()
    assert frame.num_rows == len(explanation.members)
    columns = {"source", "position", "id", "score", "hops", "label", "part", "contribution"}
    assert columns <= set(frame.column_names)
    figure = explanation.plot()
    assert len(figure.data[1].x) == len(explanation.members)
    assert len(figure.data[0].x) == 3 * len(explanation.edges)
    assert (figure.data[1].x[0], figure.data[1].y[0]) == (0, 0)
    # no two members at the same coordinates, each at its distance from the centre of its source
    layout = explanation.layout()
    assert len(np.unique(layout.round(6), axis=0)) == len(explanation.members)
    egos = {m.source: xy for m, xy in zip(explanation.members, layout, strict=True) if m.position == 0}
    for member, xy in zip(explanation.members, layout, strict=True):
        assert np.linalg.norm(xy - egos[member.source]) == pytest.approx(member.hops)
        for source, ego in egos.items():
            if source != member.source:  # patches of different sources do not overlap
                own = max(m.hops for m in explanation.members if m.source == source)
                assert np.linalg.norm(xy - ego) > own


@pytest.mark.parametrize("patches", ["heterophily-aware", TWO], ids=["one source", "two sources"])
def test_a_loaded_model_explains_the_same(graph, tmp_path, patches):
    model = fitted(graph, patches)
    model.save(tmp_path)
    again = GPatcherClassifier.load(tmp_path).explain(7, graph)
    assert again.to_dict() == model.explain(7).to_dict()


def test_many_nodes_are_explained_as_one_alone(graph, monkeypatch):
    model = fitted(graph, TWO)
    assert model.explain_nodes([]) == []
    together = model.explain_nodes([4, 9, 60])
    monkeypatch.setattr("gpatcher.trust.attribution._ELEMENTS", 1)  # one node at a time
    for explanation in together:
        alone = model.explain(explanation.node)
        assert [m.node for m in alone.members] == [m.node for m in explanation.members]
        np.testing.assert_allclose(
            [m.contribution for m in alone.members], [m.contribution for m in explanation.members], atol=1e-5
        )


def test_the_quadrature_integrates_polynomials_exactly():
    points, weights = _gauss_legendre()
    for power in range(2 * 16):
        assert weights @ points**power == pytest.approx(1 / (power + 1), rel=1e-12)


def test_nodes_by_their_ids(graph):
    assert find_node(graph, "12") == 12
    for bad in ("80", "-1", "x"):
        with pytest.raises(InputError, match=f"no node '{bad}': csbm has the nodes 0 to 79"):
            find_node(graph, bad)
    named = replace(graph, node_ids=np.array([f"n{v}" for v in range(80)]))
    assert find_node(named, "n12") == 12
    with pytest.raises(InputError, match="no node with the id 'n99'; did you mean n9"):
        find_node(named, "n99")
    with pytest.raises(InputError, match=r"not in the graph.*80"):
        fitted(graph).explain(80)


# ------------------------------------------------------------------------------------------- own columns


def with_columns(model, graph, nodes, groups):
    classes = [str(c) for c in model.classes_]
    return explain_nodes(model.model_, model.features_, graph, model.split_, classes, np.array(nodes), 1.0, groups)


@pytest.mark.parametrize(
    ("patches", "options"),
    [("ppr", {}), (TWO, {}), *ROUNDS.values()],
    ids=["one source", "two sources", *ROUNDS],
)
def test_columns_sum_to_what_the_node_itself_adds(graph, patches, options):
    model = fitted(graph, patches, train={"epochs": 15, "lr": 0.02}, **options)
    for explanation in with_columns(model, graph, [0, 11, 42], column_groups(None, 6, 6)):
        assert len(explanation.columns) == 6
        own = sum(m.contribution for m in explanation.members if m.node == explanation.node)
        assert sum(c.contribution for c in explanation.columns) == pytest.approx(own, abs=1e-4)
        sizes = [abs(c.contribution) for c in explanation.columns]
        assert sizes == sorted(sizes, reverse=True)
        [plain] = model.explain_nodes([explanation.node])
        assert plain.columns == ()
        assert explanation.margin == pytest.approx(plain.margin, abs=1e-5)


def test_a_column_that_is_constant_contributes_nothing(graph):
    x = np.array(graph.x)
    x[:, 2] = 3.0
    constant = graph.with_features(x)
    model = fitted(constant, train={"epochs": 40})
    [explanation] = with_columns(model, constant, [7], column_groups(None, 6, 6))
    by_name = {c.name: c for c in explanation.columns}
    assert by_name["feature 2"].contribution == pytest.approx(0, abs=1e-6)
    assert by_name["feature 2"].value == "3"
    assert max(abs(c.contribution) for c in explanation.columns) > 1e-3


def test_many_columns_are_summed_after_the_first():
    graph = csbm(phi=-0.5, n=80, features=30)
    model = fitted(graph, train={"epochs": 20})
    [explanation] = with_columns(model, graph, [3], column_groups(None, 30, 30))
    assert [explanation.columns[-1].name, len(explanation.columns)] == ["18 others", 13]
    assert sum(c.contribution for c in explanation.columns) == pytest.approx(explanation.own(), abs=1e-4)


def test_columns_have_the_values_of_the_table():
    """Every kind of column is shown as it was in the table, by the encoder alone."""
    columns = {
        "age": [21, None, 40.5, 33] * 4,
        "verified": [True, False, None, True] * 4,
        "country": ["FR", "DE", None, "FR"] * 4,
        "joined": ["2021-11-15", "2024-02-29", "2020-01-01", None] * 4,
        "seen": ["2021-11-15 07:30:00", "2021-11-16 00:00:00", "2020-01-01 23:59:00", None] * 4,
        "about": ["a gift", "two words", "", None] * 4,
    }
    tables = {name: pa.chunked_array([values]) for name, values in columns.items()}
    kinds = {"joined": "date", "seen": "date", "about": "text"}
    encoder = TableEncoder.fit(tables, kinds)
    groups = column_groups(encoder, encoder.width, encoder.width + 2)
    names = [name.split(" = ")[0].split(":")[0] for name in encoder.names()]
    assert [g.name.removesuffix(" (length)") for g in groups for _ in range(g.width)] == [
        *names,
        *["made of its edges"] * 2,
    ]
    x = encoder.transform(tables)
    x = np.asarray(x.toarray() if hasattr(x, "toarray") else x)
    borders = np.cumsum([0, *(g.width for g in groups)])

    def shown(row):
        return {g.name: g.show(x[row, a:b]) for g, a, b in zip(groups, borders[:-1], borders[1:], strict=True)}

    first, second, third, fourth = map(shown, range(4))
    assert [first[n] for n in ("age", "verified", "country", "joined")] == ["21", "true", "FR", "2021-11-15"]
    assert [set(row["about"].split()) for row in (first, second, third)] == [{"a", "gift"}, {"two", "words"}, set()]
    assert [second[n] for n in ("age", "verified", "country", "joined")] == ["missing", "false", "DE", "2024-02-29"]
    assert [third[n] for n in ("age", "verified", "country")] == ["40.5", "missing", "missing"]
    assert [fourth[n] for n in ("joined", "seen")] == ["missing", "missing"]
    assert (first["seen"], third["seen"]) == ("2021-11-15T07:30", "2020-01-01T23:59")


@pytest.mark.parametrize(("days", "shown"), [(20, "2020-01-11"), (3, "2020-01-02T12:00")])
def test_means_of_dates_on_edges_are_dates(days, shown):
    nodes = pa.table({"id": list("abc"), "label": ["x", "y", "x"]})
    start = np.datetime64("2020-01-01")
    edges = pa.table(
        {"source": ["a", "a"], "target": ["b", "c"], "day": np.array([start, start + days]), "amount": [1.5, 2.5]}
    )
    for tables in (load_tables(nodes, edges), load_tables({"person": nodes}, {"knows": edges}, directed=False)):
        groups = {g.name.removeprefix("knows: "): g for g in column_groups(tables.encoder, *[tables.encoder.width] * 2)}
        x, names = tables.graph.x, [name.removeprefix("knows: ") for name in tables.encoder.names()]

        def value(row, column, x=x, names=names, groups=groups):
            at = names.index(column)
            return groups[column].show(x[row, at : at + groups[column].width])

        assert [value(row, "day: mean of edges") for row in range(2)] == [shown, "2020-01-01" + "T00:00" * (days < 7)]
        assert value(0, "amount: mean of edges") == "2"


def test_numbers_on_a_logarithmic_scale_have_the_values_of_the_table():
    views = [*range(1, 200), 50_000, 2_000_000]
    tables = {"views": pa.chunked_array([views]), "loss": pa.chunked_array([[-v for v in views]])}
    encoder = TableEncoder.fit(tables, {"views": "number", "loss": "number"})
    assert all(column.unit for column in encoder.encoders)
    x = encoder.transform(tables)
    for j, group in enumerate(column_groups(encoder, 2, 2)):
        shown = [float(group.show(x[row, j : j + 1])) for row in range(len(views))]
        assert shown == pytest.approx(tables[group.name].to_pylist(), rel=1e-4)


def test_the_answer_in_one_sentence(graph):
    explanation = fitted(graph, train={"epochs": 30}).explain(11)
    near = [m for m in explanation.members if m.hops == 1]

    def answer(own, neighbours, start, **more):
        members = [replace(m, contribution=0.0) for m in explanation.members]
        members[0] = replace(members[0], contribution=own)
        i = members.index(replace(near[0], contribution=0.0))
        members[i] = replace(members[i], contribution=neighbours)
        return sentences(replace(explanation, members=tuple(members), start=start, probability=0.834, **more))[0]

    beginning = f"Node 11 is classed {explanation.predicted} with 83%"
    assert answer(2.0, 0.5, 0.1).startswith(f"{beginning}: most of it comes from its own columns")
    assert answer(0.1, 2.0, 0.1).startswith(f"{beginning}: most of it comes from its {len(near)} direct neighbour")
    assert f"above all {near[0].id}" in answer(0.1, 2.0, 0.1)
    assert answer(0.1, 0.2, 2.0).startswith(f"{beginning}, as an average node would be")
    assert "the largest part comes from its own columns" in answer(1.0, 0.9, 0.9)
    _, label, total = sentences(explanation)
    assert explanation.label in label
    assert ("wrong" in label) == (explanation.label != explanation.predicted)
    for value in (explanation.start, explanation.own(), explanation.margin):
        assert f"{value:+.3f}" in total
