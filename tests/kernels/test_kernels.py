"""The kernels against an independent reference, and against the lines of the paper's Definition 1."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import inlier
from inlier import kernels
from inlier.kernels import Kernel
from tests.kernels.reference import REFERENCES, all_kernels, reference

KERNELS = all_kernels()
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=str)
any_kernel = st.sampled_from(KERNELS)
losses = st.floats(0, 1e30, allow_nan=False)
scales = st.floats(1e-6, 1e6)

RADII = torch.logspace(-30, 30, 121, dtype=torch.float64)
NEAR_ONE = torch.linspace(0.05, 20, 80, dtype=torch.float64)


def worst_error(computed: torch.Tensor, exact: list, dtype: torch.dtype) -> float:
    """The largest relative error; results too small for the dtype's normal numbers count in their units."""
    tiny = mp.mpf(torch.finfo(dtype).tiny)
    largest = mp.mpf(torch.finfo(dtype).max)
    worst = mp.mpf(0)
    for value, true in zip(computed.tolist(), exact, strict=True):
        if true > largest:
            error = mp.mpf(0 if value == math.inf else 1)
        else:
            error = abs(mp.mpf(value) - true) / max(abs(true), tiny)
        worst = max(worst, error)
    return float(worst)


def assert_matches_reference(kernel: Kernel, dtype: torch.dtype, tolerance: float, c: float = 1.0) -> None:
    sigma, slope = reference(kernel)
    r = torch.cat([RADII, NEAR_ONE]).to(dtype)
    exact = [mp.mpf(x) for x in r.tolist()]
    value = kernel(r, c)
    weight = kernel.weight(r, c)
    assert value.dtype == weight.dtype == dtype
    assert worst_error(value, [c * sigma(x / c) for x in exact], dtype) <= tolerance
    assert worst_error(weight, [slope(x / c) for x in exact], dtype) <= tolerance


def assert_dual(kernel: Kernel) -> None:
    """Phi is the price at which u = sigma'(r) is the best weight, and the inverse weight leads back to r."""
    r = torch.cat([torch.zeros(1), torch.logspace(-6, 6, 100)]).double()
    u = torch.linspace(0, 1, 101, dtype=torch.float64)
    phi = kernel.outlier_process(u)
    assert float(phi[-1]) == pytest.approx(0, abs=1e-12)
    priced = u * r[:, None] + phi
    sigma = kernel(r)
    assert bool((priced >= sigma[:, None] * (1 - 1e-9) - 1e-12).all())
    best = kernel.weight(r)
    torch.testing.assert_close(best * r + kernel.outlier_process(best), sigma, rtol=1e-8, atol=1e-8)
    inner = u[(u > kernel.weight_floor) & (u > 0) & (u < 1)]
    back = kernel.inverse_weight(inner)
    # Barron near alpha = 2 falls so slowly that some weights lie beyond the largest float64.
    inner, back = inner[back.isfinite()], back[back.isfinite()]
    assert bool((kernel.weight(back * (1 + 1e-9)) <= inner * (1 + 1e-6)).all())
    assert bool((kernel.weight(back * (1 - 1e-9)) >= inner * (1 - 1e-6)).all())


def assert_right(kernel: Kernel) -> None:
    assert_matches_reference(kernel, torch.float64, 1e-12)
    assert_dual(kernel)


@every_kernel
@pytest.mark.parametrize("c", [1.0, 1e-3, 7.3, 1e5])
def test_float64_agrees_with_mpmath_to_12_digits(kernel, c):
    assert_matches_reference(kernel, torch.float64, 1e-12, c)


@every_kernel
@pytest.mark.parametrize("c", [1.0, 1e-3, 7.3, 1e5])
def test_float32_agrees_with_mpmath_to_6_digits(kernel, c):
    assert_matches_reference(kernel, torch.float32, 1e-6, c)


@every_kernel
def test_duality(kernel):
    assert_dual(kernel)


def test_every_registered_kernel_has_a_reference():
    assert set(kernels.names()) == set(REFERENCES)


@given(any_kernel, scales)
def test_slope_is_one_at_zero(kernel, c):
    assert kernel.weight(0.0, c) == 1.0
    assert kernel.weight(1e-18 * c, c) == pytest.approx(1, abs=1e-6)


@given(any_kernel, losses, losses, scales)
def test_weight_is_in_the_unit_interval_and_never_increases(kernel, first, second, c):
    low, high = sorted([first, second])
    assert 0 <= kernel.weight(high, c) <= kernel.weight(low, c) * (1 + 1e-12) <= 1 + 1e-12


