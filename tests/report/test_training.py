"""The report of a training with `Robust` or `RobustCrossEntropy`."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

from inlier import Robust, RobustCrossEntropy
from inlier.report import findings_of, write
from tests.report.examples import HOSTILE, Reader, trained, trained_classifier


def test_suspects_come_with_labels_values_and_images(tmp_path):
    robust, bad = trained()
    details = {
        "labels": torch.ones(610, dtype=torch.long),
        "suggested": np.zeros(610, dtype=int),
        "class_names": [HOSTILE, "dog"],
        "values": {"camera": [f"camera {k}" for k in range(610)], "angle": torch.linspace(0, 1, 610)},
        "images": torch.randint(256, (610, 3, 8, 8), dtype=torch.uint8),
    }
    found = findings_of(robust, most=50, **details)
    assert len(found.suspects) == 50
    assert all(bad[s.row] for s in found.suspects)
    probabilities = [s.inlier_probability for s in found.suspects]
    assert probabilities == sorted(probabilities)
    first = found.suspects[0]
    assert (first.given, first.suggested) == ("dog", HOSTILE)
    assert first.values == {"camera": f"camera {first.row}", "angle": f"{first.row / 609:.6g}"}
    image = Image.open(io.BytesIO(first.image))
    assert (np.array(image).transpose(2, 0, 1) == details["images"][first.row].numpy()).all()
    page = Reader(write(tmp_path / "r.html", robust, title="Images", most=50, **details).read_text("utf-8"))
    assert "20 % of 600 samples were assumed to be wrong, as given" in page.text
    assert "10 samples: not seen" in page.text
    assert [call for call, _, _ in found.history] == list(range(1, 11))


def test_the_report_quotes_the_estimate_of_the_training(tmp_path):
    torch.manual_seed(0)
    robust = Robust(warmup=5, update_every=1, samples=600)
    index = torch.arange(600)
    for _ in range(10):
        robust((torch.randn(600) * torch.where(index % 5 == 0, 30.0, 1.0)) ** 2, index)
    found = findings_of(robust)
    assert found.estimate == robust.fraction_estimate
    page = Reader(write(tmp_path / "r.html", robust).read_text("utf-8"))
    assert robust.fraction_estimate.reason in page.text


def test_groups_have_a_curve_each(tmp_path):
    robust, _ = trained(groups=True)
    found = findings_of(robust)
    assert found.group_scales == pytest.approx(robust.scale.tolist())
    text = write(tmp_path / "r.html", robust).read_text("utf-8")
    assert text.count('stroke-opacity="0.75" stroke-width="1.2"') == 3


def test_class_labels_come_with_the_suggested_ones(tmp_path):
    criterion, labels, truth = trained_classifier()
    found = findings_of(criterion, labels=labels, class_names=["cat", "dog", "owl"])
    rows = [s.row for s in found.suspects]
    names = np.array(["cat", "dog", "owl"])
    assert (labels != truth)[rows].float().mean() > 0.8
    assert [s.given for s in found.suspects] == list(names[labels[rows]])
    assert np.mean([s.suggested == names[truth[s.row]] for s in found.suspects]) > 0.9
    page = Reader(write(tmp_path / "r.html", criterion, labels=labels).read_text("utf-8"))
    assert "20 % of 600 samples were assumed to be wrong, as given" in page.text


def test_a_data_frame_is_read_by_position():
    pandas = pytest.importorskip("pandas")
    robust, _ = trained()
    frame = pandas.DataFrame({"k": range(610)}, index=range(610, 0, -1))
    assert all(s.values["k"] == str(s.row) for s in findings_of(robust, values=frame).suspects)


def test_wrong_arguments():
    robust, _ = trained()
    with pytest.raises(ValueError, match="labels has 3 entries for 610 samples"):
        findings_of(robust, labels=[1, 2, 3])
    with pytest.raises(RuntimeError, match="index"):
        findings_of(Robust())


@pytest.mark.parametrize("kind", ["losses", "labels"])
def test_before_the_first_update_nothing_is_suspect_and_nothing_is_claimed(kind, tmp_path):
    if kind == "losses":
        criterion = Robust()
        criterion(torch.rand(40), torch.arange(40))
    else:
        criterion = RobustCrossEntropy()
        criterion(torch.randn(40, 3), torch.arange(40) % 3, torch.arange(40))
    found = findings_of(criterion)
    assert found.suspects == []
    assert found.scale == math.inf or math.isnan(found.scale)
    text = write(tmp_path / "r.html", criterion).read_text("utf-8")
    assert "Cannot tell how many of 40 samples are wrong" in text
