"""Numerical evaluation of Lemma 1 and Theorem 1 of the paper: both sides, every precondition, every step.

Neither holds as printed on real graphs. The proof of the lemma ends with a division by log AM, AM = Σ g|Ĥ| / Σ g.
Usually AM < 1, so its logarithm is negative and the inequality is reversed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpatcher.arrays import FloatArray
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.spectral.heterophily import heterophily
from gpatcher.spectral.results import Lemma1
from gpatcher.spectral.spectrum import Spectrum

_ZERO = 1e-10  # components below this, relative to the norm of the vector, are rounding errors


def spectral_heterophily(graph: Graph, spectrum: Spectrum) -> FloatArray:
    """Return Ĥ = H·U of Definition 2, shape (n,); an undefined H_i (0 / 0) counts as 0."""
    return spectrum.transform(np.nan_to_num(heterophily(graph).node))


def lemma1(values: FloatArray, h_hat: FloatArray, response: FloatArray) -> Lemma1:
    r"""Evaluate Lemma 1 for a filter with response g(λ_i) ≥ 0 at the eigenvalues λ of Ã.

    .. math:: \frac{1}{n} \sum_i g(\lambda_i) \;\ge\;
              \frac{\sum_i \log |\hat H_i|}{n (\log \sum_i g(\lambda_i) |\hat H_i| - \log \sum_i g(\lambda_i))}
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
    nonzero = size > _ZERO * max(float(np.linalg.norm(h_hat)), np.finfo(float).tiny)
    n = int(nonzero.sum())
    g, size = g[nonzero], size[nonzero]
    total, logs = float(g.sum()), np.log(size)
    defined = total > 0
    log_am = float(np.log(g @ size) - np.log(total)) if defined else float("nan")
    return Lemma1(
        left=total / n if n else float("nan"),
        right=float(logs.sum()) / (n * log_am) if defined and log_am != 0 else float("nan"),
        log_am=log_am,
        components=n,
        zero_components=values.size - n,
        repeated_eigenvalues=_repeated(values),
        response_in_range=bool(response_max <= 2),
        step_amgm=defined and total * log_am >= float(g @ logs) - 1e-9 * n,
        step_weights=defined and float((g - 1.0) @ logs) >= 0.0,
    )


@dataclass(frozen=True)
class Theorem1:
    """Both sides of Theorem 1 and of each step of its proof, for one filter and one input."""

    error: float  # the left side, the mean squared error (1/n) ‖σ(g X) - Y‖²_F
    printed: float  # the right side as printed
    taylor: float  # bound after the Taylor step, c₁ - Σ_l ψ(Δy_l z_l) / 2n; holds with `C1`
    node_sum: float  # Σ_l ψ(Δy_l z_l) over the nodes
    spectral_sum: float  # Σ_i ψ(η_i g_i δ_i) over the frequencies; the proof takes it to equal node_sum
    m_g: float  # minimum of ψ(η_i) δ_i over the frequencies where neither is zero
    lemma: Lemma1  # Lemma 1 over those frequencies, which the last step uses

    @property
    def holds_as_printed(self) -> bool:
        """Whether error ≤ printed on these numbers."""
        return bool(self.error <= self.printed)

    @property
    def sums_agree(self) -> bool:
        """Whether the sums over nodes and frequencies are equal, as they are where nothing is clamped."""
        return bool(np.isclose(self.node_sum, self.spectral_sum, rtol=1e-6, atol=1e-9))

    @property
    def last_step_follows(self) -> bool:
        """Whether the direction of the lemma that follows supports the last step of the proof."""
        return self.lemma.follows == (">=" if self.m_g >= 0 else "<=")


# 2 (1/4 + 217/2304 + 1 - (e/(1+e))²), with ‖ψ(z)‖² ≤ n: the smallest c₁ for which the Taylor step holds.
# NOTE[DIFF] the proof has 1/(1+e)² for the last term, its bound on the effect of clamping; a confident wrong
# prediction (z > 1 on a node of class 0) costs up to 1 - (e/(1+e))² = 0.47, six times as much.
C1 = 2.0 * (0.25 + 217.0 / 2304.0 + 1.0 - (np.e / (1.0 + np.e)) ** 2)


def theorem1(spectrum: Spectrum, h_hat: FloatArray, response: FloatArray, x: FloatArray, y: FloatArray) -> Theorem1:
    r"""Evaluate Theorem 1 for two classes y, input x of the last layer (n, 2) and response g(1 - λ_i) ≥ 0.

    .. math:: \overline{Er} \le c_1 - \frac{m_g \sum_{i \in I} \log|\hat H_i|}
              {2n \log \sum_{i \in I} g_i |\hat H_i| - 2n \log \sum_{i \in I} g_i}

    with δ = Uᵀ(y₁ - y₀), η = Uᵀ(x₁ - x₀), m_g = min ψ_{1/(g_i δ_i)}(η_i) δ_i, and I where δ and η are not zero.
    """
    x, y, g = np.asarray(x, np.float64), np.asarray(y), np.asarray(response, np.float64)
    n = spectrum.values.size
    if x.shape != (n, 2):
        raise InputError(f"x must have shape ({n}, 2), one column per class, got {x.shape}")
    if y.shape != (n,) or not np.isin(y, (0, 1)).all():
        raise InputError("y must be 0 or 1 for each node: the theorem holds for two classes and full labels")
    dx, dy = x[:, 1] - x[:, 0], 2.0 * y - 1.0
    delta, eta = spectrum.transform(dy), spectrum.transform(dx)
    z = spectrum.vectors @ (g * eta)
    # softmax over two classes: the first column is 1 / (1 + e^z), the second its complement
    first = 1.0 / (1.0 + np.exp(z))
    error = 2.0 * float(np.mean((first - (1.0 - y)) ** 2))
    node_sum = float(np.clip(dy * z, -1.0, 1.0).sum())
    spectral = np.clip(eta * g * delta, -1.0, 1.0)
    used = (np.abs(delta) > _ZERO * np.sqrt(n)) & (np.abs(eta) > _ZERO * max(1.0, float(np.linalg.norm(dx)))) & (g > 0)
    if not used.any():
        raise InputError("the input x and the labels have no frequency in common, so the theorem does not apply")
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
    """Count the eigenvalues that equal another one up to rounding."""
    equal = np.diff(np.sort(values)) < 1e-10
    return int((np.append(equal, False) | np.insert(equal, 0, False)).sum())
