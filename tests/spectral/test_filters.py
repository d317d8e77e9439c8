"""Every filter against its formula as a function of λ."""

import numpy as np
import pytest
import torch

from gpatcher.errors import InputError
from gpatcher.spectral.filters import (
    SIGMAS,
    Adaptive,
    Bandpass,
    Heat,
    Polynomial,
    Shared,
    chebyshev,
    hats,
    ppr_response,
    response,
)

# values between the knots as well, such as 0.1234
LAMBDA = torch.tensor([-1.0, -0.777, -0.31, -0.013, 0.0, 0.1234, 0.5, 0.918, 0.9999, 1.0], dtype=torch.float64)
SINGLE = LAMBDA.float().numpy()


def randomised(filter, seed=0):
    """Give a filter random weights."""
    torch.manual_seed(seed)
    with torch.no_grad():
        filter.weight.copy_(torch.randn_like(filter.weight))
    return filter


# ------------------------------------------------------------------------------------------------ functions


@pytest.mark.parametrize("K", [1, 7, 200])
def test_chebyshev_against_numpy(K):
    expected = np.polynomial.chebyshev.chebvander(LAMBDA.numpy(), K)[:, 1:]
    np.testing.assert_allclose(chebyshev(LAMBDA, K), expected, atol=1e-9)


def test_chebyshev_clamps_eigenvalues_slightly_outside_the_interval():
    values = chebyshev(torch.tensor([1.0 + 1e-6, -1.0 - 1e-6]), 5)
    assert values[0].tolist() == pytest.approx([1.0] * 5)
    assert values[1].tolist() == pytest.approx([-1.0, 1.0, -1.0, 1.0, -1.0], abs=1e-5)


def test_hats_interpolate_linearly():
    knots = torch.linspace(-1, 1, 9, dtype=torch.float64)
    at_knots = torch.sin(3 * knots)
    expected = np.interp(LAMBDA.numpy(), knots.numpy(), at_knots.numpy())
    np.testing.assert_allclose(hats(LAMBDA, knots) @ at_knots, expected, atol=1e-12)


# --------------------------------------------------------------------------------------------- adaptive


@pytest.mark.parametrize("c", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("K", "bands"), [(1, 2), (1, 32), (10, 32), (200, 32), (10, 5)])
def test_adaptive_is_initially_pagerank_everywhere(c, K, bands):
    expected = (1 - c) / (1 - c * LAMBDA.numpy())
    np.testing.assert_allclose(response(Adaptive(K=K, bands=bands, c=c), SINGLE), expected, rtol=2e-5)


@pytest.mark.parametrize("bands", [3, 33])
def test_adaptive_with_a_knot_at_zero(bands):
    """T_1 vanishes at λ = 0, so one power alone cannot set g at that knot; it still sets the others."""
    filter = Adaptive(K=1, bands=bands, c=0.5)
    assert torch.isfinite(filter.weight).all()
    ends = np.array([-1.0, 1.0], np.float32)
    np.testing.assert_allclose(response(filter, ends), 0.5 / (1 - 0.5 * ends), rtol=1e-5)


@pytest.mark.parametrize("sigma", ["none", "tanh", "relu"])
def test_adaptive_coefficients_are_the_sum_over_the_powers(sigma):
    K, bands = 6, 8
    filter = randomised(Adaptive(K=K, bands=bands, sigma=sigma))
    knots = np.linspace(-1, 1, bands)
    function = {"none": lambda t: t, "tanh": np.tanh, "relu": lambda t: np.maximum(t, 0)}[sigma]
    weight = filter.weight.detach().numpy()
    expected = sum(function(weight[k - 1] * np.cos(k * np.arccos(np.clip(knots, -1, 1)))) for k in range(1, K + 1))
    np.testing.assert_allclose(filter.coefficients().detach(), expected, atol=1e-5)
    # at a knot g is that coefficient
    np.testing.assert_allclose(filter(torch.tensor(knots)[[0, 3, 7]].float()).detach(), expected[[0, 3, 7]], atol=1e-5)


def test_adaptive_between_knots_is_pagerank_times_a_linear_ratio():
    c, bands = 0.5, 8
    filter = randomised(Adaptive(K=4, bands=bands, c=c))
    knots = np.linspace(-1, 1, bands)

    def pagerank(t):
        return (1 - c) / (1 - c * t)

    ratio = np.interp(LAMBDA.numpy(), knots, filter.coefficients().detach().numpy() / pagerank(knots))
    np.testing.assert_allclose(response(filter, SINGLE), ratio * pagerank(LAMBDA.numpy()), atol=1e-5)


def test_sigma_none_and_relu_start_equal_and_tanh_differs():
    by_name = {s: response(Adaptive(K=5, sigma=s), SINGLE) for s in SIGMAS}
    np.testing.assert_allclose(by_name["relu"], by_name["none"], rtol=1e-5)
    assert np.abs(by_name["tanh"] - by_name["none"]).max() > 1e-3


# --------------------------------------------------------------------------------- polynomial and shared


@pytest.mark.parametrize("c", [0.3, 0.5, 0.9])
def test_polynomial_is_initially_pagerank_up_to_a_constant(c):
    gap = response(Polynomial(K=200, c=c), SINGLE) - ppr_response(LAMBDA, c).numpy()
    np.testing.assert_allclose(gap, gap[0], atol=1e-5)
    # the constant term of the Chebyshev series
    assert -gap[0] == pytest.approx((1 - c) / np.sqrt(1 - c * c), abs=1e-5)