@given(any_kernel, losses, losses, scales)
def test_value_keeps_the_order_of_losses(kernel, first, second, c):
    low, high = sorted([first, second])
    assert kernel(low, c) <= kernel(high, c) * (1 + 1e-12)


@given(any_kernel, losses, scales, st.floats(1e-3, 1e3))
def test_scale_rule(kernel, r, c, k):
    # Exponential tails magnify the rounding of r / c: compare where the weight is not vanishing.
    assert kernel(k * r, k * c) == pytest.approx(k * kernel(r, c), rel=1e-9)
    assert kernel.weight(k * r, k * c) == pytest.approx(kernel.weight(r, c), rel=1e-9, abs=1e-12)


def test_scale_rule_holds_where_the_truncated_weight_jumps():
    assert kernels.Truncated().weight(torch.tensor([1.0, 1.0000001]), 1.0).tolist() == [1.0, 0.0]


@given(any_kernel, st.floats(0, 1e30), st.floats(0, 1))
def test_weighted_loss_plus_price_is_never_below_the_robust_loss(kernel, r, u):
    sigma = kernel(r)
    assert u * r + kernel.outlier_process(u) >= sigma - 1e-9 * (1 + abs(sigma))


@every_kernel
def test_infinity_zero_and_all_between_are_never_nan(kernel):
    r = torch.tensor([0.0, 5e-324, 1e-300, 1.0, 1e300, 1.7e308, math.inf], dtype=torch.float64)
    for c in (0.0, 1e-300, 1.0, 1e300, math.inf):
        assert not kernel(r, c).isnan().any(), c
        assert not kernel.weight(r, c).isnan().any(), c
        assert float(kernel.weight(r, c)[-1]) == pytest.approx(kernel.weight_floor)
    sigma, slope = reference(kernel)
    far = mp.mpf(10) ** 300
    if kernel.name == "barron" and -math.inf < kernel.alpha < 0:
        limit = 2 * (2 - kernel.alpha) / -kernel.alpha
    else:
        limit = float(sigma(far)) if far * slope(far) < 1e-9 else math.inf
    assert kernel(math.inf) == pytest.approx(limit, rel=1e-9)


@every_kernel
def test_degenerate_scales_are_limits(kernel):
    r = torch.tensor([0.0, 1e-9, 3.0, 1e9])
    torch.testing.assert_close(kernel(r, math.inf), r)
    torch.testing.assert_close(kernel.weight(r, math.inf), torch.ones(4))
    torch.testing.assert_close(kernel(r, 0.0), kernel.weight_floor * r)
    torch.testing.assert_close(
        kernel.weight(r, 0.0), torch.tensor([1.0, *[kernel.weight_floor] * 3]), check_dtype=False
    )


@every_kernel
def test_negative_losses_continue_linearly(kernel):
    r = torch.tensor([-2.0, -1e-9])
    torch.testing.assert_close(kernel(r, 0.7), r)
    torch.testing.assert_close(kernel.weight(r, 0.7), torch.ones(2))


@every_kernel
def test_autograd_of_the_value_is_the_weight(kernel):
    r = torch.cat([torch.zeros(1), torch.logspace(-8, 8, 65)]).double().requires_grad_()
    (gradient,) = torch.autograd.grad(kernel(r, 0.37).sum(), r)
    torch.testing.assert_close(gradient, kernel.weight(r.detach(), 0.37), rtol=1e-9, atol=1e-12)


@every_kernel
def test_gradcheck_in_loss_and_scale(kernel):
    r = torch.tensor([0.013, 0.4, 0.99, 1.3, 5.0], dtype=torch.float64, requires_grad=True)
    c = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(kernel, (r, c))


@every_kernel
def test_shapes_dtypes_numpy_and_numbers(kernel):
    r = torch.rand(2, 3, 4)
    weight = kernel.weight(r, torch.tensor(0.5))
    assert weight.shape == r.shape
    array = kernel.weight(r.numpy(), 0.5)
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, weight.numpy())
    assert isinstance(kernel(1.5, 2.0), float)
    assert kernel.weight(r.bfloat16()).dtype == torch.float32
    assert kernel.weight(torch.empty(0)).shape == (0,)
    per_sample = kernel.weight(r[0, 0], torch.tensor([0.1, 0.2, 0.3, 0.4]))
    assert float(per_sample[2]) == pytest.approx(kernel.weight(float(r[0, 0, 2]), 0.3), rel=1e-6)


