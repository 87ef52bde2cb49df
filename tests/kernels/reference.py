"""The kernels once more, in mpmath, as the paper's corrected table has them: an independent reference."""

from __future__ import annotations

import mpmath as mp

from inlier import kernels

# Enough digits for 1 - (1 - e^-r) and (r/b + 1)^(1e-300) - 1.
mp.mp.dps = 400


def _barron(alpha):
    b = 2 - alpha
    if alpha == 0:
        return lambda r: 2 * mp.log1p(r / 2), lambda r: 1 / (1 + r / 2)
    if alpha == -mp.inf:
        return lambda r: 2 * (1 - mp.exp(-r / 2)), lambda r: mp.exp(-r / 2)
    return (
        lambda r: 2 * (b / alpha) * ((r / b + 1) ** (alpha / 2) - 1),
        lambda r: (r / b + 1) ** (alpha / 2 - 1),
    )


def _truncated():
    return lambda r: min(r, mp.mpf(1)), lambda r: mp.mpf(1 if r <= 1 else 0)


def _geman_mcclure():
    return lambda r: r / (1 + r), lambda r: (1 + r) ** -2


def _welsch():
    return lambda r: 1 - mp.exp(-r), lambda r: mp.exp(-r)


def _huber():
    return lambda r: r if r <= 1 else 2 * mp.sqrt(r) - 1, lambda r: min(mp.mpf(1), 1 / mp.sqrt(r))


def _tukey():
    return (
        lambda r: (1 - (1 - r) ** 3) / 3 if r < 1 else mp.mpf(1) / 3,
        lambda r: (1 - r) ** 2 if r < 1 else mp.mpf(0),
    )


def _symmetric(A):
    return lambda r: (r + A * (1 - mp.exp(-r))) / (1 + A), lambda r: (1 + A * mp.exp(-r)) / (1 + A)


def _taylor(t):
    t = int(t)
    return (
        lambda r: mp.fsum((1 - mp.exp(-r)) ** m / m for m in range(1, t + 1)),
        lambda r: 1 - (1 - mp.exp(-r)) ** t,
    )


def _asymmetric_gce(a, q):
    return (
        lambda r: ((a + 1) ** q - (a + mp.exp(-r)) ** q) / (q * (a + 1) ** (q - 1)),
        lambda r: mp.exp(-r) * ((a + mp.exp(-r)) / (a + 1)) ** (q - 1),
    )


def _unhinged(a, p):
    return (
        lambda r: ((a - mp.exp(-r)) ** p - (a - 1) ** p) / (p * (a - 1) ** (p - 1)),
        lambda r: mp.exp(-r) * ((a - mp.exp(-r)) / (a - 1)) ** (p - 1),
    )


def _exponential(a):
    return (
        lambda r: a * (mp.exp((1 - mp.exp(-r)) / a) - 1),
        lambda r: mp.exp(-r) * mp.exp((1 - mp.exp(-r)) / a),
    )


REFERENCES = {
    "truncated": _truncated,
    "geman-mcclure": _geman_mcclure,
    "welsch-leclerc": _welsch,
    "cauchy-lorentzian": lambda: (lambda r: mp.log(1 + r), lambda r: 1 / (1 + r)),
    "charbonnier": lambda: (lambda r: 2 * (mp.sqrt(1 + r) - 1), lambda r: 1 / mp.sqrt(1 + r)),
    "barron": _barron,
    "huber": _huber,
    "tukey": _tukey,
    "mean-error": _welsch,
    "reverse-cross-entropy": _welsch,
    "generalized-cross-entropy": lambda q: (lambda r: (1 - mp.exp(-q * r)) / q, lambda r: mp.exp(-q * r)),
    "symmetric-cross-entropy": _symmetric,
    "taylor-cross-entropy": _taylor,
    "asymmetric-generalized-cross-entropy": _asymmetric_gce,
    "asymmetric-unhinged": _unhinged,
    "asymmetric-exponential": _exponential,
}

# Shapes at which each family is tested besides its defaults, the corners of its parameters among them.
SHAPES = {
    "barron": [
        {"alpha": a} for a in (1, 1.99, 2 - 1e-9, 1e-9, -1e-9, 1e-300, -2, -37.5, -1e6, -float("inf"))
    ],
    "generalized-cross-entropy": [{"q": 1e-3}, {"q": 1}],
    "symmetric-cross-entropy": [{"A": 0.1}, {"A": 100}],
    "taylor-cross-entropy": [{"t": 1}, {"t": 6}],
    "asymmetric-generalized-cross-entropy": [{"a": 1e-9, "q": 0.1}, {"a": 5, "q": 4}],
    "asymmetric-unhinged": [{"a": 1.001, "p": 0.3}, {"a": 2, "p": 2}],
    "asymmetric-exponential": [{"a": 1}, {"a": 50}],
}


def all_kernels() -> list[kernels.Kernel]:
    """Every registered kernel at its defaults and at its corners."""
    return [kernels.get(name, **shape) for name in kernels.names() for shape in [{}, *SHAPES.get(name, [])]]


def reference(kernel: kernels.Kernel):
    """(sigma, slope) of a kernel in mpmath, at c = 1."""
    return REFERENCES[kernel.name](**{name: mp.mpf(value) for name, value in vars(kernel).items()})
