"""Figures of the scenes: metrics over the rate (4), views side by side (1, 6), the loss on a line (5)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from inlier.experiments.sweep import PresetSettings, Row
from inlier.experiments.theory.landscape import loss_landscape

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["artifact_file", "figures", "has_artifacts"]

SHOWN = ("adam", "adaptive-tl", "robust")
"""The methods whose models and views are saved and drawn, the unweighted baseline first."""

LABELS = {
    "adam": "Adam",
    "gradient-clipping": "gradient clipping",
    "normalized-gradient": "normalized gradient",
    "adaptive-tl": "Adaptive TL",
    "adaptive-gm": "Adaptive GM",
    "adaptive-t-gm": "Adaptive-T GM",
    "robust": "robust-nerfacto",
    "robust-geman-mcclure": "robust-nerfacto, soft kernel throughout",
    "robust-truncated": "robust-nerfacto, hard kernel throughout",
    "robust-image-gains": "robust-nerfacto with image gains",
    "robustnerf": "RobustNeRF",
    "both": "RobustNeRF's votes on robust-nerfacto",
    "clean-rays-only": "clean rays only (oracle)",
}
METRICS = {
    "psnr": ("PSNR (dB)", "PSNR of held-out views, higher is better"),
    "ssim": ("SSIM", "SSIM of held-out views, higher is better"),
    "lpips": ("LPIPS", "LPIPS of held-out views, lower is better"),
}
RATES = {
    "noise": "rate of corrupted pixels",
    "object": "rate of images with the object",
    "exposure": "rate of images exposed wrongly",
}

VIEWED_RATE = 0.8
"""Views are shown at the rate nearest to this."""

LINE_POINTS = 21
"""Points on the line between two models."""


def has_artifacts(row: Row) -> bool:
    """Return whether a row's model and views are saved for figures: those of the first trial."""
    return row.method in SHOWN and row.seed == 0


def artifact_file(row: Row, out: Path) -> Path:
    """Return the file of a row's model and views."""
    return out / "models" / f"{row.key}.safetensors"


def figures(frame: pd.DataFrame, settings: PresetSettings, out: Path) -> list[tuple[str, str]]:
    """Draw the finished rows; return file names and captions.

    Args:
        frame: The finished rows.
        settings: Settings of the preset, and of the scene.
        out: The output folder.
    """
    from inlier._figures import curve_plot

    methods, rate = tuple(LABELS), RATES[settings["corruption"]]
    made = []
    for metric, (label, caption) in METRICS.items():
        known = frame[frame[metric].notna()]
        if len(known):
            curve_plot(known, metric, out / metric, methods=methods, labels=LABELS, xlabel=rate, ylabel=label)
            made.append((f"{metric}.png", f"{caption}, over the {rate} ({settings['scene']}; figure 4)."))
    weighted = frame[
        frame["method"].isin([m for m in LABELS if m.startswith(("adaptive", "robust", "both"))])
    ]
    if len(weighted):
        made.append(_weights(weighted, rate, out))
    artifacts = _read_artifacts(frame, settings, out)
    for draw in (_views, _landscape):
        found = draw(artifacts, settings, out)
        made += [found] if found else []
    return made


def _weights(frame: pd.DataFrame, rate: str, out: Path) -> tuple[str, str]:
    """Draw precision and recall of the weights, and the estimated fraction against the true one."""
    from matplotlib.figure import Figure

    from inlier._figures import curves, save_figure

    figure = Figure(figsize=(12.5, 3.8), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, metric in zip(panels, ("precision", "recall", "estimated_fraction"), strict=True):
        known = frame[frame[metric].notna()]
        if metric == "estimated_fraction":
            known = known[known["method"] == "robust"]
            truth = frame.groupby("rate")["clean_pixels"].mean()
            axes.plot(truth.index, truth, color="0.5", linestyle=":", label="truth")
        curves(axes, known, metric, methods=tuple(LABELS), labels=LABELS)
        axes.set(xlabel=rate, ylabel=metric.replace("_", " "), ylim=(0, 1.05))
    panels[0].legend(frameon=False, fontsize="small", loc="lower left")
    panels[2].legend(frameon=False, fontsize="small")
    save_figure(figure, out / "weights")
    return "weights.png", (
        "The part of all weight that is on clean rays (precision), the mean weight of clean rays (recall), "
        "and the estimated fraction of clean pixels."
    )


def _read_artifacts(
    frame: pd.DataFrame, settings: PresetSettings, out: Path
) -> dict[tuple[str, float], dict[str, Tensor]]:
    """Return the artifacts of the finished rows, by method and rate."""
    from safetensors.torch import load_file

    found = {}
    for method, rate, seed in zip(frame["method"], frame["rate"], frame["seed"], strict=True):
        path = artifact_file(Row(method, rate, int(seed), settings), out)
        if path.is_file():
            found[method, rate] = load_file(path)
    return found


def _views(
    artifacts: Mapping[tuple[str, float], Any], settings: PresetSettings, out: Path
) -> tuple[str, str] | None:
    """Draw held-out views of each method beside the true image, at a high rate."""
    from matplotlib.figure import Figure

    from inlier._figures import save_figure

    if not artifacts:
        return None
    rate = min({rate for _, rate in artifacts}, key=lambda found: abs(found - VIEWED_RATE))
    columns = [(LABELS[m], artifacts[m, rate], "view") for m in SHOWN if (m, rate) in artifacts]
    columns.append(("held-out image", columns[0][1], "image"))
    count = sum(name.startswith("image.") for name in columns[0][1])
    height, width = columns[0][1]["image.0"].shape[:2]
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
    artifacts: Mapping[tuple[str, float], Any], settings: PresetSettings, out: Path
) -> tuple[str, str] | None:
    """Draw the loss on the line from unweighted to robust training, for each rate."""
    from matplotlib.figure import Figure

    from inlier._figures import save_figure, style

    shared = {
        other: sorted(rate for method, rate in artifacts if method == other and (SHOWN[0], rate) in artifacts)
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
            kappas, losses = _line(artifacts[SHOWN[0], rate], artifacts[other, rate], target, settings)
            line_style = style(number) | {"markersize": 3}
            axes.plot(kappas, losses, label=f"{rate:.0%}", **line_style)
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
    baseline: Mapping[str, Tensor], robust: Mapping[str, Tensor], target: str, settings: PresetSettings
) -> tuple[Tensor, Tensor]:
    """Return points on the line between two models, and the losses there on the probe rays of the second."""
    from inlier.experiments.scene.training import probe_loss, restore_model

    ends = restore_model(baseline, settings), restore_model(robust, settings)
    return loss_landscape(*ends, lambda model: probe_loss(model, robust, target), LINE_POINTS)
