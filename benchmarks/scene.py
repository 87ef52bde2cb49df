"""What the weights of rays add to a training step of Nerfacto: `make bench-scene`.

Unweighted and robust steps of the same model take turns, so that other work on the machine slows both alike, and
only processor time counts.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path

from benchmarks.timing import over_first

GOAL = 1.05
FOX = Path(__file__).parent.parent.parent / "shared" / "data" / "fox"


def steppers(data: Path, rays: int) -> dict[str, Callable[[], None]]:
    """Return functions that each do one training step, without and with weights."""
    import torch
    from nerfstudio.engine.optimizers import Optimizers

    from inlier.integrations.nerfstudio._configs import robust_nerfacto_tiny

    torch.manual_seed(0)
    config = robust_nerfacto_tiny()
    config.pipeline.datamanager.data = data
    config.pipeline.datamanager.train_num_rays_per_batch = rays
    pipeline = config.pipeline.setup(device="cpu", test_mode="val")
    groups = {name: group for name, group in pipeline.get_param_groups().items() if group}
    optimizers = Optimizers(dict(config.optimizers), groups)
    pipeline.train()

    numbers = itertools.count()

    def step(rule: str) -> None:
        pipeline.model.config.rule = rule
        optimizers.zero_grad_all()
        _, losses, _ = pipeline.get_train_loss_dict(next(numbers))
        functools.reduce(torch.add, losses.values()).backward()
        optimizers.optimizer_step_all()

    return {rule: functools.partial(step, rule) for rule in ("none", "adaptive")}


def run(data: Path, rounds: int, rays: int) -> float:
    """Return the time of a robust step over that of an unweighted one."""
    # The scale is updated every 5 steps. (The check of the kernel every 50 steps is too cheap to matter.)
    return over_first(steppers(data, rays), rounds, 50)["adaptive"]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=FOX)
    parser.add_argument("--rounds", type=int, default=7, help="of 50 steps of each kind")
    parser.add_argument("--rays", type=int, default=1024)
    options = parser.parse_args()
    ratio = run(options.data, options.rounds, options.rays)
    print(f"robust step / unweighted step: {ratio:.3f} (goal: at most {GOAL})")
