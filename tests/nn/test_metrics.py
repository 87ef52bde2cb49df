"""What robust losses log, the weights they hand out, and the file of suspects."""

from __future__ import annotations

import copy
import csv
import json
import math
import subprocess
import sys

import pandas as pd
import pytest
import torch

from inlier import Robust, RobustCrossEntropy, kernels
from inlier.nn import with_suspects
from inlier.nn._suspects import write_suspects


def taught(**arguments) -> Robust:
    """A Robust that has seen 100 losses from 0 to 1 half of which are inliers."""
    robust = Robust(**{"kernel": "tukey", "inlier_fraction": 0.5, "warmup": 0, "update_every": 1} | arguments)
    robust(torch.linspace(0, 1, 100))
    return robust


class TestMetrics:
    def test_they_are_floats_that_json_takes(self):
        metrics = taught().metrics("robust/")
        assert set(json.loads(json.dumps(metrics))) == {
            f"robust/{name}"
            for name in (
                "scale", "inlier_fraction", "fraction_kept", "weighted_loss", "unweighted_loss", "bad_losses"
            )
        }  # fmt: skip
        assert all(type(number) is float for number in metrics.values())

    @pytest.mark.parametrize("divide_by", ["samples", "weights"])
    def test_they_are_those_of_the_last_call(self, divide_by):
        robust = taught(divide_by=divide_by)
        scale = float(robust.scale)
        losses = torch.tensor([0.1, 0.4, 0.7, 30.0])
        loss = robust(losses)
        weights = kernels.get("tukey").weight(losses, scale)
        metrics = robust.metrics()
        assert metrics["fraction_kept"] == pytest.approx(float(weights.mean()), rel=1e-5)
        assert metrics["unweighted_loss"] == pytest.approx(float(losses.mean()), rel=1e-5)
        assert metrics["weighted_loss"] == pytest.approx(float(loss), rel=1e-5)
        assert metrics["scale"] == float(robust.scale)
        assert metrics["inlier_fraction"] == pytest.approx(0.5)
        torch.testing.assert_close(robust.last_weights, weights)

    def test_before_the_first_call_there_is_no_loss_and_no_end_to_the_scale(self):
        assert Robust().metrics() == {"inlier_fraction": 1.0, "scale": math.inf, "bad_losses": 0.0}
        assert Robust().last_weights is None

    def test_evaluation_leaves_them_as_they_are(self):
        robust = taught()
        before = robust.metrics()
        robust.eval()(torch.rand(5))
        assert robust.metrics() == before

    def test_bad_losses_have_no_part_in_them(self):
        robust = Robust(update_every=1)
        with pytest.warns(RuntimeWarning, match="infinite or NaN"):
            robust(torch.tensor([1.0, math.nan, 3.0, math.inf]))
        metrics = robust.metrics()
        assert (metrics["unweighted_loss"], metrics["weighted_loss"], metrics["fraction_kept"]) == (2, 1, 0.5)
        assert metrics["bad_losses"] == 2

    def test_groups_have_their_own(self):
        robust = Robust("tukey", 0.5, warmup=0, update_every=1)
        groups = torch.tensor([0] * 300 + [1] * 300)
        robust(torch.cat([torch.rand(300), 100 * torch.rand(300)]), groups=groups)
        metrics = robust.metrics()
        assert metrics["scale/1"] > 5 * metrics["scale/0"]
        assert metrics["inlier_fraction/0"] == metrics["inlier_fraction"] == 0.5
        assert "scale" not in metrics

    def test_they_need_no_graph_and_no_checkpoint(self):
        robust = taught()
        losses = torch.rand(5, requires_grad=True)
        robust(losses.exp())
        copy.deepcopy(robust)  # a tensor with a graph could not be copied
        fresh = Robust("tukey", 0.5, warmup=0, update_every=1)
        fresh.load_state_dict(robust.state_dict())
        assert fresh.metrics()["scale"] == robust.metrics()["scale"]


class TestWeigh:
    def test_a_reduction_of_your_own_is_the_loss(self):
        one, other = taught(), taught()
        losses = torch.rand(4, 3)
        weights = one.weigh(losses, torch.arange(12).view(4, 3))
        assert weights.shape == losses.shape
        torch.testing.assert_close((weights * losses).mean(), other(losses, torch.arange(12).view(4, 3)))
        torch.testing.assert_close(one.scale, other.scale)

    def test_what_does_not_count_weighs_nothing(self):
        robust = Robust(update_every=100)
        losses = torch.tensor([1.0, 2.0, math.nan, math.inf])
        mask = torch.tensor([True, False, True, True])
        assert robust.weigh(losses, mask=mask).tolist() == [1, 0, 0, 0]
        assert robust.eval().weigh(losses, mask=mask).tolist() == [1, 0, 0, 0]

    def test_changing_them_changes_nothing_that_is_kept(self):
        robust = taught()
        robust.weigh(torch.rand(5)).zero_()
        assert robust.last_weights.sum() > 0


