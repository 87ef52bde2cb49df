"""Figures of the classification experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from inlier.experiments import Settings
from inlier.experiments.classification_methods import METHODS
from inlier.experiments.plots import curve_plot, save_figure, style
from inlier.vision.cifar import HUMAN_RATES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["figures"]

SHOWN_OVER_EPOCHS = ("sgd", "trimmed", "gce", "sce", "elr", "robust")


def figures(frame: pd.DataFrame, settings: Settings, out: Path) -> list[tuple[str, str]]:
    """Draw accuracy and the finding of wrong labels over the noise rate, and accuracy over the epochs.

    Args:
        frame: The finished rows.
        settings: Those of the preset.
        out: Where to save.
    """
    human = set(HUMAN_RATES.values())
    drawn = frame[~frame["rate"].isin(human)]
    made = []
    if len(drawn):
        noise = "true class included" if settings["true_class_included"] else "true class excluded"
        curve_plot(
            drawn,
            "accuracy",
            out / "accuracy",
            methods=tuple(METHODS),
            xlabel=f"rate of symmetric label noise ({noise})",
            ylabel="test accuracy after the last epoch (%)",
        )
        made.append(("accuracy.png", f"Accuracy after the last epoch over the noise rate ({noise})."))
        if "average_precision" in drawn and drawn["average_precision"].notna().any():
            found = drawn[drawn["average_precision"].notna()]
            curve_plot(
                found,
                "average_precision",
                out / "wrong_labels",
                methods=tuple(METHODS),
                xlabel=f"rate of symmetric label noise ({noise})",
                ylabel="average precision of finding wrong labels",
            )
            made.append(("wrong_labels.png", "How well each method finds the wrong labels."))
        made += _epochs(drawn, out)
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
    for axes, start, title in zip(
        panels,
        ("test_", "fitted_"),
        ("test images, right labels", "training images, given labels"),
        strict=True,
    ):
        for method in shown:
            mean = here[here["method"] == method].filter(regex=f"^{start}").mean().dropna()
            epochs = [int(name.removeprefix(start)) for name in mean.index]
            look = style(list(METHODS).index(method)) | {"markersize": 3}
            axes.plot(epochs, mean.to_numpy(), label=method, **look)
        axes.set(title=title, xlabel="epoch", ylabel="accuracy (%)")
        axes.grid(True, color="0.9", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, fontsize="small")
    save_figure(figure, out / "epochs")
    return [("epochs.png", f"Accuracy over the epochs at {rate:.0%} noise: what is learned by heart.")]
