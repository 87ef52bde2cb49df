"""The exposure of each image of a scene."""

import pytest
import torch

from inlier.integrations.nerfstudio._image_gains import ImageGains

EXPOSURES = torch.tensor([1.0, 0.4, 1.0, 2.5, 1.0, 1.0, 1.0])


def rays(seed: int, count: int = 700):
    """Predicted and given colours of rays, the image of each, and which rays have a colour of something else."""
    generator = torch.Generator().manual_seed(seed)
    prediction = torch.rand(count, 3, generator=generator)
    image = torch.arange(count) % len(EXPOSURES)
    target = (prediction * EXPOSURES[image][:, None]).clamp(max=1)
    outlier = torch.rand(count, generator=generator) < 0.3
    target[outlier] = torch.rand(int(outlier.sum()), 3, generator=generator)
    return prediction, target, image, outlier


@pytest.fixture
def fitted():
    gains = ImageGains(len(EXPOSURES))
    for step in range(100):
        prediction, target, image, outlier = rays(step)
        gains.observe(prediction, target, (~outlier).float(), image)
    return gains


def test_the_exposure_of_each_photo_is_found(fitted):
    torch.testing.assert_close(fitted.gains(), EXPOSURES[:, None].expand(-1, 3), rtol=0.02, atol=0.0)


def test_colours_are_shown_as_most_photos_show_them(fitted):
    prediction, target, image, outlier = rays(1000)
    corrected = fitted.corrected(target, prediction, image)
    torch.testing.assert_close(corrected[~outlier], prediction[~outlier], rtol=0.03, atol=0.01)


def test_a_saturated_colour_has_no_error_where_the_scene_is_brighter_and_one_where_it_is_darker(fitted):
    white, image = torch.ones(1, 3), torch.tensor([3])
    brighter, darker = torch.full((1, 3), 0.8), torch.full((1, 3), 0.2)
    assert torch.equal(fitted.corrected(white, brighter, image), brighter)
    assert torch.allclose(fitted.corrected(white, darker, image), torch.tensor(1 / 2.5), rtol=0.03)


def test_photos_that_are_exposed_alike_have_gain_1_however_bright_the_scene():
    gains, (prediction, _, image, _) = ImageGains(7), rays(0)
    gains.observe(prediction, 0.3 * prediction, torch.ones(700), image)
    torch.testing.assert_close(gains.gains(), torch.ones(7, 3), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize(("settle", "expected"), [(100, 1.0), (101, 1.25), (None, 1.25)])
def test_small_gains_are_taken_for_1_once_they_have_settled(settle, expected):
    gains = ImageGains(5, settle)
    exposures = torch.tensor([1.0, 1.0, 1.0, 1.25, 2.0])
    prediction, image = torch.rand(500, 3) / 2, torch.arange(500) % 5
    for _ in range(100):
        gains.observe(prediction, prediction * exposures[image][:, None], torch.ones(500), image)
    torch.testing.assert_close(
        gains.applied()[:, 0], torch.tensor([1.0, 1.0, 1.0, expected, 2.0]), rtol=1e-4, atol=0
    )
    # Images are ranked by what was fitted.
    torch.testing.assert_close(gains.gains()[:, 0], exposures, rtol=1e-4, atol=0)


def test_photos_that_were_never_seen_have_gain_1():
    gains = ImageGains(4)
    assert torch.equal(gains.gains(), torch.ones(4, 3))
    gains.observe(torch.full((2, 3), 0.5), torch.full((2, 3), 0.25), torch.ones(2), torch.tensor([0, 0]))
    assert torch.equal(gains.gains(), torch.ones(4, 3))


def test_a_checkpoint_keeps_the_gains(fitted):
    restored = ImageGains(len(EXPOSURES))
    restored.load_state_dict(fitted.state_dict())
    assert torch.equal(restored.gains(), fitted.gains())
