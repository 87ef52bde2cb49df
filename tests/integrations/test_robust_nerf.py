"""RobustNeRF's rule against values worked out by hand."""

import pytest
import torch

from inlier.integrations.nerfstudio import _robust_nerf as robust_nerf


def test_the_threshold_is_the_quantile_that_torch_computes_too():
    errors = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))
    for quantile in (0.1, 0.5, 0.8, 1.0):
        expected = torch.quantile(errors.reshape(-1), quantile)
        torch.testing.assert_close(robust_nerf.next_threshold(errors, quantile), expected)


@pytest.mark.parametrize("quantile", [0.0, -0.5, 1.2])
def test_a_quantile_that_is_none_is_refused(quantile):
    with pytest.raises(ValueError, match=f"quantile = {quantile}"):
        robust_nerf.next_threshold(torch.rand(4), quantile)


def test_five_of_nine_neighbours_are_a_majority_and_four_are_not():
    inliers = torch.zeros(2, 5, 5, dtype=torch.bool)
    inliers[0, 1, 1:4] = inliers[0, 2, 1:3] = True
    inliers[1, 1, 1:4] = inliers[1, 2, 1:2] = True
    agrees = robust_nerf.neighbours_agree(inliers)
    assert bool(agrees[0, 2, 2])
    assert not bool(agrees[1, 2, 2])


def test_pixels_beyond_the_edge_do_not_vote():
    inliers = torch.ones(1, 4, 4, dtype=torch.bool)
    agrees = robust_nerf.neighbours_agree(inliers)
    # A corner has 4 of 9, an edge 6 of 9.
    assert agrees[0].int().tolist() == [[0, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 0]]


def test_a_patch_needs_more_than_six_tenths_and_speaks_for_its_middle():
    inliers = torch.zeros(2, 16, 16, dtype=torch.bool)
    inliers.view(2, -1)[0, :153] = True  # 153 / 256 is below 0.6,
    inliers.view(2, -1)[1, :154] = True  # 154 / 256 above.
    agrees = robust_nerf.patch_agrees(inliers)
    assert not agrees[0].any()
    assert bool(agrees[1, 4:12, 4:12].all())
    assert int(agrees[1].sum()) == 64


def test_the_rule_keeps_what_any_test_keeps():
    errors = torch.full((1, 16, 16), 0.01)
    errors[0, 7, 7] = 0.9  # Detail amid what fits: its neighbours and its patch fit.
    errors[0, 0, 0] = 0.9  # In the corner too few do.
    errors[0, 10:16, 0:6] = 0.9  # A distractor that reaches from the edge into the inner part.
    kept = robust_nerf.kept_pixels(errors, 0.5)[0]
    assert bool(kept[7, 7])
    assert not bool(kept[0, 0])
    assert not kept[12:16, 0:4].any()
    assert bool(kept[errors[0] < 0.5].all())


def test_a_patch_mostly_of_outliers_keeps_only_what_fits():
    generator = torch.Generator().manual_seed(0)
    fits = torch.rand(4, 16, 16, generator=generator) < 0.1
    errors = torch.where(fits, 0.01, 0.9)
    kept = robust_nerf.kept_pixels(errors, 0.5)
    assert bool(kept[fits].all())
    assert kept.float().mean() < 0.12


def test_rays_are_laid_out_row_by_row_and_must_fill_patches():
    assert robust_nerf.as_patches(torch.arange(18), 3)[1, 0].tolist() == [9, 10, 11]
    with pytest.raises(ValueError, match="20 rays do not fill patches of 3 x 3"):
        robust_nerf.as_patches(torch.arange(20), 3)
