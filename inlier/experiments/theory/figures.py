"""The figures of the theory experiment: variances, regions, convergence and coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from inlier.experiments.regression.data import RegressionData, draw
from inlier.experiments.regression.runner import Schedule, StepRule, run
from inlier.experiments.sweep import PresetSettings
from inlier.experiments.theory.convergence import coverage, reached, starting_points
from inlier.experiments.theory.regions import (
    CURVES,
    Regions,
    assumptions,
    outlier_free_optimum,
    problem,
    regions,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LABELS = {
    "sgd": "SGD",
    "adaptive-tl": "Adaptive TL",
    "adaptive-gm": "Adaptive GM",
    "adaptive-t-gm": "Adaptive-T GM",
}
REGION_RATE, REGION_STEP = 0.5, 0.01
REGION_BOUND = 0.1
"""M, as a part of the energy of SGD at the outlier-free optimum."""


def figures(frame: pd.DataFrame, settings: PresetSettings, out: Path) -> list[tuple[str, str]]:
    """Draw all figures; return file names and captions."""
    made = []
    if "variance_near" in frame:
        made.append(_lemma(frame, out))
    made += [region_figure(out, settings["grid_points"]), _converged_shares(frame, settings, out)]
    made += [convergence_maps(out, settings), coverage_figure(out)]
    return made


def _lemma(frame: pd.DataFrame, out: Path) -> tuple[str, str]:
    """Both sides of Lemma 2 over the rate, near the optimum and far from it."""
    from matplotlib.figure import Figure

    from inlier._figures import COLOURS, MARKERS, save_figure

    figure = Figure(figsize=(11, 4.3), layout="constrained")
    titles = {"near": "near the optimum", "far": "far from it"}
    for axes, (where, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        for number, method in enumerate(("sgd", "adaptive-tl", "adaptive-gm")):
            means = frame[frame["method"] == method].groupby("rate").mean(numeric_only=True)
            if not len(means):
                continue
            colour = COLOURS[number]
            markers = {"color": colour, "marker": MARKERS[number], "markersize": 4.5}
            axes.plot(means.index, means[f"variance_{where}"], label=f"{LABELS[method]}, measured", **markers)
            # Without outliers it is 0, which a logarithmic axis cannot show.
            printed = means[f"printed_bound_{where}"].replace(0.0, float("nan"))
            axes.plot(means.index, printed, ":", color=colour, label="bound as printed")
            axes.plot(means.index, means[f"bound_{where}"], "--", color=colour, label="bound with all terms")
        axes.set(title=title, xlabel="outlier rate", yscale="log")
        axes.grid(True, color="0.9", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("variance of the direction")
    figure.axes[1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    save_figure(figure, out / "lemma2")
    return "lemma2.png", (
        "Lemma 2: variance of the descent direction of one sample and its bounds, over the outlier rate. "
        "Dotted lines below the measured ones are where the bound as printed fails."
    )


def region_figure(out: Path, points: int = 51) -> tuple[str, str]:
    """Draw W_SGD, W_AAA1 and W_AAA_T for one M, and their areas over M.

    Args:
        out: The output folder.
        points: Points along each side of the window.
    """
    from matplotlib.figure import Figure

    from inlier._figures import COLOURS, save_figure

    figure, ratios = Figure(figsize=(15, 6.4), layout="constrained"), []
    for line, curve in zip(figure.subplots(2, 5), CURVES.values(), strict=True):
        data = problem(curve, REGION_RATE)
        found = regions(curve, data, step_size=REGION_STEP, points=points)
        optimum = outlier_free_optimum(curve, data)
        bound = REGION_BOUND * found.at_optimum
        areas = found.areas(bound)
        times = areas["aaa_1"] / areas["sgd"] if areas["sgd"] else float("inf")
        ratios.append(f"{times:.3g} for {curve.name}")
        energies = {"SGD": found.sgd} | {f"AAA$_{{{T}}}$": energy for T, energy in found.aaa.items()}
        for axes, (name, energy), area in zip(line[:4], energies.items(), areas.values(), strict=True):
            first, second = found.grid.view(points, points, 2).unbind(-1)
            inside = (energy < bound).view(points, points).double()
            axes.contourf(first, second, inside, levels=[0.5, 1.5], colors=[COLOURS[5]], alpha=0.6)
            axes.plot(*optimum, "k*", markersize=10)
            axes.set(title=f"{name}: {area:.0%}", xlim=curve.window[0], ylim=curve.window[1], xlabel="$w_1$")
        line[0].set_ylabel(f"{curve.name}\n$w_2$")
        _area_curves(line[4], found)
    save_figure(figure, out / "regions")
    return "regions.png", (
        f"Theorems 1 to 3: the regions (blue) at an outlier rate of {REGION_RATE:g}, for the same M, "
        f"{REGION_BOUND:g} times the energy of SGD at the outlier-free optimum (star), and their part of the "
        f"window; right: that part over M. W_AAA1 / W_SGD is {' and '.join(ratios)}. " + _region_report()
    )


def _area_curves(axes: Axes, found: Regions) -> None:
    """The part of the window that each region covers, over M."""
    from inlier._figures import style

    parts = torch.logspace(-2, 0.7, 60).tolist()
    areas = [found.areas(part * found.at_optimum) for part in parts]
    for number, name in enumerate(areas[0]):
        markers = style(number) | {"marker": ""}
        label = "SGD" if name == "sgd" else f"AAA, T = {name[4:]}"
        axes.plot(parts, [area[name] for area in areas], label=label, **markers)
    axes.axvline(REGION_BOUND, color="0.7", linewidth=0.8)
    axes.set(xscale="log", xlabel="M / (energy of SGD at the optimum)", title="part of the window")
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _region_report() -> str:
    """Return how far the assumptions of the theorems hold for the linear model, in words."""
    curve = CURVES["linear"]
    data = problem(curve, REGION_RATE)
    found = regions(curve, data, step_size=REGION_STEP, holds=(1,), points=21)
    held = assumptions(curve, data, found)
    bound = REGION_BOUND * found.at_optimum
    largest = (
        held.largest_step(REGION_RATE, bound, 1e-3),
        held.largest_step(REGION_RATE, bound, 1e-3, data.inlier_fraction),
    )
    return (
        f"For the linear model: L = {held.smoothness:.2f}, mu = {held.pl_constant:.3f}; Assumption 2 holds "
        f"for {held.dominant:.0%} of points and outliers, grad f_i . grad f_I >= 0 for {held.aligned:.0%} of "
        f"points and samples; beta = {held.beta:.1g}. The theorems then allow step sizes below "
        f"{largest[0]:.1g} (SGD) and {largest[1]:.1g} (AAA_1) for an error of 0.001."
    )


def _converged_shares(frame: pd.DataFrame, settings: PresetSettings, out: Path) -> tuple[str, str]:
    """The part of starting points from which each method converges, over the rate: a panel per step size."""
    from matplotlib.figure import Figure

    from inlier._figures import curves, save_figure

    sizes = list(settings["step_sizes"])
    figure = Figure(figsize=(2.9 * len(sizes) + 1.2, 3.4), layout="constrained")
    for axes, size in zip(figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0], sizes, strict=True):
        curves(axes, frame, f"reached_{size:g}", methods=list(LABELS), labels=LABELS)
        axes.set(title=f"step size {size:g}", xlabel="outlier rate", ylim=(-0.05, 1.05))
    figure.axes[0].set_ylabel("part of starting points that converge")
    figure.axes[-1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, out / "convergence")
    return "convergence.png", (
        f"The part of {settings['starts']} x {settings['starts']} starting points from which the "
        f"outlier-free optimum is reached within {settings['epsilon']:g} of its loss, after "
        f"{settings['steps']} steps."
    )


def convergence_maps(
    out: Path, settings: PresetSettings, rates: Sequence[float] = (0.6, 0.9), step_size: float = 0.01
) -> tuple[str, str]:
    """Draw from which starting points each method converges.

    Args:
        out: The output folder.
        settings: Steps and the error allowed.
        rates: Outlier rates, a row of panels each.
        step_size: eta.
    """
    from matplotlib.figure import Figure

    from inlier._figures import COLOURS, save_figure
    from inlier.experiments.theory.experiment import METHODS

    starts = starting_points(2 * settings["starts"] - 1)
    problems = [problem(CURVES["linear"], rate) for rate in rates]
    schedule = Schedule(settings["steps"], step_size, settings["update_every"])
    converged = reached(problems, list(METHODS.values()), starts, schedule, settings["epsilon"])
    figure = Figure(figsize=(12.5, 3.3 * len(rates)), layout="constrained")
    lines = figure.subplots(len(rates), len(METHODS), sharex=True, sharey=True, squeeze=False)
    for line, rate, data, at_rate in zip(lines, rates, problems, converged.unbind(1), strict=True):
        for axes, name, inside in zip(line, METHODS, at_rate, strict=True):
            axes.plot(*starts[inside].T, "o", color=COLOURS[2], markersize=5)
            axes.plot(*starts[~inside].T, "x", color=COLOURS[1], markersize=5)
            axes.plot(*outlier_free_optimum(CURVES["linear"], data), "k*", markersize=12)
            share = float(inside.double().mean())
            axes.set(title=f"{LABELS[name]}, rate {rate:g}: {share:.0%}", aspect="equal")
        line[0].set_ylabel("$w_2$")
    for axes in lines[-1]:
        axes.set_xlabel("$w_1$")
    save_figure(figure, out / "convergence_maps")
    return "convergence_maps.png", (
        "Starting points that converge (circles) and that do not (crosses) with step size "
        f"{step_size:g}; star: the outlier-free optimum."
    )


def coverage_figure(out: Path, rate: float = 0.3, trials: int = 20) -> tuple[str, str]:
    """Draw Remark 4: coverage of new data by the truncated kernel's scale, over the level zeta.

    Args:
        out: The output folder.
        rate: The fraction of outliers.
        trials: Number of datasets, each fitted by Adaptive TL with the true fraction.
    """
    from matplotlib.figure import Figure

    from inlier._figures import save_figure, style

    levels = [tenth / 20 for tenth in range(2, 20)]
    problems = [draw(rate, seed) for seed in range(trials)]
    rule = StepRule("adaptive", "truncated", graduated=True, divided=True)
    w = run(problems, list(range(trials)), [rule], Schedule(10_000, step_size=0.02)).w[0].double()
    pairs = torch.tensor(
        [
            [coverage(data, _fresh(data, rate, seed), w[seed], level) for level in levels]
            for seed, data in enumerate(problems)
        ]
    )
    mean, spread = pairs.mean(0), pairs.std(0)
    figure = Figure(figsize=(5.2, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=":")
    for number, label in enumerate(
        ("scale of the alternation (training data)", "split conformal (held-out data)")
    ):
        markers = style(number) | {"linestyle": "", "markersize": 4.5, "capsize": 2}
        axes.errorbar(levels, mean[:, number], yerr=spread[:, number], label=label, **markers)
    axes.set(xlabel="level zeta", ylabel="coverage of new data")
    axes.legend(frameon=False, fontsize=9)
    save_figure(figure, out / "coverage")
    return "coverage.png", (
        f"Remark 4: the part of new data (outlier rate {rate:g}) with a loss below the truncated kernel's "
        f"scale at level zeta; bars: standard deviation over {trials} trials."
    )


def _fresh(data: RegressionData, rate: float, seed: int) -> RegressionData:
    """Return new samples of the same w*: another draw, its targets shifted to this w*."""
    other = draw(rate, seed + 10_000)
    shift = other.x @ (data.true_w - other.true_w)
    return replace(other, y=other.y + shift, clean_y=other.clean_y + shift, true_w=data.true_w)
