"""The image loss of Gaussian splatting with a weight for each pixel."""

import pytest
import torch
from torchmetrics.functional.image import structural_similarity_index_measure as similarity

from inlier.integrations.nerfstudio._image_loss import weighted_image_loss


def ssim(a, b):
    return similarity(a, b, data_range=1.0)


@pytest.fixture
def images():
    torch.manual_seed(0)
    image = torch.rand(24, 32, 3)
    rendered = (image + 0.1 * torch.randn_like(image)).clamp(0, 1).requires_grad_()
    return rendered, image


def gradient(rendered, *arguments):
    return torch.autograd.grad(weighted_image_loss(rendered, *arguments), rendered)[0]


def test_with_equal_weights_it_is_the_loss_of_gaussian_splatting(images):
    rendered, image = images
    as_batch = [x.permute(2, 0, 1)[None] for x in (image, rendered)]
    usual = 0.8 * (rendered - image).abs().mean() + 0.2 * (1 - ssim(*as_batch))
    loss = weighted_image_loss(rendered, image, torch.ones(24, 32), ssim)
    assert loss.item() == pytest.approx(usual.item(), rel=1e-6)
    torch.testing.assert_close(
        torch.autograd.grad(loss, rendered)[0], torch.autograd.grad(usual, rendered)[0]
    )


def test_what_a_pixel_without_weight_shows_does_not_matter(images):
    rendered, image = images
    weights = torch.ones(24, 32)
    weights[5:15, 8:20] = 0.0
    painted = image.clone()
    painted[5:15, 8:20] = torch.rand(10, 12, 3)
    torch.testing.assert_close(
        gradient(rendered, painted, weights, ssim), gradient(rendered, image, weights, ssim)
    )
    # With weight, it draws on its neighbours too, whose windows it is in.
    ones = torch.ones(24, 32)
    outside = weights.bool()
    assert not torch.allclose(
        gradient(rendered, painted, ones, ssim)[outside], gradient(rendered, image, ones, ssim)[outside]
    )


def test_absolute_errors_count_by_their_weight(images):
    rendered, image = images
    weights = torch.rand(24, 32)
    one = gradient(rendered, image, torch.ones(24, 32), ssim, 0.0)
    torch.testing.assert_close(gradient(rendered, image, weights, ssim, 0.0), weights[..., None] * one)


def test_shapes_that_do_not_fit_are_refused(images):
    rendered, image = images
    with pytest.raises(ValueError, match="weights of H x W"):
        weighted_image_loss(rendered, image, torch.ones(32, 24), ssim)
