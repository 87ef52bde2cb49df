"""The null model of the nerfstudio plugin: what outliers are expected to add, and several processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from inlier import LossHistogram, Robust
from inlier.integrations.nerfstudio._null_model import SceneNullModel, expected_outlier_loss, null_errors
from inlier.kernels import Tukey


def test_null_errors_are_those_of_other_colours_and_of_small_weights_first():
    prediction, target = torch.zeros(4, 3), torch.arange(4.0).view(4, 1).expand(4, 3)
    errors = null_errors(prediction, target, torch.tensor([1.0, 1.0, 0.0, 1.0]))
    assert set(errors.flatten().tolist()) <= {0.0, 1.0, 4.0, 9.0}
    assert (errors == 4).float().mean() > 0.9


def test_outliers_are_expected_to_add_their_weighted_null_errors():
    robust = Robust("truncated", 0.75, warmup=0, update_every=1)
    robust(torch.arange(1.0, 101.0))  # The scale is such that 0.75 of the losses have weight 1.
    errors = torch.tensor([[10.0, 200.0], [30.0, 400.0]])
    expected = 0.25 * torch.tensor(10.0 + 30.0) / 4
    torch.testing.assert_close(expected_outlier_loss(robust, errors), expected)


def compare_own_rays(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    null_model = SceneNullModel(Tukey())
    histogram = LossHistogram.of(torch.ones(3))
    null_model.observe(histogram)
    for _ in range(100):
        outliers = 20 + 40 * rank
        losses = torch.cat([torch.zeros(100 - outliers), torch.full((outliers,), 18.0)])
        null_model.compare(losses, torch.linspace(1, 17, 101))
    null_model.observe(histogram)
    torch.save(null_model.state_dict(), Path(folder, f"{rank}.pt"))
    dist.destroy_process_group()


@pytest.mark.slow
def test_processes_that_see_other_rays_agree_on_their_mean(tmp_path):
    mp.spawn(compare_own_rays, (str(tmp_path),), nprocs=2)
    states = [torch.load(tmp_path / f"{rank}.pt")["sums"] for rank in range(2)]
    assert torch.equal(*states)
    merged = SceneNullModel(Tukey())
    merged.load_state_dict({"sums": states[0]})
    # 20 and 60 % of the losses are above the median null loss: fractions of 0.6 and -0.2.
    assert merged.estimate().value == pytest.approx(0.2, abs=0.01)
