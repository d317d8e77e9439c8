"""Lemma 1 and Theorem 1 of the paper, evaluated: both sides, every precondition, and what does follow.

Neither holds as printed on real graphs. The lemma's proof ends with a division by log(AM), where
AM = Σ g|Ĥ| / Σ g; AM < 1 is the usual case, its logarithm is negative, and the sign of the inequality turns.
The functions here compute the numbers and never assume the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpatcher.arrays import FloatArray
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.spectral.heterophily import heterophily
from gpatcher.spectral.spectrum import Spectrum

_ZERO = 1e-10  # a component below this, relative to the length of the vector, is rounding error


def spectral_heterophily(graph: Graph, spectrum: Spectrum) -> FloatArray:
    """Return Ĥ = H·U of Definition 2, shape (n,).

    Nodes whose H_i is undefined (0 / 0) count as 0 here; `Heterophily.undefined` tells how many there are.
    """
    return spectrum.transform(np.nan_to_num(heterophily(graph).node))


@dataclass(frozen=True)
class Lemma1:
    """Both sides of Lemma 1 for one filter on one graph, and where its proof breaks.

    Parameters
    ----------
    left : mean frequency response Σ g / n
    right : the printed bound Σ log|Ĥ| / (n log AM); NaN where it is not defined
    log_am : log AM = log Σ g|Ĥ| - log Σ g; the proof divides by it
    components : the n of these sums, the components Ĥ_i that are not 0
    zero_components : components Ĥ_i that are 0, where log|Ĥ_i| is not defined; both sides leave them out
    repeated_eigenvalues : eigenvalues equal to another one; Ĥ then depends on the choice of the eigenvectors
    response_in_range : 0 ≤ g ≤ 2, as the proof assumes
    step_amgm : G log AM - Σ g log|Ĥ| ≥ 0, the weighted AM-GM inequality; it always holds
    step_weights : Σ (g - 1) log|Ĥ| ≥ 0, what the proof needs to drop the exponents g; often false
    """

    left: float
    right: float
    log_am: float
    components: int
    zero_components: int
    repeated_eigenvalues: int
    response_in_range: bool
    step_amgm: bool
    step_weights: bool

    @property
    def holds_as_printed(self) -> bool:
        """Whether left ≥ right on these numbers."""
        return bool(self.left >= self.right)

    @property
    def follows(self) -> str:
        """The direction that the proof's own steps give: ``>=``, ``<=`` or ``nothing``."""
        if not self.step_weights or not np.isfinite(self.right) or self.log_am == 0:
            return "nothing"
        return ">=" if self.log_am > 0 else "<="

    @property
    def follows_and_holds(self) -> bool:
        """Whether the numbers agree with `follows`; True also where nothing follows."""
        slack = 1e-9 * max(1.0, abs(self.left), abs(self.right))
        if self.follows == ">=":
            return self.left >= self.right - slack
        return self.follows == "nothing" or self.left <= self.right + slack

    def explain(self) -> str:
        """Say in a sentence or two what the numbers mean."""
        if not np.isfinite(self.right):
            return "The bound is not defined here: no component of Ĥ is left to take a logarithm of."
        sign = "≥" if self.holds_as_printed else "<"
        text = f"mean g = {self.left:.4g} {sign} {self.right:.4g}: the printed bound "
        text += "holds on these numbers" if self.holds_as_printed else "fails on these numbers"
        if self.follows == "nothing":
            return text + ", and the proof's own steps give no bound in either direction."
        reason = "positive" if self.log_am > 0 else "negative, which turns the sign"
        bound = "below" if self.follows == ">=" else "above"
        return text + f"; log AM = {self.log_am:.3g} is {reason}: the right side bounds mean g from {bound}."


def lemma1(values: FloatArray, h_hat: FloatArray, response: FloatArray) -> Lemma1:
    r"""Evaluate Lemma 1 for a filter.

    .. math:: \frac{1}{n} \sum_i g(\lambda_i) \;\ge\;
              \frac{\sum_i \log |\hat H_i|}{n (\log \sum_i g(\lambda_i) |\hat H_i| - \log \sum_i g(\lambda_i))}

    Parameters
    ----------
    values : eigenvalues λ of Ã in rising order, shape (n,)
    h_hat : Ĥ, shape (n,)
    response : g(λ_i) ≥ 0, shape (n,)
    """
    values, h_hat, g = (np.asarray(part, dtype=np.float64) for part in (values, h_hat, response))
    if not values.shape == h_hat.shape == g.shape or values.ndim != 1:
        raise InputError(
            f"values, h_hat and response must have one entry per eigenvalue, got shapes "
            f"{values.shape}, {h_hat.shape} and {g.shape}"
        )
    if g.min() < 0 or not g.sum() > 0:
        raise InputError(f"the response must be non-negative and not all zero, its smallest value is {g.min():.4g}")
    size, response_max = np.abs(h_hat), float(g.max())
    there = size > _ZERO * max(float(np.linalg.norm(h_hat)), np.finfo(float).tiny)
    n, zeros = int(there.sum()), int((~there).sum())
    g, size = g[there], size[there]
    total, logs = float(g.sum()), np.log(size)
    defined = total > 0
    log_am = float(np.log(g @ size) - np.log(total)) if defined else float("nan")
    return Lemma1(
        left=total / n if n else float("nan"),
        right=float(logs.sum()) / (n * log_am) if defined and log_am != 0 else float("nan"),
        log_am=log_am,
        components=n,
        zero_components=zeros,
        repeated_eigenvalues=_repeated(values),
        response_in_range=bool(response_max <= 2),
        step_amgm=defined and total * log_am >= float(g @ logs) - 1e-9 * n,
        step_weights=defined and float((g - 1.0) @ logs) >= 0.0,
    )


