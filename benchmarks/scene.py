"""What the weights of rays add to a training step of Nerfacto: `make bench-scene`.

Steps of a plain and of a robust model on the same photos take turns, so that other work on the machine slows
both alike, and only time on the processor counts. The ratio is that of the means, since updates of the scale
are rarer than steps.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from pathlib import Path

GOAL = 1.05
FOX = Path(__file__).parent.parent.parent / "shared" / "data" / "fox"


def stepper(rule: str, data: Path, rays: int):
    """Return a function that does one training step."""
    import torch
    from nerfstudio.engine.optimizers import Optimizers

    from inlier.integrations.nerfstudio.configs import robust_nerfacto_tiny

    torch.manual_seed(0)
    config = robust_nerfacto_tiny()
    config.pipeline.model.rule = rule
    config.pipeline.datamanager.data = data
    config.pipeline.datamanager.train_num_rays_per_batch = rays
    pipeline = config.pipeline.setup(device="cpu", test_mode="val")
    groups = {name: group for name, group in pipeline.get_param_groups().items() if group}
    optimizers = Optimizers(dict(config.optimizers), groups)
    pipeline.train()

    def step(number: int) -> None:
        optimizers.zero_grad_all()
        _, losses, _ = pipeline.get_train_loss_dict(number)
        functools.reduce(torch.add, losses.values()).backward()
        optimizers.optimizer_step_all()

    return step


def run(data: Path, steps: int = 100, rays: int = 1024) -> float:
    """Return how many times as long a robust step takes."""
    steppers = {rule: stepper(rule, data, rays) for rule in ("none", "adaptive")}
    times: dict[str, list[float]] = {rule: [] for rule in steppers}
    for number in range(steps + 5):
        for rule, step in steppers.items():
            start = time.process_time()
            step(number)
            times[rule].append(time.process_time() - start)
    plain, robust = (statistics.fmean(times[rule][5:]) for rule in ("none", "adaptive"))
    print(f"plain step {1e3 * plain:.1f} ms, robust step {1e3 * robust:.1f} ms")
    return robust / plain


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=FOX)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rays", type=int, default=1024)
    options = parser.parse_args()
    ratio = run(options.data, options.steps, options.rays)
    print(f"robust step / plain step: {ratio:.3f} (goal: at most {GOAL})")
