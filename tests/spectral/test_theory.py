import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpatcher.datasets.load import load_dataset
from gpatcher.datasets.synthetic import colouring, csbm
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.spectral.heterophily import heterophily
from gpatcher.spectral.spectrum import eigenpairs
from gpatcher.spectral.theory import C1, lemma1, spectral_heterophily, theorem1


def follows_and_holds(lemma):
    """Whether the numbers satisfy the bound that follows; True also where nothing follows."""
    slack = 1e-9 * max(1.0, abs(lemma.left), abs(lemma.right))
    if lemma.follows == ">=":
        return lemma.left >= lemma.right - slack
    return lemma.follows == "nothing" or lemma.left <= lemma.right + slack


def test_spectral_heterophily_is_h_times_u():
    graph = csbm(phi=-0.5, n=60, features=4)
    spectrum = eigenpairs(graph)
    h = np.nan_to_num(heterophily(graph).node)
    np.testing.assert_allclose(spectral_heterophily(graph, spectrum), h @ spectrum.vectors)


def test_colouring_has_all_its_heterophily_at_the_lowest_frequency():
    graph = colouring(n=60, colours=3, degree=4)
    spectrum = eigenpairs(graph)
    h_hat = spectral_heterophily(graph, spectrum)
    assert heterophily(graph).node_heterophily == 1
    assert h_hat[-1] ** 2 == pytest.approx(60)
    assert spectrum.values[-1] == pytest.approx(1)
    result = lemma1(spectrum.values, h_hat, np.full(60, 0.5))
    assert result.zero_components == 59


components = arrays(np.float64, 12, elements=st.floats(1e-3, 20))
responses = arrays(np.float64, 12, elements=st.floats(1e-3, 2))


@given(components, responses)
@settings(max_examples=200, deadline=None)
def test_the_direction_that_follows_always_holds(h_hat, g):
    result = lemma1(np.linspace(-1, 1, 12), h_hat, g)
    assert result.step_amgm  # weighted AM-GM is a theorem
    assert follows_and_holds(result)


@given(components, responses)
@settings(max_examples=100, deadline=None)
def test_both_sides_as_printed(h_hat, g):
    result = lemma1(np.linspace(-1, 1, 12), h_hat, g)
    denominator = 12 * (np.log((g * h_hat).sum()) - np.log(g.sum()))
    assert result.left == pytest.approx(g.mean())
    if abs(denominator) > 1e-6:
        assert result.right == pytest.approx(np.log(h_hat).sum() / denominator, rel=1e-6)
        assert result.holds_as_printed == (result.left >= result.right)


def test_lemma_holds_where_every_component_is_large_and_the_response_at_least_one():
    result = lemma1(np.linspace(-1, 1, 5), np.array([2.0, 3, 4, 5, 6]), np.array([1.0, 1.2, 1.5, 1.8, 2.0]))
    assert result.follows == ">="
    assert result.holds_as_printed
    assert "holds" in result.explain()
    assert "from below" in result.explain()


def test_lemma_says_nothing_where_the_weights_cannot_be_dropped():
    # components below one with a response above one: Σ (g - 1) log|Ĥ| < 0
    result = lemma1(np.linspace(-1, 1, 3), np.array([0.1, 0.2, 0.3]), np.array([1.5, 1.5, 1.5]))
    assert not result.step_weights
    assert result.follows == "nothing"
    assert "no bound in either direction" in result.explain()


@pytest.mark.parametrize("name", ["Texas", "Cornell", "Wisconsin"])
def test_lemma_fails_as_printed_on_real_graphs(data_root, name):
    graph = load_dataset(name, data_root)
    spectrum = eigenpairs(graph)
    h_hat = spectral_heterophily(graph, spectrum)
    values = spectrum.values
    for g in (np.full(graph.n, 0.5), 0.5 / (1 - 0.5 * values), 1 / (1 + np.exp(-values))):
        result = lemma1(values, h_hat, g)
        assert 0.49 < result.left < 0.54
        assert 1.6 < result.right < 2.3
        assert result.log_am < 0
        assert not result.holds_as_printed
        assert result.follows == "<="
        assert follows_and_holds(result)
        assert result.repeated_eigenvalues > 0
        assert "fails" in result.explain()
    if name == "Texas":
        assert np.abs(h_hat).max() > 10  # Ĥ is not bounded by 1, as the proof would need


