"""Figures of the regression: errors over the rate (3a), the hard end, fractions, trajectories (2)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inlier.experiments.regression.data import draw, least_squares
from inlier.experiments.regression.runner import Schedule, StepRule, run
from inlier.experiments.sweep import PresetSettings

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

ORACLE = "inlier-least-squares"
LABELS = {
    ORACLE: "inliers only (oracle)",
    "gradient-descent": "gradient descent",
    "sgd": "SGD",
    "normalized-gradient": "normalized gradient",
    "gradient-clipping": "gradient clipping",
    "adaptive-tl": "Adaptive TL",
    "adaptive-gm": "Adaptive GM",
    "adaptive-t-gm": "Adaptive-T GM",
    "adaptive-tl-both": "TL, fraction given",
    "adaptive-gm-both": "GM, fraction given",
    "adaptive-t-gm-both": "T-GM, fraction given",
    "adaptive-tl-auto": "TL, auto",
    "adaptive-gm-auto": "GM, auto",
    "adaptive-t-gm-auto": "T-GM, auto",
    "trimmed": "iterative trimming",
    "gnc-tls": "GNC-TLS",
    "gnc-gm": "GNC-GM",
    "huber": "Huber",
    "ransac": "RANSAC",
    "theil-sen": "Theil-Sen",
}
PANELS = {
    "the paper's methods, as in the paper": [
        "gradient-descent",
        "sgd",
        "normalized-gradient",
        "gradient-clipping",
        "adaptive-tl",
        "adaptive-gm",
        "adaptive-t-gm",
    ],
    "fraction graduated, weights divided by it": [
        "adaptive-tl-both",
        "adaptive-gm-both",
        "adaptive-t-gm-both",
        "adaptive-tl-auto",
        "adaptive-gm-auto",
        "adaptive-t-gm-auto",
    ],
    "direct methods": ["trimmed", "gnc-tls", "gnc-gm", "huber", "ransac", "theil-sen"],
}
VARIANTS = {
    "": "as in the paper",
    "-graduated": "fraction graduated",
    "-divided": "weights divided",
    "-both": "both",
}


def figures(frame: pd.DataFrame, settings: PresetSettings, out: Path) -> list[tuple[str, str]]:
    """Draw the finished rows, and the trajectories of figure 2; return file names and captions."""
    regimes = {name: int(regime["steps"]) for name, regime in settings["regimes"].items()}
    made = [_errors(frame, regimes, out)]
    if {"adaptive-tl", "adaptive-gm"} & set(frame["method"]) and "rmse" in frame:
        made.append(_hard_end(frame, regimes["converged"], out))
    if "inlier_fraction" in frame:
        made.append(_fractions(frame, out))
    made.append(trajectories(out))
    return made


def _errors(frame: pd.DataFrame, regimes: dict[str, int], out: Path) -> tuple[str, str]:
    """Figure 3a: a row of panels per regime, and one for the direct methods; one axis for all."""
    from matplotlib.figure import Figure

    from inlier._figures import save_figure

    *stochastic, direct = PANELS
    layout: list[Any] = [[f"{regime}: {title}" for title in stochastic] + [direct] for regime in regimes]
    figure = Figure(figsize=(12.5, 3.6 * len(regimes) + 0.4), layout="constrained")
    panels = figure.subplot_mosaic(layout, sharex=True, sharey=True)
    for regime, steps in regimes.items():
        metric = "rmse" if regime == "converged" else f"{regime}_rmse"
        for title in stochastic:
            axes = panels[f"{regime}: {title}"]
            _panel(axes, frame, metric, PANELS[title], f"{_power(steps)} steps: {title}")
    _panel(panels[direct], frame, "rmse", PANELS[direct], direct)
    for names in layout:
        panels[names[0]].set_ylabel("test RMSE")
    for name in layout[-1]:
        panels[name].set_xlabel("outlier rate")
    panels[direct].set_ylim(5e-3, 40)
    panels[direct].tick_params(labelleft=True)
    save_figure(figure, out / "rmse")
    return "rmse.png", (
        "Test RMSE over the outlier rate (figure 3a): above as printed, before convergence; below after "
        "more steps. Bars: one standard deviation over trials."
    )


def _panel(axes: Axes, frame: pd.DataFrame, metric: str, methods: list[str], title: str) -> None:
    """Draw some methods over the rate, and the oracle as a dotted line."""
    from inlier._figures import curves

    if metric in frame:
        known = frame.dropna(subset=[metric])
        curves(axes, known[known["method"].isin(methods)], metric, methods=methods, labels=LABELS, log=True)
        oracle = known[known["method"] == ORACLE].groupby("rate")[metric].mean()
        axes.plot(oracle.index, oracle, color="0.35", linestyle=(0, (1, 1)), label=LABELS[ORACLE])
        axes.legend(frameon=False, fontsize=7.5, loc="upper left", ncols=2)
    axes.set_title(title, fontsize=10)


def _hard_end(frame: pd.DataFrame, steps: int, out: Path) -> tuple[str, str]:
    """Bars of the error at the highest rate, with and without the two changes."""
    from matplotlib.figure import Figure

    from inlier._figures import COLOURS, save_figure

    rate = frame["rate"].max()
    here = frame[frame["rate"] == rate].dropna(subset=["rmse"])
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for number, (suffix, label) in enumerate(VARIANTS.items()):
        for group, kernel in enumerate(("adaptive-tl", "adaptive-gm")):
            values = here.loc[here["method"] == kernel + suffix, "rmse"]
            if len(values):
                at = group + 0.2 * (number - 1.5)
                axes.bar(at, values.mean(), 0.18, color=COLOURS[number], label=None if group else label)
                axes.plot([at] * len(values), values, "k.", markersize=4)
    oracle = here.loc[here["method"] == ORACLE, "rmse"].mean()
    if math.isfinite(oracle):
        axes.axhline(oracle, color="0.4", linestyle=":", label="inliers only")
    axes.set(ylabel=f"test RMSE at rate {rate:g}", yscale="log", title=f"{_power(steps)} steps")
    axes.set_xticks([0, 1], ["Adaptive TL", "Adaptive GM"])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, out / "hard_end")
    return "hard_end.png", (
        f"Test RMSE at an outlier rate of {rate:g}: graduating the fraction from 1 over the first half of "
        "the steps, dividing weights by the fraction, and both. Dots: trials."
    )


def _fractions(frame: pd.DataFrame, out: Path) -> tuple[str, str]:
    """The estimated inlier fraction at the end against the true one."""
    from matplotlib.figure import Figure

    from inlier._figures import save_figure, style

    methods = [f"adaptive-{short}-auto" for short in ("tl", "gm", "t-gm")]
    figure = Figure(figsize=(5.2, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [1, 0], color="0.6", linestyle=":", label="truth")
    for number, method in enumerate(methods):
        known = frame[frame["method"] == method].dropna(subset=["inlier_fraction"])
        markers = style(number) | {"linestyle": "", "markersize": 4.5, "alpha": 0.7}
        shifted = known["rate"] + 0.015 * (number - 1)
        axes.plot(shifted, known["inlier_fraction"], label=LABELS[method], **markers)
    axes.set(xlabel="outlier rate", ylabel="estimated inlier fraction", xlim=(-0.03, 1), ylim=(0, 1.05))
    axes.legend(frameon=False)
    save_figure(figure, out / "fraction")
    return "fraction.png", "The inlier fraction that each run with `auto` estimates in the end."


def trajectories(out: Path, rate: float = 0.4, step_size: float = 0.02, steps: int = 2000) -> tuple[str, str]:
    """Draw figure 2: the trajectories of SGD, Adaptive TL and gradient descent over the outlier-free loss.

    Args:
        out: The output folder.
        rate: The fraction of outliers.
        step_size: eta; larger than in the tables, so that so few steps converge.
        steps: The number of steps.
    """
    from matplotlib.figure import Figure

    from inlier._figures import COLOURS, save_figure

    data = draw(rate, seed=1, dimension=2)
    start = data.true_w + torch.tensor([-2.5, 2.0], dtype=torch.float64)
    path: list[Tensor] = []
    run(
        [data],
        [1],
        [StepRule("sgd"), StepRule("adaptive", "truncated")],
        Schedule(steps, step_size, update_every=10),
        start=start[:, None, None].float(),
        on_update=lambda done, w: path.append(w[:, :, 0].T.double().clone()),
    )
    w, descent = start, [start]
    for _ in range(steps):
        w = w - step_size * 2 * data.x.T @ (data.x @ w - data.y) / len(data.y)
        descent.append(w)
    stochastic = torch.stack(path, dim=1)
    paths = {"SGD": stochastic[0], "Adaptive TL": stochastic[1], "gradient descent": torch.stack(descent)}
    best = least_squares(data.x, data.clean_y)
    figure = Figure(figsize=(12, 4.1), layout="constrained")
    for axes, colour, (name, points) in zip(
        figure.subplots(1, 3, sharex=True, sharey=True), COLOURS, paths.items(), strict=False
    ):
        _contours(axes, data.x, data.clean_y, best, reach=3.2)
        axes.plot(*points.T, color=colour, linewidth=1.0)
        axes.plot(*start, "k.", markersize=9)
        axes.plot(*best, "k*", markersize=12)
        axes.plot(*least_squares(data.x, data.y), "kx", markersize=8, markeredgewidth=2)
        axes.set(title=name, xlabel="$w_1$", aspect="equal")
    figure.axes[0].set_ylabel("$w_2$")
    save_figure(figure, out / "trajectories")
    return "trajectories.png", (
        f"Trajectories of SGD and Adaptive TL (batches of one, every tenth step) and gradient descent: "
        f"{steps} steps of size {step_size:g} at an outlier rate of {rate:g}, over the outlier-free loss "
        "(figure 2). Star: its optimum; cross: least squares on all data, where gradient descent ends."
    )


def _contours(axes: Axes, x: Tensor, y: Tensor, centre: Tensor, reach: float) -> None:
    """Draw level lines of the mean squared error around a point."""
    side = torch.linspace(-reach, reach, 81, dtype=torch.float64)
    first, second = torch.meshgrid(centre[0] + side, centre[1] + side, indexing="xy")
    losses = (torch.stack((first, second), -1) @ x.T - y).square().mean(-1)
    levels: Any = torch.logspace(math.log10(0.02), math.log10(float(losses.max())), 12)
    axes.contour(first, second, losses, levels=levels.tolist(), colors="0.75", linewidths=0.8)


def _power(steps: int) -> str:
    """Return a number of steps as a power of ten.

    Example:
        >>> _power(1_000_000), _power(200_000), _power(4321)
        ('10⁶', '2·10⁵', '4321')
    """
    exponent = len(str(steps)) - 1
    lead, rest = divmod(steps, 10**exponent)
    if rest or exponent < 4:
        return str(steps)
    power = f"10{str(exponent).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    return power if lead == 1 else f"{lead}·{power}"
