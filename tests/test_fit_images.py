"""`inlier fit` and `inlier predict` on pictures, as a user meets them: commands, files, exit codes."""

from __future__ import annotations

import json
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from inlier.fit import InputError, networks
from inlier.fit.pictures import read_labelled
from tests.pictures import COLOURS, blot, png, write_parquet
from tests.test_fit import refused, run

FILES = {"model.safetensors", "model.json", "suspects.parquet", "suspects.csv", "report.html", "run.json"}
RATE = 0.15


def pictures(count, seed=0):
    """(picture, class, whether the label is wrong) of each: a blot of a colour, some given another class."""
    random = np.random.default_rng(seed)
    names = list(COLOURS)
    wrong = random.permutation(count) < round(RATE * count)
    for number in range(count):
        true = number % 3
        given = (true + random.integers(1, 3)) % 3 if wrong[number] else true
        yield png(blot(COLOURS[names[true]], number)), int(given), bool(wrong[number])


def class_folders(folder, count=24, seed=0):
    """A folder of class folders; returns the names of the files with a wrong label."""
    bad = set()
    for number, (content, label, wrong) in enumerate(pictures(count, seed)):
        place = folder / list(COLOURS)[label] / f"{number:03}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        if wrong:
            bad.add(place.relative_to(folder).as_posix())
    return bad


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A fit of 180 pictures with 15 % wrong labels, and some files that are none."""
    base = tmp_path_factory.mktemp("fit")
    bad = class_folders(base / "blots", 180)
    extra = {
        "notes.txt": b"not in a class",
        "red/readme.md": b"# red",
        "red/torn.png": png(blot(COLOURS["red"], 1))[:200],
        "red/.DS_Store": b"hidden",
        ".git/config": b"hidden",
        "violet/one.png": png(blot((150, 30, 200), 3)),
        "blue/more/deep.png": png(blot(COLOURS["blue"], 7, 50, 40)),
        "green/=1+1.png": png(blot(COLOURS["green"], 8)),
    }
    for name, content in extra.items():
        (base / "blots" / name).parent.mkdir(parents=True, exist_ok=True)
        (base / "blots" / name).write_bytes(content)
    (base / "blots" / "empty").mkdir()
    before = sorted(path for path in (base / "blots").rglob("*"))
    out = base / "out"
    result = run("fit", base / "blots", "--out", out, "--epochs", "40")
    assert result.code == 0, result.error
    assert sorted(path for path in (base / "blots").rglob("*")) == before
    return SimpleNamespace(data=base / "blots", out=out, bad=bad, text=result.out)


@pytest.mark.slow
def test_the_wrong_labels_lead_the_suspects_and_the_right_ones_are_suggested(fitted):
    table = pd.read_parquet(fitted.out / "suspects.parquet")
    assert list(table) == ["file", "inlier_probability", "loss", "given", "suggested"]
    assert len(table) == 182
    assert table["inlier_probability"].is_monotonic_increasing
    first = table.head(len(fitted.bad))
    found = first["file"].isin(fitted.bad)
    assert found.mean() > 0.9
    true = [list(COLOURS)[int(name.split("/")[1][:3]) % 3] for name in first["file"][found]]
    assert (first["suggested"][found] == true).mean() > 0.9
    assert (table["given"] == table["file"].str.split("/").str[0]).all()


@pytest.mark.slow
def test_what_is_no_picture_is_named_and_set_aside(fitted):
    skipped = json.loads((fitted.out / "run.json").read_text())["skipped"]
    assert skipped == {
        "notes.txt": "not in a class folder",
        "red/readme.md": "not a picture that can be read",
        "red/torn.png": "not a picture that can be read",
        "violet/one.png": "the only picture of its class, 'violet'",
        "empty/": "an empty class folder",
    }
    aside = next(line for line in fitted.text.splitlines() if line.startswith("set aside: "))
    assert all(name in aside for name in skipped)
    assert "182 (5 set aside)" in fitted.text
    assert "hidden" not in fitted.text
    files = set(pd.read_parquet(fitted.out / "suspects.parquet")["file"])
    assert "blue/more/deep.png" in files
    assert "green/=1+1.png" in files


@pytest.mark.slow
def test_the_output_folder_holds_the_model_the_report_and_the_record(fitted):
    assert {path.name for path in fitted.out.iterdir()} == FILES
    record = json.loads((fitted.out / "run.json").read_text())
    assert record["kind"] == "pictures"
    assert record["classes"] == ["blue", "green", "red"]
    assert record["inlier_fraction"] == pytest.approx(1 - RATE, abs=0.1)
    assert json.loads((fitted.out / "model.json").read_text()) == {
        "network": "compact",
        "size": 32,
        "classes": ["blue", "green", "red"],
    }
    page = (fitted.out / "report.html").read_text()
    assert page.count("iVBOR") >= 10  # How a PNG file in base64 begins.
    table = pd.read_parquet(fitted.out / "suspects.parquet")
    assert table["file"][0] in page
    headings = ("pictures", "inlier fraction", "another label", "most suspect", "files")
    for heading, line in zip(headings, fitted.text.splitlines()[-5:], strict=True):
        assert line.startswith(heading)
    assert record["another_label_suggested"] == pytest.approx(len(fitted.bad), abs=3)


@pytest.mark.slow
def test_new_pictures_are_predicted(fitted, tmp_path):
    colours = list(COLOURS) * 5
    for number, colour in enumerate(colours):
        place = tmp_path / "new" / ("a" if number % 2 else "b") / f"{number:02}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(png(blot(COLOURS[colour], 1000 + number, 60, 48), "JPEG"))
    (tmp_path / "new" / "a" / "bad.png").write_bytes(b"no")
    out = tmp_path / "predictions.csv"
    result = run("predict", fitted.out, tmp_path / "new", "--out", out)
    assert result.code == 0, result.error
    assert "15 pictures predicted" in result.out
    assert "'a/bad.png' (not a picture that can be read)" in result.out
    table = pd.read_csv(out)
    true = [colours[int(name[2:4])] for name in table["file"]]
    assert (table["prediction"] == true).mean() > 0.85
    assert table["probability"].between(1 / 3, 1).all()

    rows = [png(blot(COLOURS[colour], 2000 + n)) for n, colour in enumerate(colours)]
    parquet = write_parquet(tmp_path / "new.parquet", [*rows, None], [0] * 16, column="image")
    result = run("predict", fitted.out, parquet, "--out", tmp_path / "p.parquet")
    assert result.code == 0, result.error
    table = pd.read_parquet(tmp_path / "p.parquet")
    assert table["index"].tolist() == list(range(15))
    assert (table["prediction"] == colours).mean() > 0.85
    assert "'row 15' (no picture in it)" in result.out

    one = run("predict", fitted.out, tmp_path / "new" / "a" / "01.jpg", "--out", tmp_path / "one.csv")
    assert one.code == 0, one.error
    assert pd.read_csv(tmp_path / "one.csv")["file"].tolist() == ["01.jpg"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_broken_model_is_refused(fitted, tmp_path, name):
    folder = shutil.copytree(fitted.out, tmp_path / "copy")
    (folder / name).write_bytes(b"{}")
    line = refused("predict", folder, fitted.data, "--out", tmp_path / "p.csv")
    assert "broken" in line
    (folder / name).unlink()
    assert "broken" in refused("predict", folder, fitted.data, "--out", tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()


def test_a_parquet_file_of_pictures(tmp_path):
    rows = list(pictures(24))
    contents = [content for content, _, _ in rows] + [b"torn", None, rows[0][0], rows[0][0], rows[0][0]]
    labels = [label for _, label, _ in rows] + [0, 0, 3, -1, None]
    data = write_parquet(tmp_path / "blots.parquet", contents, labels, COLOURS)
    result = run("fit", data, "--out", tmp_path / "out", "--epochs", "1")
    assert result.code == 0, result.error
    assert json.loads((tmp_path / "out" / "run.json").read_text())["skipped"] == {
        "row 24": "not a picture that can be read",
        "row 25": "no picture in it",
        "row 26": "label 3 is out of range; there are classes 0 to 2",
        "row 27": "label -1 is out of range; there are classes 0 to 2",
        "row 28": "without a label",
    }
    table = pd.read_csv(tmp_path / "out" / "suspects.csv").sort_values("index")
    assert table["index"].tolist() == list(range(24))
    assert table["given"].tolist() == [list(COLOURS)[label] for label in labels[:24]]
    assert "row 24" in result.out

    # A second output does not replace the first unless it is asked to.
    assert "--overwrite" in refused("fit", data, "--out", tmp_path / "out", "--epochs", "1")
    assert run("fit", data, "--out", tmp_path / "out", "--epochs", "1", "--overwrite").code == 0
    # Nor does it matter that the earlier output is of another kind.
    pd.DataFrame({"x": np.arange(40.0), "y": np.arange(40.0) * 2}).to_csv(tmp_path / "t.csv", index=False)
    again = run("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "out", "--overwrite")
    assert again.code == 0, again.error
    assert (tmp_path / "out" / "model.skops").exists()
    assert not (tmp_path / "out" / "model.json").exists()


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([2, 10] * 6, ("2", "10")),
        (["dog", "cat"] * 6, ("cat", "dog")),
        ([True, False] * 6, ("False", "True")),
    ],
)
def test_classes_without_a_list_of_names(tmp_path, labels, classes):
    content = png(blot(COLOURS["red"], 0))
    data = read_labelled(write_parquet(tmp_path / "a.parquet", [content] * 12, labels))
    assert data.images.class_names == classes
    assert [classes[label] for label in data.images.labels] == [str(label) for label in labels]


def test_large_pictures_keep_more_pixels(tmp_path):
    for side, size in ((40, 32), (200, 64)):
        content = png(blot(COLOURS["red"], 0, side, side))
        data = read_labelled(write_parquet(tmp_path / "a.parquet", [content] * 12, [0, 1] * 6))
        assert data.images.pixels.shape == (12, 3, size, size)


def test_the_same_seed_gives_the_same_suspects(tmp_path):
    class_folders(tmp_path / "blots")
    tables = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        arguments = ("--out", tmp_path / name, "--epochs", "2", "--seed", seed)
        result = run("fit", tmp_path / "blots", *arguments, "--inlier-fraction", "0.8")
        assert result.code == 0, result.error
        tables.append((tmp_path / name / "suspects.csv").read_text())
    assert tables[0] == tables[1] != tables[2]
    assert "as given" in result.out


# What is refused: one line, exit code 2, nothing written.


def test_data_that_leave_nothing_to_learn_are_refused(tmp_path):
    out = ("--out", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    assert "no class folders" in refused("fit", tmp_path / "empty", *out)

    (tmp_path / "hidden" / ".cat").mkdir(parents=True)
    assert "no class folders" in refused("fit", tmp_path / "hidden", *out)

    (tmp_path / "hollow" / "cat").mkdir(parents=True)
    assert "no picture" in refused("fit", tmp_path / "hollow", *out)

    class_folders(tmp_path / "one" / "red")
    assert "one class only, 'red'" in refused("fit", tmp_path / "one", *out)

    class_folders(tmp_path / "few", 8)
    assert "at least 10" in refused("fit", tmp_path / "few", *out)

    for name in ("cat", "dog"):
        (tmp_path / "text" / name).mkdir(parents=True)
        (tmp_path / "text" / name / "a.txt").write_text("a")
    line = refused("fit", tmp_path / "text", *out)
    assert "no picture that can be used" in line
    assert "'cat/a.txt'" in line

    for name in ("train", "test"):
        class_folders(tmp_path / "split" / name)
    assert "name one of them, like" in refused("fit", tmp_path / "split", *out)
    assert not (tmp_path / "out").exists()


def test_options_that_do_not_go_with_the_data_are_refused(tmp_path, monkeypatch):
    class_folders(tmp_path / "blots")
    pd.DataFrame({"x": np.arange(40.0), "y": np.arange(40.0)}).to_csv(tmp_path / "t.csv", index=False)
    content = png(blot(COLOURS["red"], 0))
    parquet = write_parquet(tmp_path / "a.parquet", [content] * 12, [0.5, 1.0] * 6)
    cases = [
        (("blots", "--target", "colour"), "leave out --target"),
        (("blots", "--model", "boosting"), "is for tables"),
        (("blots", "--task", "regression"), "is for tables"),
        (("blots", "--drop", "x"), "is for tables"),
        (("blots", "--epochs", "0"), "choose 1 or more"),
        (("blots", "--inlier-fraction", "2"), "no fraction"),
        (("blots", "--seed", "-1"), "seed -1"),
        (("blots", "--out", "blots/out"), "within the pictures"),
        (("t.csv", "--target", "y", "--epochs", "3"), "epochs are for pictures"),
        (("t.csv",), "name the column to predict with --target; 't.csv' has 'x', 'y'"),
        (("nothing.csv",), "there is no file"),
        (("a.parquet", "--target", "labl"), "did you mean 'label'"),
        (("a.parquet",), "labels like '0.5'"),
    ]
    monkeypatch.chdir(tmp_path)
    assert parquet.exists()
    before = set(tmp_path.rglob("*"))
    for arguments, complaint in cases:
        assert complaint in refused("fit", *arguments), arguments
    assert set(tmp_path.rglob("*")) == before


def test_a_broken_parquet_file_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    assert "broken Parquet" in refused("fit", tmp_path / "a.parquet", "--out", tmp_path / "out")
    assert "broken Parquet" in refused(
        "fit", tmp_path / "a.parquet", "--target", "a", "--out", tmp_path / "out"
    )


def test_a_column_of_pictures_may_be_dropped_from_a_table(tmp_path):
    content = png(blot(COLOURS["red"], 0))
    data = write_parquet(tmp_path / "a.parquet", [content] * 40, [n % 7 * 1.5 for n in range(40)])
    frame = pd.read_parquet(data).assign(x=np.arange(40) % 7)
    frame.to_parquet(data)
    arguments = ("--target", "label", "--drop", "img", "--out", tmp_path / "out")
    assert run("fit", data, *arguments).code == 0
    assert (tmp_path / "out" / "model.skops").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_set_aside(tmp_path):
    class_folders(tmp_path / "blots")
    locked = next((tmp_path / "blots" / "red").iterdir())
    locked.chmod(0)
    assert read_labelled(tmp_path / "blots").skipped == {f"red/{locked.name}": "Permission denied"}


def test_a_network_of_another_size_is_refused(tmp_path):
    from inlier.vision import networks as vision

    trained = networks.Trained(vision.get("compact", 3), "compact", 32, ("a", "b"))
    networks.save(trained, tmp_path)
    with pytest.raises(InputError, match="broken"):
        networks.load(tmp_path)
