"""Figures of the classification experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from inlier._figures import curve_plot, save_figure, style
from inlier.experiments.classification.methods import METHODS
from inlier.experiments.datasets.cifar import HUMAN_RATES
from inlier.experiments.sweep import PresetSettings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["figures"]

SHOWN_OVER_EPOCHS = ("sgd", "trimmed", "gce", "sce", "elr", "inlier")


def figures(frame: pd.DataFrame, settings: PresetSettings, out: Path) -> list[tuple[str, str]]:
    """Draw accuracy and average precision over the noise rate, and accuracy over the epochs.

    Args:
        frame: The finished rows.
        settings: Settings of the preset.
        out: The output folder.
    """
    human = set(HUMAN_RATES.values())
    synthetic = frame[~frame["rate"].isin(human)]
    made = []
    if len(synthetic):
        noise = "true class included" if settings["true_class_included"] else "true class excluded"
        curve_plot(
            synthetic,
            "accuracy",
            out / "accuracy",
            methods=tuple(METHODS),
            xlabel=f"rate of symmetric label noise ({noise})",
            ylabel="test accuracy after the last epoch (%)",
        )
        made.append(("accuracy.png", f"Accuracy after the last epoch over the noise rate ({noise})."))
        if "average_precision" in synthetic and synthetic["average_precision"].notna().any():
            found = synthetic[synthetic["average_precision"].notna()]
            curve_plot(
                found,
                "average_precision",
                out / "noisy_labels",
                methods=tuple(METHODS),
                xlabel=f"rate of symmetric label noise ({noise})",
                ylabel="average precision of finding noisy labels",
            )
            made.append(("noisy_labels.png", "How well each method finds the noisy labels."))
        made += _epochs(synthetic, out)
    return made


def _epochs(frame: pd.DataFrame, out: Path) -> list[tuple[str, str]]:
    """Draw test accuracy, and accuracy on the given labels, over the epochs at the rate nearest to 0.4."""
    rate = min(set(frame["rate"]), key=lambda r: abs(r - 0.4))
    here = frame[frame["rate"] == rate]
    shown = [method for method in METHODS if method in SHOWN_OVER_EPOCHS and method in set(here["method"])]
    if not shown:
        return []
    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, prefix, title in zip(
        panels,
        ("test_", "train_"),
        ("test images, clean labels", "training images, given labels"),
        strict=True,
    ):
        for method in shown:
            mean = here[here["method"] == method].filter(regex=rf"^{prefix}\d").mean().dropna()
            epochs = [int(name.removeprefix(prefix)) for name in mean.index]
            line_style = style(list(METHODS).index(method)) | {"markersize": 3}
            axes.plot(epochs, mean.to_numpy(), label=method, **line_style)
        axes.set(title=title, xlabel="epoch", ylabel="accuracy (%)")
        axes.grid(True, color="0.9", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, fontsize="small")
    save_figure(figure, out / "epochs")
    return [("epochs.png", f"Accuracy over the epochs at {rate:.0%} noise: what is memorised.")]
