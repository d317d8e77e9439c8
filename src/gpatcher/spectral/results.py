"""Measures of a graph and of a filter: what a diagnosis and a page hold. The other modules here compute them.

Kept apart from the computation, so that a page is made from a file without loading compiled code.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from gpatcher.arrays import FloatArray, IntArray

# of information about the label of a node, see `gpatcher.spectral.probes.probe_sources`
SOURCES = {
    "columns": "the node's own columns",
    "adjacency": "the node's adjacency rows: who its neighbours are",
    "neighbours": "the mean of its neighbours' columns",
    "labels": "the classes of its labelled neighbours",
    "two_hop_labels": "the classes of labelled nodes two steps away",
}


@dataclass(frozen=True, eq=False)
class Heterophily:
    """Heterophily of each node, and measures of the whole graph; a measure that is undefined is NaN."""

    node: FloatArray  # H_i of Definition 1, shape (n,); NaN without label or without labelled neighbour
    pairs: IntArray  # stored edges from class a to class b, shape (C, C), symmetric
    class_sizes: IntArray  # labelled nodes in each class

    @property
    def undefined(self) -> int:
        """Number of nodes whose H_i is undefined (0 / 0); the mean excludes them."""
        return int(np.isnan(self.node).sum())

    @property
    def node_heterophily(self) -> float:
        """Mean of H_i over the nodes where it is defined."""
        return float(np.nanmean(self.node)) if self.undefined < self.node.size else float("nan")

    @property
    def edge_homophily(self) -> float:
        """Fraction of the edges that join two nodes of the same class."""
        return _ratio(float(np.trace(self.pairs)), float(self.pairs.sum()))

    @property
    def class_insensitive_homophily(self) -> float:
        r"""Homophily above chance, averaged over the classes (Lim et al., 2021).

        .. math:: \frac{1}{C-1} \sum_k \max\left(0,\; h_k - \frac{|C_k|}{n}\right)

        with h_k the fraction of the edges of class k that lead to class k.
        """
        if self.class_sizes.size < 2:
            return float("nan")
        within = np.nan_to_num(np.diag(self.compatibility))
        above = np.maximum(within - self.class_sizes / self.class_sizes.sum(), 0.0)
        return float(above.sum() / (self.class_sizes.size - 1))

    @property
    def adjusted_homophily(self) -> float:
        r"""Edge homophily corrected for the degrees of the classes (Platonov et al., 2023).

        .. math:: \frac{h_{edge} - \sum_k \bar p_k^2}{1 - \sum_k \bar p_k^2}

        with p̄_k the fraction of edge endpoints in class k; 1 is full agreement, 0 is chance, negative values are below
        chance.
        """
        chance = float((self._endpoint_fractions() ** 2).sum())
        return _ratio(self.edge_homophily - chance, 1.0 - chance)

    @property
    def label_informativeness(self) -> float:
        r"""Mutual information of the labels of two neighbours, relative to their entropy (Platonov et al., 2023).

        .. math:: 2 - \frac{\sum_{ab} p_{ab} \log p_{ab}}{\sum_a \bar p_a \log \bar p_a}

        0: the label of a neighbour carries no information; 1: it determines the label, whether the two agree or not.
        """
        total = float(self.pairs.sum())
        joint = _entropy(self.pairs.ravel() / total) if total else float("nan")
        return 2.0 - _ratio(joint, _entropy(self._endpoint_fractions()))

    @property
    def compatibility(self) -> FloatArray:
        """Fraction of the edges of class a that lead to class b, shape (C, C); NaN where a has no edges."""
        totals = self.pairs.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(self.pairs, totals, out=np.full(self.pairs.shape, np.nan), where=totals > 0))

    def _endpoint_fractions(self) -> FloatArray:
        total = int(self.pairs.sum())
        return np.asarray(self.pairs.sum(axis=1) / total if total else np.full(len(self.pairs), np.nan))


def _ratio(a: float, b: float) -> float:
    return a / b if b else float("nan")


def _entropy(p: FloatArray) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


@dataclass(frozen=True)
class EdgeTypeMeasures:
    """Agreement of labels along one edge type; a measure that is undefined is None."""

    edges: int
    directed: bool
    shared: bool  # whether it is of labelled nodes that share a neighbour, because no edge joins two of them
    edge_homophily: float | None
    adjusted_homophily: float | None


@dataclass(frozen=True)
class Probe:
    """Leave-one-out result of a linear model that reads one source.

    Parameters
    ----------
    accuracy, error : float
        Accuracy and its standard error.
    explained, explained_error : float
        Fraction of the squared error of the class frequencies that the model removes, and its standard error. Unlike
        the accuracy it shows what a source tells where one class is frequent.
    """

    accuracy: float
    error: float
    explained: float
    explained_error: float


@dataclass(frozen=True, eq=False)
class SpectralMeasure:
    """Histogram of the energy of a signal over the eigenvalues."""

    edges: FloatArray  # of the bins, from -1 to 1
    share: FloatArray  # fraction of the energy in each bin
    mean: float  # mean eigenvalue sᵀÃs / sᵀs, always exact
    exact: bool  # whether the bins come from eigenvectors; otherwise they are estimated from moments, smoothed


@dataclass(frozen=True)
class Lemma1:
    """Both sides of Lemma 1 for one filter on one graph, and the steps of its proof."""

    left: float  # mean frequency response Σ g / n
    right: float  # the printed bound Σ log|Ĥ| / (n log AM); NaN if undefined
    log_am: float  # log Σ g|Ĥ| - log Σ g; the proof divides by it
    components: int  # the n of these sums: the number of nonzero components Ĥ_i
    zero_components: int  # where log|Ĥ_i| is undefined; excluded from both sides
    repeated_eigenvalues: int  # for these Ĥ depends on the choice of the eigenvectors
    response_in_range: bool  # 0 ≤ g ≤ 2, as the proof assumes
    step_amgm: bool  # Σ g · log AM - Σ g log|Ĥ| ≥ 0, the weighted AM-GM inequality; it always holds
    step_weights: bool  # Σ (g - 1) log|Ĥ| ≥ 0, needed to drop the weights g; often false

    @property
    def holds_as_printed(self) -> bool:
        """Whether left ≥ right on these numbers."""
        return bool(self.left >= self.right)

    @property
    def follows(self) -> str:
        """Direction of the bound that the steps of the proof imply: ``>=``, ``<=`` or ``nothing``."""
        if not self.step_weights or not np.isfinite(self.right) or self.log_am == 0:
            return "nothing"
        return ">=" if self.log_am > 0 else "<="

    def explain(self) -> str:
        """Describe the numbers in one sentence."""
        if not np.isfinite(self.right):
            return "The bound is undefined: no frequency has both g > 0 and a nonzero component of Ĥ, or log AM is 0."
        sign = "≥" if self.holds_as_printed else "<"
        text = f"mean g = {self.left:.4g} {sign} {self.right:.4g}: the printed bound "
        text += "holds on these numbers" if self.holds_as_printed else "fails on these numbers"
        if self.follows == "nothing":
            return text + ", and the steps of the proof give no bound in either direction."
        reason = "positive" if self.log_am > 0 else "negative, which reverses the inequality"
        bound = "below" if self.follows == ">=" else "above"
        return text + f"; log AM = {self.log_am:.3g} is {reason}: the right side bounds mean g from {bound}."


@dataclass(frozen=True)
class SpectralDiagnosis:
    """Energy of the centred labels and of the vector H over the frequencies, and Lemma 1 for three filters."""

    labels: SpectralMeasure
    node_heterophily: SpectralMeasure | None  # None if H is zero
    lemma: dict[str, Lemma1]  # by filter; empty without eigenvectors or if H is zero


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Measures of one graph, its problems and advice.

    A measure that is undefined on this graph (no labels, no split, one class) is None. All measures are those of the
    undirected graph, in which an edge counts once. `to_dict` omits the arrays, which are for plots.
    """

    name: str
    nodes: int
    edges: int
    classes: int
    features: int
    labelled: int  # nodes with a label
    isolated: int  # nodes without neighbours
    components: int  # connected components
    directed: bool  # whether some edge has no reverse edge
    duplicate_edges: int  # merged when the graph was built
    self_loops: int
    mean_degree: float
    max_degree: int
    node_heterophily: float | None  # this and the next five: see `Heterophily`
    undefined_heterophily: int | None  # nodes without a defined node heterophily
    edge_homophily: float | None
    class_insensitive_homophily: float | None
    adjusted_homophily: float | None
    label_informativeness: float | None
    train_duplicates: float | None  # fraction of test nodes that duplicate a training node
    label_frequency: float | None  # mean eigenvalue of the label signal, in [-1, 1]
    probes: dict[str, Probe]  # how predictive each source of information is on its own, see `probe_sources`
    source: str | None  # the most predictive one, see `best_source`
    direction_gain: float | None  # accuracy gained by using the direction of the edges
    extractor: str  # to try first
    problems: list[str]  # one sentence each
    advice: list[str]
    edge_types: dict[str, EdgeTypeMeasures] = field(default_factory=dict)  # agreement of labels along each
    class_names: tuple[str, ...] = field(default=(), repr=False)
    measures: Heterophily | None = field(default=None, repr=False)
    degrees: IntArray | None = field(default=None, repr=False)
    spectral: SpectralDiagnosis | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, strings and lists for JSON."""
        arrays = {"class_names", "measures", "degrees", "spectral"}
        result = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in arrays}
        result["probes"] = {name: asdict(probe) for name, probe in self.probes.items()}
        result["edge_types"] = {name: asdict(measured) for name, measured in self.edge_types.items()}
        if self.spectral is not None:
            result["label_energy"] = _to_dict(self.spectral.labels)
            if self.spectral.node_heterophily is not None:
                result["heterophily_energy"] = _to_dict(self.spectral.node_heterophily)
            result["lemma1"] = {
                name: {"left": check.left, "right": finite(check.right), "log_am": finite(check.log_am)}
                | {"holds_as_printed": check.holds_as_printed, "follows": check.follows}
                | {"zero_components": check.zero_components, "repeated_eigenvalues": check.repeated_eigenvalues}
                for name, check in self.spectral.lemma.items()
            }
        return result


def _to_dict(measure: SpectralMeasure) -> dict[str, Any]:
    share = [round(float(v), 6) for v in measure.share]
    return {"mean": measure.mean, "exact": measure.exact, "bins": len(share), "share": share}


def finite(value: float) -> float | None:
    """Return a number as a float, None if it is NaN or infinite."""
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True, eq=False)
class FilterResponse:
    """The frequency response of a filter.

    Parameters
    ----------
    values : float array
        λ from -1 (high frequency) to 1 (low).
    response : float array
        g(λ) after training.
    start : float array
        g(λ) before training.
    """

    values: FloatArray
    response: FloatArray
    start: FloatArray

    def plot(self) -> Any:
        """Return a plotly figure of the response."""
        import plotly.graph_objects as go

        figure = go.Figure()
        dotted = {"dash": "dot", "color": "#8a94a0"}
        figure.add_scatter(x=self.values, y=self.start, name="before training", line=dotted)
        figure.add_scatter(x=self.values, y=self.response, name="after training", line={"color": "#2f6fb0"})
        figure.update_xaxes(title="eigenvalue λ (low frequency on the left)", range=[1.02, -1.02])
        figure.update_yaxes(title="response g(λ)")
        return figure