def test_special_cases_of_barron():
    r = torch.logspace(-9, 9, 200, dtype=torch.float64)
    for alpha, other, c in [
        (1.0, kernels.Charbonnier(), 1.0),
        (0.0, kernels.CauchyLorentzian(), 2.0),
        (-2.0, kernels.GemanMcClure(), 4.0),
        (-math.inf, kernels.WelschLeclerc(), 2.0),
    ]:
        barron = kernels.Barron(alpha=alpha)
        torch.testing.assert_close(barron(r), other(r, c), rtol=1e-12, atol=0)
        torch.testing.assert_close(barron.weight(r), other.weight(r, c), rtol=1e-12, atol=0)


def test_barron_is_twice_the_rho_of_his_paper():
    """Spot values of rho(x, alpha, scale) worked out by hand from equation 8 of Barron's paper."""
    x, scale = 3.0, 0.5
    for alpha, rho in [(1.0, math.sqrt(37) - 1), (0.0, math.log(19)), (-2.0, 2 * 36 / (36 + 4))]:
        ours = kernels.Barron(alpha=alpha)(x**2, scale**2) / 2
        assert ours == pytest.approx(rho * scale**2, rel=1e-12)


def test_generalized_cross_entropy_is_welsch_at_its_inverse():
    r = torch.logspace(-3, 2, 50, dtype=torch.float64)
    ours, welsch = kernels.GeneralizedCrossEntropy(q=0.7), kernels.WelschLeclerc()
    torch.testing.assert_close(ours(r), welsch(r, 1 / 0.7))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: kernels.Barron(alpha=2.5), "alpha must be below 2"),
        (lambda: kernels.Barron(alpha=math.nan), "alpha must be below 2"),
        (lambda: kernels.AsymmetricExponential(a=0.5), "a must be at least 1, else the weight rises"),
        (lambda: kernels.AsymmetricUnhinged(a=1.0), "a must be above 1"),
        (lambda: kernels.AsymmetricUnhinged(a=1.5, p=2.0), "a must be at least p, else the weight rises"),
        (lambda: kernels.AsymmetricGeneralizedCrossEntropy(a=0.0), "a must be above 0"),
        (lambda: kernels.AsymmetricGeneralizedCrossEntropy(q=-1.0), "q must be above 0"),
        (lambda: kernels.GeneralizedCrossEntropy(q=0.0), "q must be above 0"),
        (lambda: kernels.SymmetricCrossEntropy(A=0.0), "A must be above 0"),
        (lambda: kernels.TaylorCrossEntropy(t=0), "integer"),
        (lambda: kernels.TaylorCrossEntropy(t=1.5), "integer"),
        (lambda: kernels.get("geman"), "choose from truncated, geman-mcclure"),
        (lambda: kernels.Truncated().weight(1.0, -1.0), "at least 0"),
        (lambda: kernels.Truncated().inverse_weight(1.5), r"must lie in \[0, 1\]"),
        (lambda: kernels.Truncated().outlier_process(torch.tensor([math.nan])), r"must lie in \[0, 1\]"),
    ],
)
def test_wrong_parameters_raise_and_say_why(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_wrong_conditions_on_parameters_would_break_the_definition():
    """The conditions checked at construction are the ones that keep the weight monotone."""
    for cls, shape in [
        (kernels.AsymmetricExponential, {"a": 0.5}),
        (kernels.AsymmetricUnhinged, {"a": 1.5, "p": 2.0}),
    ]:
        broken = object.__new__(cls)
        for name, value in shape.items():
            object.__setattr__(broken, name, value)
        assert any(failure.startswith("(iii)") for failure in kernels.check(broken).failures)


def test_a_kernel_is_frozen():
    with pytest.raises(AttributeError):
        kernels.Barron(alpha=1.0).alpha = 0.0


def test_a_function_is_a_kernel():
    kernel = kernels.get(lambda r: torch.log1p(r))
    cauchy = kernels.get("cauchy-lorentzian")
    r = torch.logspace(-3, 3, 20)
    torch.testing.assert_close(kernel(r, 0.3), cauchy(r, 0.3))
    torch.testing.assert_close(kernel.weight(r, 0.3), cauchy.weight(r, 0.3))
    assert kernel.weight_floor == 0
    with torch.no_grad():
        assert kernel.weight(1.0) == 0.5
    torch.testing.assert_close(kernel.inverse_weight(torch.tensor([0.25])), torch.tensor([3.0]))
    torch.testing.assert_close(
        kernel.outlier_process(torch.tensor([0.25])), cauchy.outlier_process(torch.tensor([0.25]))
    )


def test_a_subclass_with_two_methods_is_a_kernel():
    class Root(inlier.Kernel):
        def sigma(self, r):
            return 3 * ((1 + r) ** (1 / 3) - 1)

        def slope(self, r):
            return (1 + r) ** (-2 / 3)

    assert kernels.check(Root()).ok
    assert inlier.solve_scale(torch.rand(100), Root(), 0.7) > 0
    assert_dual(Root())


@every_kernel
def test_check_passes_every_kernel_but_the_one_with_a_floor(kernel):
    found = kernels.check(kernel)
    if kernel.name == "symmetric-cross-entropy":
        assert not found.ok
        assert found.weight_floor == pytest.approx(1 / (1 + kernel.A))
        assert f"never falls below {1 / (1 + kernel.A):.6g}" in str(found)
    else:
        assert found.ok, str(found)
        assert found.weight_floor == kernel.weight_floor == 0


@pytest.mark.parametrize(
    ("sigma", "condition"),
    [
        (lambda r: 2 * torch.log1p(r), "(i) the slope at r = 1e-30 is 2, not 1"),
        (lambda r: r, "(ii) the weight never falls below 1"),
        (lambda r: 0.5 * r + 0.5 * torch.log1p(r), "(ii) the weight never falls below 0.5"),
        (lambda r: torch.sin(r.clamp(max=7)), "(iii) the slope rises by"),
        (lambda r: 1 + torch.log1p(r), "sigma(0) is 1, not 0"),
    ],
)
def test_check_says_which_condition_fails_and_where(sigma, condition):
    assert condition in str(kernels.check(sigma))


def test_check_notices_a_slope_that_is_not_the_derivative():
    class Wrong(kernels.GemanMcClure):
        def slope(self, r):
            return 1 / (1 + r)

    assert "not the derivative" in str(kernels.check(Wrong()))


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="registered already"):
        kernels.register("tukey")(kernels.Tukey)