def test_polynomial_is_the_sum_of_weighted_polynomials():
    filter = randomised(Polynomial(K=5))
    weight = np.concatenate([[0.0], filter.weight.detach().numpy()])
    expected = np.polynomial.chebyshev.chebval(LAMBDA.numpy(), weight)
    np.testing.assert_allclose(response(filter, SINGLE), expected, atol=1e-5)


def test_shared_is_one_weight_times_the_mean_power():
    K, bands = 4, 6
    filter = Shared(K=K, bands=bands)
    lam = LAMBDA.numpy()
    powers = sum(lam**k for k in range(1, K + 1)) / K
    np.testing.assert_allclose(response(filter, SINGLE), powers, atol=1e-6)
    randomised(filter)
    weight = np.interp(lam, np.linspace(-1, 1, bands), filter.weight.detach().numpy())
    np.testing.assert_allclose(response(filter, SINGLE), weight * powers, atol=1e-5)


# ------------------------------------------------------------------------------------------------ fixed


@pytest.mark.parametrize("K", [1, 3, 10])
def test_heat_is_proportional_to_the_sum_of_exponentials(K):
    lam = LAMBDA.numpy()
    expected = sum(np.exp(-t * lam) for t in range(1, K + 1))
    result = response(Heat(K=K), lam)
    np.testing.assert_allclose(result / expected, np.full(len(lam), result[0] / expected[0]), rtol=1e-10)
    assert result[0] == pytest.approx(1.0)
    assert np.all(np.diff(result) < 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heat_stays_finite_for_many_terms(dtype):
    result = Heat(K=200)(LAMBDA.to(dtype))
    assert result.dtype == dtype
    assert torch.isfinite(result).all()
    assert result[0] == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("K", [1, 3, 10])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, -0.5), (-0.31, 0.918), (-1.0, 1.0)])
def test_bandpass_is_one_within_the_band(K, low, high):
    lam = LAMBDA.numpy()
    expected = ((lam >= low) & (lam <= high)).astype(float)
    np.testing.assert_array_equal(response(Bandpass(K=K, low=low, high=high), lam), expected)


def test_bandpass_includes_eigenvalues_outside_the_interval_by_rounding():
    values = np.array([-1.0 - 3e-7, -0.2, 1.0 + 3e-7], np.float32)
    assert response(Bandpass(), values).tolist() == [0.0, 0.0, 1.0]
    assert response(Bandpass(low=-1.0, high=-0.5), values).tolist() == [1.0, 0.0, 0.0]


def test_bandpass_treats_a_rounded_zero_as_zero():
    """Zero is a common eigenvalue (duplicates, trees, isolated nodes); rounding must not select its eigenvectors."""
    values = np.array([-1e-7, 0.0, 1e-7], np.float32)
    assert len(set(response(Bandpass(low=0.0, high=1.0), values).tolist())) == 1


# -------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize(
    "filter",
    [Adaptive(K=10), Adaptive(K=3, sigma="tanh"), Polynomial(K=10), Shared(K=5)],
    ids=["adaptive", "tanh", "polynomial", "shared"],
)
def test_gradient_reaches_every_weight(filter):
    values = torch.linspace(-1, 1, 501)
    # an asymmetric loss, so that no gradient vanishes by symmetry
    (filter(values) * (1.3 + values + torch.sin(5 * values))).sum().backward()
    assert filter.weight.grad.shape == filter.weight.shape
    assert torch.isfinite(filter.weight.grad).all()
    assert (filter.weight.grad.abs() > 1e-7).all()


def test_gradient_of_the_coefficients_is_the_formula():
    filter = randomised(Adaptive(K=4, bands=5, sigma="tanh"))
    filter.coefficients()[2].backward()
    k = np.arange(1, 5)
    power = np.cos(k * np.arccos(0.0))
    weight = filter.weight.detach().numpy()
    expected = np.zeros((4, 5))
    expected[:, 2] = (1 - np.tanh(weight[:, 2] * power) ** 2) * power
    np.testing.assert_allclose(filter.weight.grad, expected, atol=1e-5)


def test_weights_can_fit_any_response_at_the_knots():
    """A filter that is initially low-pass can become high-pass."""
    filter = Adaptive(K=10, bands=16)
    target = torch.linspace(1, -1, 16)
    optimiser = torch.optim.Adam(filter.parameters(), lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        (filter(filter.knots) - target).square().sum().backward()
        optimiser.step()
    np.testing.assert_allclose(filter(filter.knots).detach(), target, atol=1e-2)


@pytest.mark.parametrize("make", [Adaptive, Polynomial, Shared, Heat, Bandpass])
def test_eigenvalues_in_double_precision(make):
    """`eigenpairs` returns float64 by default; every filter must accept it."""
    np.testing.assert_allclose(response(make(), LAMBDA.numpy()), response(make(), SINGLE), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Adaptive(K=0), "got 0"),
        (lambda: Adaptive(bands=1), "got 1"),
        (lambda: Polynomial(K=0), "got 0"),
        (lambda: Shared(K=0), "got 0"),
        (lambda: Shared(bands=1), "got 1"),
        (lambda: Heat(K=0), "got 0"),
        (lambda: Bandpass(K=0), "got 0"),
        (lambda: Bandpass(low=0.5, high=0.2), "low=0.5, high=0.2"),
        (lambda: Bandpass(low=-2.0), "low=-2.0"),
        (lambda: Adaptive(sigma="nonsense"), "nonsense"),
        (lambda: Adaptive(c=1.5), "1.5"),
        (lambda: Adaptive(c=1.0), r"1\.0"),
        (lambda: Polynomial(c=1.5), "1.5"),
    ],
)
def test_impossible_filters_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()
