"""Which rays of a scene are kept when: what decides between a good and a bad seed (docs/experiments/scene.md).

    OMP_NUM_THREADS=1 .venv-scene/bin/python -m benchmarks.scene_rays --rate 0.8 --seed 2

trains with the preset cpu of `inlier reproduce scene`, and prints a row every so often: precision and recall of the
weights, the estimated fraction of clean pixels, the PSNR of the training rays and of the held-out images against their
clean colours, the spread of the predicted colours over that of the clean ones (0: all are drawn to their mean), and the
mean opacity along the rays (0: the scene is still empty).
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.scene import FOX
from inlier.experiments.scene.data import describe
from inlier.experiments.scene.experiment import PRESETS
from inlier.experiments.scene.training import METHODS, train_scene


@torch.no_grad()
def held_out_psnr(pipeline: Any) -> float:
    """The mean PSNR of the held-out images; the training goes on as if it had not been asked."""
    states = torch.get_rng_state(), random.getstate()
    dataset, model = pipeline.datamanager.eval_dataset, pipeline.model
    pipeline.eval()
    errors = [
        model.get_outputs_for_camera(dataset.cameras[n : n + 1])["rgb"]
        - dataset.get_data(n)["image"][..., :3]
        for n in range(len(dataset))
    ]
    pipeline.train()
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    return float(torch.stack([-10 * error.square().mean().log10() for error in errors]).mean())


class Log:
    """Means over the steps since the last row."""

    def __init__(self, every: int) -> None:
        self.every, self.sums = every, defaultdict(float)
        self.rows = csv.writer(sys.stdout)
        names = ("precision", "recall", "fraction", "psnr_train", "psnr_held_out", "colour_spread", "opacity")
        self.rows.writerow(("step", *names))

    @torch.no_grad()
    def __call__(
        self, step: int, pipeline: Any, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> None:
        """Take in a step."""
        model, sums = pipeline.model, self.sums
        colours, clean, inlier = outputs["rgb"], batch["clean"][..., :3], ~batch["corrupted"].reshape(-1)
        weights = torch.ones(len(colours)) if model.last_kept is None else model.last_kept
        for name, value in {
            "weight": weights.sum(),
            "clean_weight": weights[inlier].sum(),
            "clean": inlier.sum(),
            "error": (colours - clean).square().mean(),
            "colours": colours.var(0).mean(),
            "clean_colours": clean.var(0).mean(),
            "opacity": outputs["accumulation"].mean(),
        }.items():
            sums[name] += float(value)
        if step % self.every == 0:
            row = (
                sums["clean_weight"] / sums["weight"],
                sums["clean_weight"] / sums["clean"],
                1.0 if model.robust is None else float(model.robust.inlier_fraction),
                float(-10 * torch.tensor(sums["error"] / self.every).log10()),
                held_out_psnr(pipeline),
                (sums["colours"] / sums["clean_colours"]) ** 0.5,
                sums["opacity"] / self.every,
            )
            self.rows.writerow([step, *(f"{value:.3f}" for value in row)])
            sys.stdout.flush()
            sums.clear()


def main() -> None:
    """Train once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=FOX)
    parser.add_argument("--method", choices=list(METHODS), default="robust")
    parser.add_argument("--rate", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=50, help="steps between two rows")
    parser.add_argument("--steps", type=int, default=PRESETS["cpu"]["steps"], help="where to stop")
    parser.add_argument(
        "--model", nargs="*", default=[], metavar="OPTION=VALUE", help="of the model, as divide_by=samples"
    )
    options = parser.parse_args()
    import yaml

    model = {name: yaml.safe_load(value) for name, value in (word.split("=", 1) for word in options.model)}
    settings = PRESETS["cpu"] | describe(options.data) | {"steps": options.steps, "model": model}
    log = Log(options.every)
    result = train_scene(METHODS[options.method], options.data, options.rate, options.seed, settings, log)
    print(", ".join(f"{name} {value:.3f}" for name, value in result.metrics.items()))


if __name__ == "__main__":
    main()
