"""Figures of the scenes: metrics over the rate (4), views side by side (1, 6), the loss on a line (5)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from inlier.experiments import Row, Settings
from inlier.experiments.landscape import loss_landscape

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["figures", "keeps", "kept_file"]

SHOWN = ("adam", "adaptive-tl", "robust")
"""The methods whose models and views are kept and drawn, plain training first."""

LABELS = {
    "adam": "Adam",
    "gradient-clipping": "gradient clipping",
    "normalised-gradient": "normalised gradient",
    "adaptive-tl": "Adaptive TL",
    "adaptive-gm": "Adaptive GM",
    "adaptive-t-gm": "Adaptive-T GM",
    "robust": "robust-nerfacto, told nothing",
    "robust-geman-mcclure": "the same, soft kernel throughout",
    "robust-truncated": "the same, hard kernel throughout",
    "robustnerf": "RobustNeRF",
    "both": "RobustNeRF's votes on our weights",
    "right-rays-only": "right rays only",
}
METRICS = {
    "psnr": ("PSNR (dB)", "PSNR of held-out views, higher is better"),
    "ssim": ("SSIM", "SSIM of held-out views, higher is better"),
    "lpips": ("LPIPS", "LPIPS of held-out views, lower is better"),
}
RATES = {"noise": "rate of wrong pixels", "object": "share of photos with the object"}
RATES["exposure"] = "share of photos exposed wrongly"

VIEWED_RATE = 0.8
"""Views are shown at the rate nearest to this."""

PLACES = 21
"""Places on the line between two models."""


def keeps(row: Row) -> bool:
    """Return whether a row's model and views are kept for figures: those of the first trial."""
    return row.method in SHOWN and row.seed == 0


def kept_file(row: Row, out: Path) -> Path:
    """Return where a row's model and views are kept."""
    return out / "models" / f"{row.key}.safetensors"


def figures(frame: pd.DataFrame, settings: Settings, out: Path) -> list[tuple[str, str]]:
    """Draw what the finished rows show; return file names and captions.

    Args:
        frame: The finished rows.
        settings: Those of the preset, and of the scene.
        out: Where to save.
    """
    from inlier.experiments.plots import curve_plot

    methods, rate = tuple(LABELS), RATES[settings["corruption"]]
    made = []
    for metric, (label, caption) in METRICS.items():
        known = frame[frame[metric].notna()]
        if len(known):
            curve_plot(known, metric, out / metric, methods=methods, labels=LABELS, xlabel=rate, ylabel=label)
            made.append((f"{metric}.png", f"{caption}, over the {rate} ({settings['scene']}; figure 4)."))
    judged = frame[frame["method"].isin([m for m in LABELS if m.startswith(("adaptive", "robust", "both"))])]
    if len(judged):
        made.append(_kept_rays(judged, rate, out))
    kept = _read(frame, settings, out)
    for draw in (_views, _landscape):
        found = draw(kept, settings, out)
        made += [found] if found else []
    return made