def _literal_error(spectrum, g, x, y):
    filtered = spectrum.vectors * g @ spectrum.vectors.T @ x
    probability = np.exp(filtered) / np.exp(filtered).sum(axis=1, keepdims=True)
    return ((probability - np.eye(2)[y]) ** 2).sum() / len(y)


@given(st.integers(0, 10_000), st.floats(0.05, 4.0))
@settings(max_examples=60, deadline=None)
def test_theorem_left_side_and_the_proved_step(seed, scale):
    rng = np.random.default_rng(seed)
    graph = csbm(phi=-0.6, n=40, features=2, seed=seed % 7)
    spectrum = eigenpairs(graph)
    x = scale * rng.normal(size=(40, 2))
    g = rng.uniform(0.1, 1.0, 40)
    result = theorem1(spectrum, spectral_heterophily(graph, spectrum), g, x, graph.y)
    assert result.error == pytest.approx(_literal_error(spectrum, g, x, graph.y))
    assert result.error <= result.taylor + 1e-12  # true for every input with the corrected constant


def test_the_printed_constant_fails_for_confident_wrong_predictions():
    graph = csbm(phi=-0.6, n=40, features=2)
    spectrum = eigenpairs(graph)
    wrong = 50.0 * np.eye(2)[1 - graph.y]
    result = theorem1(spectrum, spectral_heterophily(graph, spectrum), np.ones(40), wrong, graph.y)
    printed = 2 * (1 / 4 + 217 / 2304 + 1 / (1 + np.e) ** 2)
    assert result.error == pytest.approx(2)
    assert result.error > result.taylor - C1 + printed
    assert result.error <= result.taylor


def test_theorem_sums_agree_only_without_clamping():
    graph = csbm(phi=0.5, n=40, features=2)
    spectrum = eigenpairs(graph)
    h_hat, g = spectral_heterophily(graph, spectrum), np.full(40, 0.5)
    x = np.random.default_rng(0).normal(size=(40, 2))
    assert theorem1(spectrum, h_hat, g, 1e-3 * x, graph.y).sums_agree
    assert not theorem1(spectrum, h_hat, g, 10 * x, graph.y).sums_agree


def test_theorem_as_printed_from_its_formula():
    graph = csbm(phi=-0.5, n=40, features=2)
    spectrum = eigenpairs(graph)
    h_hat, g = spectral_heterophily(graph, spectrum), 0.5 / (1 - 0.5 * spectrum.values)
    x = np.random.default_rng(1).normal(size=(40, 2))
    result = theorem1(spectrum, h_hat, g, x, graph.y)
    delta = spectrum.transform(2.0 * graph.y - 1)
    eta = spectrum.transform(x[:, 1] - x[:, 0])
    m_g = (np.clip(eta, -1 / np.abs(g * delta), 1 / np.abs(g * delta)) * delta).min()
    nonzero = np.abs(h_hat) > 1e-9  # where log|Ĥ| is defined
    h, g = np.abs(h_hat[nonzero]), g[nonzero]
    denominator = 2 * 40 * (np.log((g * h).sum()) - np.log(g.sum()))
    assert result.m_g == pytest.approx(m_g)
    assert result.printed == pytest.approx(C1 - m_g * np.log(h).sum() / denominator)
    assert result.last_step_follows == (result.lemma.follows == (">=" if m_g >= 0 else "<="))


def test_bad_input_is_named():
    graph = Graph.from_edge_index([[0, 1], [1, 0]], y=[0, 1])
    spectrum = eigenpairs(graph)
    h_hat = spectral_heterophily(graph, spectrum)
    with pytest.raises(InputError, match="one entry per eigenvalue"):
        lemma1(spectrum.values, h_hat, np.ones(3))
    with pytest.raises(InputError, match=r"smallest value is -1"):
        lemma1(spectrum.values, h_hat, np.array([-1.0, 1.0]))
    with pytest.raises(InputError, match=r"shape \(2, 2\)"):
        theorem1(spectrum, h_hat, np.ones(2), np.ones((2, 3)), graph.y)
    with pytest.raises(InputError, match="two classes"):
        theorem1(spectrum, h_hat, np.ones(2), np.ones((2, 2)), np.array([0, 2]))
    with pytest.raises(InputError, match="no frequency in common"):
        theorem1(spectrum, h_hat, np.ones(2), np.ones((2, 2)), graph.y)