# ------------------------------------------------- the tests are tested: no sign can be wrong unnoticed


class _Flip(ast.NodeTransformer):
    """Flip one sign: a plus for a minus, a minus for a plus, or a leading minus taken away."""

    def __init__(self, which: int) -> None:
        self.which, self.seen = which, -1

    def _is_it(self) -> bool:
        self.seen += 1
        return self.seen == self.which

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if isinstance(node.op, (ast.Add, ast.Sub)) and self._is_it():
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return node

    def visit_UnaryOp(self, node):
        self.generic_visit(node)
        return node.operand if isinstance(node.op, ast.USub) and self._is_it() else node


def mutants(kernel: Kernel):
    """Yield a description and a kernel with one sign flipped, for each sign in each method of the maths."""
    cls = type(kernel)
    for name in ("sigma", "slope", "inverse_slope", "process", "_b"):
        method = cls.__dict__.get(name)
        if method is None:
            continue
        source = textwrap.dedent(inspect.getsource(method.fget if isinstance(method, property) else method))
        count = _Flip(-1)
        count.visit(ast.parse(source))
        for which in range(count.seen + 1):
            tree = ast.fix_missing_locations(_Flip(which).visit(ast.parse(source)))
            space = {"property": property}
            exec(
                compile(tree, f"<{name} with sign {which} flipped>", "exec"),
                vars(inspect.getmodule(cls)) | space,
                space,
            )
            mutant = type(f"Mutant{cls.__name__}", (cls,), {name: space[name]})
            yield f"{name} sign {which}", mutant(**vars(kernel))


@pytest.mark.slow
@pytest.mark.parametrize("name", kernels.names())
def test_no_sign_can_be_flipped_unnoticed(name):
    shapes = [k for k in KERNELS if k.name == name]
    survivors = set()
    for number, kernel in enumerate(shapes):
        alive = set()
        for description, mutant in mutants(kernel):
            try:
                assert_right(mutant)
            except (AssertionError, ValueError, OverflowError):
                continue
            alive.add(description)
        # A sign in one branch (a limit in alpha, say) shows only at the shapes that take that branch.
        survivors = alive if number == 0 else survivors & alive
    assert not survivors


@pytest.mark.parametrize("name", kernels.names())
def test_the_mutants_are_there(name):
    """Guards the test above: there is something to flip, and the kernel unflipped passes."""
    kernel = kernels.get(name)
    assert_right(kernel)
    inherited = name in ("mean-error", "reverse-cross-entropy")
    assert inherited or any(mutants(kernel)), name