def _kept_rays(frame: pd.DataFrame, rate: str, out: Path) -> tuple[str, str]:
    """Draw precision and recall of the kept rays, and the estimated fraction against the true one."""
    from matplotlib.figure import Figure

    from inlier.experiments.plots import curves, save_figure

    figure = Figure(figsize=(12.5, 3.8), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, metric in zip(panels, ("precision", "recall", "estimated_fraction"), strict=True):
        known = frame[frame[metric].notna()]
        if metric == "estimated_fraction":
            known = known[known["method"] == "robust"]
            truth = frame.groupby("rate")["right_pixels"].mean()
            axes.plot(truth.index, truth, color="0.5", linestyle=":", label="truth")
        curves(axes, known, metric, methods=tuple(LABELS), labels=LABELS)
        axes.set(xlabel=rate, ylabel=metric.replace("_", " "), ylim=(0, 1.05))
    panels[0].legend(frameon=False, fontsize="small", loc="lower left")
    panels[2].legend(frameon=False, fontsize="small")
    save_figure(figure, out / "kept_rays")
    return "kept_rays.png", (
        "The share of all weight that is on right rays (precision), the share of the right rays' weight that "
        "is kept (recall), and the fraction of right pixels that is estimated where it is not given."
    )


def _read(frame: pd.DataFrame, settings: Settings, out: Path) -> dict[tuple[str, float], dict[str, Tensor]]:
    """Return what was kept of the finished rows, by method and rate."""
    from safetensors.torch import load_file

    found = {}
    for method, rate, seed in zip(frame["method"], frame["rate"], frame["seed"], strict=True):
        path = kept_file(Row(method, rate, int(seed), settings), out)
        if path.is_file():
            found[method, rate] = load_file(path)
    return found


def _views(kept: Mapping[tuple[str, float], Any], settings: Settings, out: Path) -> tuple[str, str] | None:
    """Draw held-out views of each kept method beside the photo, at a high rate."""
    from matplotlib.figure import Figure

    from inlier.experiments.plots import save_figure

    if not kept:
        return None
    rate = min({rate for _, rate in kept}, key=lambda found: abs(found - VIEWED_RATE))
    columns = [(LABELS[m], kept[m, rate], "view") for m in SHOWN if (m, rate) in kept]
    columns.append(("photo", columns[0][1], "photo"))
    count = sum(name.startswith("photo.") for name in columns[0][1])
    height, width = columns[0][1]["photo.0"].shape[:2]
    size = 2.0 * len(columns), 2.0 * count * height / width + 0.3
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(count, len(columns), squeeze=False)
    for row, line in enumerate(grid):
        for axes, (title, tensors, name) in zip(line, columns, strict=True):
            axes.imshow(tensors[f"{name}.{row}"].numpy())
            axes.set_axis_off()
            if row == 0:
                axes.set_title(title, fontsize=10)
    save_figure(figure, out / "views")
    return "views.png", (
        f"Views of {settings['scene']}, {RATES[settings['corruption']]} {rate:.0%} (figures 1 and 6)."
    )


def _landscape(
    kept: Mapping[tuple[str, float], Any], settings: Settings, out: Path
) -> tuple[str, str] | None:
    """Draw the loss on the line from plain training to robust training, for each rate."""
    from matplotlib.figure import Figure

    from inlier.experiments.plots import save_figure, style

    shared = {
        other: sorted(rate for method, rate in kept if method == other and (SHOWN[0], rate) in kept)
        for other in SHOWN[1:]
    }
    other, rates = max(shared.items(), key=lambda pair: len(pair[1]))
    if not rates:
        return None
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=False)
    for axes, target, title in zip(
        panels, ("given", "clean"), ("training pixels as given", "the same pixels, clean"), strict=True
    ):
        for number, rate in enumerate(rates):
            kappas, losses = _line(kept[SHOWN[0], rate], kept[other, rate], target, settings)
            look = style(number) | {"markersize": 3}
            axes.plot(kappas, losses, label=f"{rate:.0%}", **look)
        axes.set(title=title, xlabel="κ", ylabel="mean squared error", yscale="log")
        axes.grid(True, color="0.9", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=len(names),
        frameon=False,
        fontsize="small",
        title=RATES[settings["corruption"]],
    )
    save_figure(figure, out / "landscape")
    return "landscape.png", (
        f"The loss on the line between the models of Adam (κ = 0) and {LABELS[other]} (κ = 1) for each rate, "
        "on the same training rays (figure 5)."
    )


def _line(
    plain: Mapping[str, Tensor], robust: Mapping[str, Tensor], target: str, settings: Settings
) -> tuple[Tensor, Tensor]:
    """Return places on the line between two kept models, and the losses there on the robust one's probes."""
    from inlier.experiments.scene_training import probe_loss, restored

    ends = restored(plain, settings), restored(robust, settings)
    return loss_landscape(*ends, lambda model: probe_loss(model, robust, target), PLACES)
