"""Spectral filters g(λ): the score of one node for another is an entry of R = U g(Λ) Uᵀ.

A learnable filter is linear in a few coefficients over fixed functions of λ,

    g(λ) = Σ_f φ_f(λ) · coefficient_f(w),

so in each training step the score of a pair of nodes is a short dot product, independent of the size of the graph.
A constant added to g changes only the diagonal of R, the score of a node for itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from gpatcher.arrays import FloatArray
from gpatcher.errors import InputError, check_at_least, check_choice, check_count, check_fraction

SIGMAS: dict[str, Callable[[Tensor], Tensor]] = {"none": lambda t: t, "tanh": torch.tanh, "relu": torch.relu}


def chebyshev(values: Tensor, K: int) -> Tensor:
    """Return T_1(λ) … T_K(λ), shape (len(values), K).

    Together with a constant they span the same functions as λ, …, λ^K, but do not vanish inside (-1, 1) for large K.
    """
    theta = torch.arccos(values.clamp(-1.0, 1.0))
    return torch.cos(theta[:, None] * torch.arange(1, K + 1, dtype=values.dtype))


def ppr_response(values: Tensor, c: float) -> Tensor:
    """Return (1 - c) / (1 - cλ), the response of personalised PageRank."""
    return (1.0 - c) / (1.0 - c * values)


def hats(values: Tensor, knots: Tensor) -> Tensor:
    """Return the piecewise linear hat functions, 1 at one knot and 0 at the others; shape (len(values), len(knots))."""
    width = float(knots[1] - knots[0])
    return (1.0 - (values.clamp(-1.0, 1.0)[:, None] - knots.to(values)).abs() / width).clamp_min(0.0)


def _check(K: int, c: float = 0.5, bands: int = 2) -> None:
    check_count(K=K)
    check_fraction("c", c)
    check_at_least(2, bands=bands)


class LearnableFilter(nn.Module, ABC):
    """A filter with learned weights: fixed functions φ (`basis`) times learned `coefficients`."""

    @abstractmethod
    def basis(self, values: Tensor) -> Tensor:
        """Return the fixed functions of λ, shape (len(values), F)."""

    @abstractmethod
    def coefficients(self) -> Tensor:
        """Return the coefficients over the basis, shape (F,); gradients reach the weights."""

    def forward(self, values: Tensor) -> Tensor:
        """Return g(λ), shape (len(values),)."""
        return self.basis(values) @ self.coefficients().to(values.dtype)


class Adaptive(LearnableFilter):
    r"""The heterophily-aware filter: one weight per power and eigenvalue (Eq. 4 to 6).

    .. math:: g(\lambda_i) = \sum_{k=1}^K \sigma(w_{ki}\, T_k(\lambda_i))

    NOTE[DIFF] the weights are at ``bands`` knots over [-1, 1], not at every eigenvalue: K × bands weights. The K
    weights of one eigenvalue act only through their sum, so K × n weights amount to a free value of g at each
    eigenvalue; with enough knots little is lost, and g is smoother. Between knots the *ratio* of g to its
    initial value is linear, so that the initial filter, personalised PageRank with damping factor c, is exact: a kink
    in g would give distant nodes spurious scores. ``sigma`` is the activation in Eq. 4; Eq. 5 and 6 have none.

    NOTE[DIFF] T_k in place of λ^k: the same span, well conditioned for K up to 200.
    """

    def __init__(self, K: int = 10, bands: int = 32, c: float = 0.5, sigma: str = "none") -> None:
        super().__init__()
        _check(K, c, bands)
        check_choice("sigma", sigma, SIGMAS)
        self.sigma = SIGMAS[sigma]
        self.register_buffer("knots", torch.linspace(-1.0, 1.0, bands))
        self.register_buffer("powers", chebyshev(self.knots, K).T.contiguous())  # (K, bands)
        self.c = c
        # the minimum-norm weights whose sum over the powers is the initial response at each knot
        least_norm = self.powers / self.powers.square().sum(0, keepdim=True)
        self.weight = nn.Parameter(least_norm * ppr_response(self.knots, c))

    knots: Tensor
    powers: Tensor

    def basis(self, values: Tensor) -> Tensor:
        """Return the hat functions of the knots, scaled so that the initial filter is exact between knots too."""
        ratio = ppr_response(values, self.c)[:, None] / ppr_response(self.knots.to(values), self.c)
        return hats(values, self.knots) * ratio

    def coefficients(self) -> Tensor:
        """Return g at the knots."""
        return self.sigma(self.weight * self.powers).sum(0)


class Polynomial(LearnableFilter):
    r"""One weight per power, for all eigenvalues; needs no eigenvectors. Initially PageRank with damping factor c.

    .. math:: g(\lambda) = \sum_{k=1}^K w_k\, T_k(\lambda)
    """

    def __init__(self, K: int = 10, c: float = 0.5) -> None:
        super().__init__()
        _check(K, c)
        # the Chebyshev series of personalised PageRank, without its constant term
        root = np.sqrt(1.0 - c * c)
        ratio = (1.0 - root) / c if c > 0 else 0.0
        weight = 2.0 * (1.0 - c) / root * ratio ** np.arange(1, K + 1)
        self.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float32))

    def basis(self, values: Tensor) -> Tensor:
        """Return T_1 … T_K."""
        return chebyshev(values, self.weight.numel())

    def coefficients(self) -> Tensor:
        """Return the weights."""
        return self.weight


class Shared(LearnableFilter):
    r"""One weight per eigenvalue, shared by all powers.

    .. math:: g(\lambda_i) = w_{1i} \sum_{k=1}^K \lambda_i^k

    NOTE[DIFF] as in `Adaptive`, the weights are at knots; the sum is divided by K, which does not change the ranking.
    """

    def __init__(self, K: int = 10, bands: int = 32) -> None:
        super().__init__()
        _check(K, bands=bands)
        self.K = K
        self.register_buffer("knots", torch.linspace(-1.0, 1.0, bands))
        self.weight = nn.Parameter(torch.ones(bands))

    knots: Tensor

    def basis(self, values: Tensor) -> Tensor:
        """Return the hat functions of the knots, each times the mean power of λ."""
        powers = values[:, None] ** torch.arange(1, self.K + 1, dtype=values.dtype)
        return hats(values, self.knots) * powers.mean(1, keepdim=True)

    def coefficients(self) -> Tensor:
        """Return the weights at the knots."""
        return self.weight


class Heat:
    r"""The fixed heat filter.

    .. math:: g(\lambda) = \sum_{t=1}^K e^{-t\lambda}

    Divided by its maximum over [-1, 1], which does not change the ranking and avoids overflow at K = 200. With the
    eigenvalues of Ã, as printed, it favours *high* frequencies.
    """

    def __init__(self, K: int = 10) -> None:
        _check(K)
        self.K = K

    def __call__(self, values: Tensor) -> Tensor:
        """Return g(λ), shape (len(values),)."""
        t = torch.arange(1, self.K + 1, dtype=torch.float64)
        exponent = -values.double()[:, None] * t
        return torch.exp(torch.logsumexp(exponent, 1) - torch.logsumexp(t, 0)).to(values.dtype)


class Bandpass:
    r"""The fixed bandpass filter: K adjacent rectangular windows on [low, high].

    .. math:: g(\lambda) = \sum_{k=1}^K 1[l + (k-1)w \le \lambda < l + kw], \quad w = (h - l) / K

    The last window includes its upper end. The windows tile the band, so g is 1 within it and 0 elsewhere.
    """

    def __init__(self, K: int = 10, low: float = 0.0, high: float = 1.0) -> None:
        if not -1.0 <= low < high <= 1.0:
            raise InputError(f"the band must lie in [-1, 1], got low={low}, high={high}")
        _check(K)
        self.K, self.low, self.high = K, low, high

    def __call__(self, values: Tensor) -> Tensor:
        """Return g(λ), shape (len(values),)."""
        edges = torch.linspace(self.low, self.high, self.K + 1, dtype=values.dtype)
        # eigenvalues have rounding errors of about 1e-6: one on a boundary must fall into the right window
        rounded = (values.clamp(-1.0, 1.0) * 1e5).round()[:, None] / 1e5
        edges = (edges * 1e5).round() / 1e5
        inside = (rounded >= edges[:-1]) & (rounded < edges[1:])
        inside[:, -1] |= rounded[:, 0] == edges[-1]
        return inside.sum(1).to(values.dtype)


def response(filter: LearnableFilter | Heat | Bandpass, values: FloatArray) -> FloatArray:
    """Return g(λ) of any filter as an array."""
    with torch.no_grad():
        return filter(torch.as_tensor(values)).numpy()