@dataclass(frozen=True)
class Theorem1:
    """Both sides of Theorem 1 and of each step of its proof, for one filter and one input.

    Parameters
    ----------
    error : mean squared error (1/n) ‖σ(g X) - Y‖²_F, the left side
    printed : the right side as printed
    taylor : bound after the Taylor step, c₁ - Σ_l ψ(Δy_l z_l) / 2n; with `C1` this one is true
    node_sum : Σ_l ψ(Δy_l z_l), over the nodes
    spectral_sum : Σ_i ψ(η_i g_i δ_i), over the frequencies; the proof takes it for ``node_sum``
    m_g : min of ψ(η_i) δ_i over the frequencies where neither is zero
    lemma : Lemma 1 over those frequencies, on which the last step rests
    """

    error: float
    printed: float
    taylor: float
    node_sum: float
    spectral_sum: float
    m_g: float
    lemma: Lemma1

    @property
    def holds_as_printed(self) -> bool:
        """Whether error ≤ printed on these numbers."""
        return bool(self.error <= self.printed)

    @property
    def sums_agree(self) -> bool:
        """Whether the sums over nodes and frequencies agree, as they must where nothing is clamped."""
        return bool(np.isclose(self.node_sum, self.spectral_sum, rtol=1e-6, atol=1e-9))

    @property
    def last_step_follows(self) -> bool:
        """Whether the lemma, in the direction that follows, supports the last step of the proof."""
        return self.lemma.follows == (">=" if self.m_g >= 0 else "<=")


# 2 (1/4 + 217/2304 + 1 - (e/(1+e))²), with ‖ψ(z)‖² ≤ n: the smallest c₁ for which the Taylor step is true.
# NOTE[DIFF] the proof has 1/(1+e)² for the last term, the most that clamping is said to cost; a confident wrong
# prediction (z > 1 on a node of class 0) costs up to 1 - (e/(1+e))² = 0.47, six times as much.
C1 = 2.0 * (0.25 + 217.0 / 2304.0 + 1.0 - (np.e / (1.0 + np.e)) ** 2)


def theorem1(spectrum: Spectrum, h_hat: FloatArray, response: FloatArray, x: FloatArray, y: FloatArray) -> Theorem1:
    r"""Evaluate Theorem 1 for two classes.

    .. math:: \overline{Er} \le c_1 - \frac{m_g \sum_{i \in I} \log|\hat H_i|}
              {2n \log \sum_{i \in I} g_i |\hat H_i| - 2n \log \sum_{i \in I} g_i}

    with δ = Uᵀ(y₁ - y₀), η = Uᵀ(x₁ - x₀), m_g = min ψ_{1/(g_i δ_i)}(η_i) δ_i, and I where δ and η are not zero.

    Parameters
    ----------
    spectrum : eigenpairs of Ã
    h_hat : Ĥ, shape (n,)
    response : g(1 - λ_i) ≥ 0 at each eigenvalue, shape (n,)
    x : input of the last layer, shape (n, 2)
    y : class of each node, 0 or 1, shape (n,)
    """
    x, y, g = np.asarray(x, np.float64), np.asarray(y), np.asarray(response, np.float64)
    n = spectrum.values.size
    if x.shape != (n, 2):
        raise InputError(f"x must have shape ({n}, 2), one column per class, got {x.shape}")
    if y.shape != (n,) or not np.isin(y, (0, 1)).all():
        raise InputError("y must hold one 0 or 1 per node: the theorem is about two classes and full labels")
    dx, dy = x[:, 1] - x[:, 0], 2.0 * y - 1.0
    delta, eta = spectrum.transform(dy), spectrum.transform(dx)
    z = spectrum.vectors @ (g * eta)
    # softmax over two classes: the first column is 1 / (1 + e^z), the second the rest
    first = 1.0 / (1.0 + np.exp(z))
    error = 2.0 * float(np.mean((first - (1.0 - y)) ** 2))
    node_sum = float(np.clip(dy * z, -1.0, 1.0).sum())
    spectral = np.clip(eta * g * delta, -1.0, 1.0)
    used = (np.abs(delta) > _ZERO * np.sqrt(n)) & (np.abs(eta) > _ZERO * max(1.0, float(np.linalg.norm(dx)))) & (g > 0)
    if not used.any():
        raise InputError("the input x has no frequency in common with the labels, so the theorem says nothing")
    m_g = float((spectral[used] / g[used]).min())
    lemma = lemma1(spectrum.values[used], h_hat[used], g[used])
    return Theorem1(
        error=error,
        printed=C1 - m_g * lemma.right * lemma.components / (2 * n),
        taylor=C1 - node_sum / (2 * n),
        node_sum=node_sum,
        spectral_sum=float(spectral.sum()),
        m_g=m_g,
        lemma=lemma,
    )


def _repeated(values: FloatArray) -> int:
    """Count the eigenvalues that equal a neighbour of theirs to rounding."""
    near = np.diff(np.sort(values)) < 1e-10
    return int((np.append(near, False) | np.insert(near, 0, False)).sum())