class TestSuspects:
    def robust(self, **call) -> Robust:
        robust = Robust("tukey", 0.5, warmup=0, update_every=1)
        robust(torch.tensor([0.1, 9.0, 0.2, 5.0]), torch.tensor([0, 1, 2, 5]), **call)
        return robust

    def test_most_suspect_first_and_only_what_was_seen(self, tmp_path):
        robust = self.robust()
        path = write_suspects(robust, tmp_path / "deep" / "suspects.csv")
        with path.open() as file:
            rows = list(csv.DictReader(file))
        assert [int(row["row"]) for row in rows] == [1, 5, 2, 0]
        assert list(rows[0]) == ["row", "inlier_probability", "loss"]
        probability = robust.inlier_probability()
        for row in rows:
            assert float(row["inlier_probability"]) == pytest.approx(float(probability[int(row["row"])]))

    def test_parquet_holds_the_same(self, tmp_path):
        robust = self.robust(groups=torch.tensor([0, 0, 1, 1]))
        csv_frame = pd.read_csv(write_suspects(robust, tmp_path / "a.csv"))
        pd.testing.assert_frame_equal(
            pd.read_parquet(write_suspects(robust, tmp_path / "a.parquet")), csv_frame
        )
        assert dict(zip(csv_frame["row"], csv_frame["group"], strict=True)) == {0: 0, 1: 0, 2: 1, 5: 1}

    def test_mistakes_are_named(self, tmp_path):
        with pytest.raises(ValueError, match=r"end the name in \.csv or \.parquet"):
            write_suspects(self.robust(), tmp_path / "suspects.pkl")
        (tmp_path / "suspects.csv").write_text("kept")
        with pytest.raises(RuntimeError, match="no sample is known by its dataset index"):
            write_suspects(taught(), tmp_path / "suspects.csv")
        assert (tmp_path / "suspects.csv").read_text() == "kept"


@pytest.mark.parametrize(
    ("module", "framework", "extra"),
    [
        ("lightning", "lightning", "lightning"),
        ("transformers", "transformers", "transformers"),
        ("transformers", "accelerate", "transformers"),
        ("skorch", "skorch", "skorch"),
    ],
)
def test_a_missing_framework_is_an_error_that_names_the_extra(module, framework, extra):
    script = f"import sys; sys.modules[{framework!r}] = None; import inlier.integrations.{module}"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    words = f'inlier.integrations.{module} needs {framework}: pip install "inlier[{extra}]"'
    assert f"ImportError: {words}" in result.stderr


class TestSuspectsAsColumns:
    def trained(self) -> Robust:
        robust = Robust("tukey", 0.5, warmup=0, update_every=1)
        robust(torch.tensor([0.5, 9.0, 0.25]), torch.tensor([0, 1, 3]))
        return robust

    def test_they_are_in_the_order_of_the_dataset(self):
        datasets = pytest.importorskip("datasets", reason="needs the datasets library")
        robust = self.trained()
        dataset = datasets.Dataset.from_dict({"text": ["a", "b", "c", "d"]})
        known = with_suspects(dataset, robust)
        assert known.column_names == ["text", "inlier_probability", "loss"]
        assert known["loss"][:] == [0.5, 9.0, None, 0.25]
        expected = robust.inlier_probability()
        assert known["inlier_probability"][:] == [*expected[:2].tolist(), None, float(expected[3])]
        assert known["inlier_probability"][1] == min(p for p in known["inlier_probability"] if p is not None)
        by_id = with_suspects(datasets.Dataset.from_dict({"id": [3, 7, 1]}), robust, index=[3, 7, 1])
        assert by_id["loss"][:] == [0.25, None, 9.0]

    def test_class_labels_have_a_suggestion(self):
        datasets = pytest.importorskip("datasets", reason="needs the datasets library")
        criterion = RobustCrossEntropy()
        criterion(torch.tensor([[0.0, 3.0], [2.0, 0.0]]), torch.tensor([0, 0]), torch.tensor([0, 1]))
        known = with_suspects(datasets.Dataset.from_dict({"text": ["a", "b"]}), criterion)
        assert known["suggested_label"][:] == [1, 0]

    def test_another_dataset_is_refused(self):
        datasets = pytest.importorskip("datasets", reason="needs the datasets library")
        robust = self.trained()
        with pytest.raises(ValueError, match="robust knows a sample 3, and the dataset has 2"):
            with_suspects(datasets.Dataset.from_dict({"text": ["a", "b"]}), robust)
        with pytest.raises(ValueError, match="index has 1 numbers for 2 samples"):
            with_suspects(datasets.Dataset.from_dict({"text": ["a", "b"]}), robust, index=[0])
        with pytest.raises(ValueError, match="has a column 'loss' already"):
            with_suspects(datasets.Dataset.from_dict({"loss": [1.0] * 4}), robust)
        with pytest.raises(TypeError, match=r"dataset = a list: columns can be added to a datasets\.Dataset"):
            with_suspects([1, 2], robust)
