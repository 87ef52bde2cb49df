"""`inlier fit` and `inlier predict` on images: what is found, skipped, written, predicted and refused."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

from inlier._errors import InputError
from inlier._vision import networks
from inlier.fit import load_network
from inlier.fit._image_data import read_labelled
from inlier.fit._networks import TrainedNetwork, save_network
from tests.fit.commands import record_of, refused, succeed, summary_of
from tests.fit.images import COLOURS, blot, jpeg
from tests.fit.tables import line
from tests.vision.image_files import png, write_parquet

FILES = {"model.safetensors", "model.json", "suspects.parquet", "suspects.csv", "report.html", "run.json"}
RATE = 0.15


def blots(count, seed=0):
    """(image, class, whether the label is wrong) of each: a blot of a colour, some given another class."""
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
    for number, (content, label, wrong) in enumerate(blots(count, seed)):
        place = folder / list(COLOURS)[label] / f"{number:03}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        if wrong:
            bad.add(place.relative_to(folder).as_posix())
    return bad


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A fit of 180 images with 15 % wrong labels, and some files that are not images."""
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
    printed = succeed("fit", base / "blots", "--out", out, "--epochs", "40")
    assert sorted(path for path in (base / "blots").rglob("*")) == before
    return SimpleNamespace(data=base / "blots", out=out, bad=bad, printed=printed)


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
def test_what_is_not_an_image_is_skipped_and_named(fitted):
    skipped = record_of(fitted.out)["skipped"]
    assert skipped == {
        "notes.txt": "not in a class folder",
        "red/readme.md": "not a readable image",
        "red/torn.png": "not a readable image",
        "violet/one.png": "the only image of its class, 'violet'",
        "empty/": "an empty class folder",
    }
    note = next(text for text in fitted.printed.splitlines() if text.startswith("skipped: "))
    assert all(name in note for name in skipped)
    assert summary_of(fitted.printed)["images"] == "182 (5 skipped)"
    assert "hidden" not in fitted.printed
    files = set(pd.read_parquet(fitted.out / "suspects.parquet")["file"])
    assert "blue/more/deep.png" in files
    assert "green/=1+1.png" in files


@pytest.mark.slow
def test_the_output_folder_holds_the_model_the_report_and_the_record(fitted):
    assert {path.name for path in fitted.out.iterdir()} == FILES
    record = record_of(fitted.out)
    assert record["kind"] == "images"
    assert record["classes"] == ["blue", "green", "red"]
    # So few images, and a network from scratch, rank their labels but prove nothing about them.
    assert record["inlier_fraction"] == 1
    assert not record["trusted"]
    assert json.loads((fitted.out / "model.json").read_text()) == {
        "network": "compact",
        "size": 32,
        "classes": ["blue", "green", "red"],
    }
    page = (fitted.out / "report.html").read_text()
    assert page.count("iVBOR") >= 10  # How a PNG file in base64 begins.
    table = pd.read_parquet(fitted.out / "suspects.parquet")
    assert table["file"][0] in page
    summary = summary_of(fitted.printed)
    assert list(summary)[-6:] == [
        *("result", "inlier fraction", "images", "another label", "most suspect", "files"),
    ]
    assert summary["result"].endswith(record["reason"])
    assert summary["result"].startswith(page.split("<h1>")[1].split("</h1>")[0])
    assert record["another_label_suggested"] == pytest.approx(len(fitted.bad), abs=3)


@pytest.mark.slow
def test_new_images_are_predicted(fitted, tmp_path):
    colours = list(COLOURS) * 5
    for number, colour in enumerate(colours):
        place = tmp_path / "new" / ("a" if number % 2 else "b") / f"{number:02}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(jpeg(blot(COLOURS[colour], 1000 + number, 60, 48)))
    (tmp_path / "new" / "a" / "bad.png").write_bytes(b"no")
    out = tmp_path / "predictions.csv"
    printed = succeed("predict", fitted.out, tmp_path / "new", "--out", out)
    assert "15 images predicted" in printed
    assert "'a/bad.png' (not a readable image)" in printed
    table = pd.read_csv(out)
    true = [colours[int(name[2:4])] for name in table["file"]]
    assert (table["prediction"] == true).mean() > 0.85
    assert table["probability"].between(1 / 3, 1).all()

    rows = [png(blot(COLOURS[colour], 2000 + n)) for n, colour in enumerate(colours)]
    parquet = write_parquet(tmp_path / "new.parquet", [*rows, None], [0] * 16)
    pq.write_table(pq.read_table(parquet).rename_columns(["image", "label"]), parquet)
    printed = succeed("predict", fitted.out, parquet, "--out", tmp_path / "p.parquet")
    table = pd.read_parquet(tmp_path / "p.parquet")
    assert table["index"].tolist() == list(range(15))
    assert (table["prediction"] == colours).mean() > 0.85
    assert "'row 15' (without an image)" in printed

    succeed("predict", fitted.out, tmp_path / "new" / "a" / "01.jpg", "--out", tmp_path / "one.csv")
    assert pd.read_csv(tmp_path / "one.csv")["file"].tolist() == ["01.jpg"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_broken_model_is_refused(fitted, tmp_path, name):
    folder = shutil.copytree(fitted.out, tmp_path / "copy")
    (folder / name).write_bytes(b"{}")
    assert "broken" in refused("predict", folder, fitted.data, "--out", tmp_path / "p.csv")
    (folder / name).unlink()
    assert "broken" in refused("predict", folder, fitted.data, "--out", tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()


def test_a_parquet_file_of_images(tmp_path):
    rows = list(blots(24))
    contents = [content for content, _, _ in rows] + [b"torn", None, rows[0][0], rows[0][0], rows[0][0]]
    labels = [label for _, label, _ in rows] + [0, 0, 3, -1, None]
    data = write_parquet(tmp_path / "blots.parquet", contents, labels, COLOURS)
    printed = succeed("fit", data, "--out", tmp_path / "out", "--epochs", "1")
    assert record_of(tmp_path / "out")["skipped"] == {
        "row 24": "not a readable image",
        "row 25": "without an image",
        "row 26": "label 3 is out of range; the classes are 0 to 2",
        "row 27": "label -1 is out of range; the classes are 0 to 2",
        "row 28": "without a label",
    }
    table = pd.read_csv(tmp_path / "out" / "suspects.csv").sort_values("index")
    assert table["index"].tolist() == list(range(24))
    assert table["given"].tolist() == [list(COLOURS)[label] for label in labels[:24]]
    assert "row 24" in printed

    # The earlier output may be replaced by one of another kind, but only if that is asked for.
    line().to_csv(tmp_path / "line.csv", index=False)
    table = ("fit", tmp_path / "line.csv", "--target", "y", "--inlier-fraction", 1, "--out", tmp_path / "out")
    assert "--overwrite" in refused(*table)
    succeed(*table, "--overwrite")
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


def test_large_images_keep_more_pixels(tmp_path):
    for side, size in ((40, 32), (200, 64)):
        content = png(blot(COLOURS["red"], 0, side, side))
        data = read_labelled(write_parquet(tmp_path / "a.parquet", [content] * 12, [0, 1] * 6))
        assert data.images.pixels.shape == (12, 3, size, size)


def test_the_same_seed_gives_the_same_suspects(tmp_path):
    class_folders(tmp_path / "blots")
    tables = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        arguments = ("--out", tmp_path / name, "--epochs", "2", "--seed", seed)
        printed = succeed("fit", tmp_path / "blots", *arguments, "--inlier-fraction", "0.8")
        tables.append((tmp_path / name / "suspects.csv").read_text())
    assert tables[0] == tables[1] != tables[2]
    assert summary_of(printed)["inlier fraction"] == "0.800, given"


# What is refused: one line, exit code 2, nothing written.


def test_data_that_leave_nothing_to_learn_are_refused(tmp_path):
    out = ("--out", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    assert "no class folders" in refused("fit", tmp_path / "empty", *out)

    (tmp_path / "hidden" / ".cat").mkdir(parents=True)
    assert "no class folders" in refused("fit", tmp_path / "hidden", *out)

    (tmp_path / "hollow" / "cat").mkdir(parents=True)
    assert "no usable image" in refused("fit", tmp_path / "hollow", *out)

    class_folders(tmp_path / "one" / "red")
    assert "only one class, 'red'" in refused("fit", tmp_path / "one", *out)

    class_folders(tmp_path / "few", 8)
    assert "at least 10" in refused("fit", tmp_path / "few", *out)

    for name in ("cat", "dog"):
        (tmp_path / "text" / name).mkdir(parents=True)
        (tmp_path / "text" / name / "a.txt").write_text("a")
    message = refused("fit", tmp_path / "text", *out)
    assert "no usable image" in message
    assert "'cat/a.txt'" in message

    for name in ("train", "test"):
        class_folders(tmp_path / "split" / name)
    assert "name one of them, like" in refused("fit", tmp_path / "split", *out)
    assert not (tmp_path / "out").exists()


def test_options_that_do_not_apply_to_the_data_are_refused(tmp_path, monkeypatch):
    class_folders(tmp_path / "blots")
    line().to_csv(tmp_path / "t.csv", index=False)
    content = png(blot(COLOURS["red"], 0))
    write_parquet(tmp_path / "a.parquet", [content] * 12, [0.5, 1.0] * 6)
    cases = [
        (("blots", "--target", "colour"), "omit --target"),
        (("blots", "--model", "boosting"), "applies to tables"),
        (("blots", "--task", "regression"), "applies to tables"),
        (("blots", "--drop", "x"), "applies to tables"),
        (("blots", "--epochs", "0"), "choose 1 or more"),
        (("blots", "--inlier-fraction", "2"), "is not in (0, 1]"),
        (("blots", "--seed", "-1"), "seed -1"),
        (("blots", "--out", "blots/out"), "inside the folder of images"),
        (("t.csv", "--target", "y", "--epochs", "3"), "epochs apply to images"),
        (("t.csv",), "name the column to predict with --target; 't.csv' has 'x', 'y'"),
        (("nothing.csv",), "does not exist"),
        (("a.parquet", "--target", "labl"), "did you mean 'label'"),
        (("a.parquet",), "labels like '0.5'"),
    ]
    monkeypatch.chdir(tmp_path)
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


def test_a_column_of_images_may_be_dropped_from_a_table(tmp_path):
    content = png(blot(COLOURS["red"], 0))
    data = write_parquet(tmp_path / "a.parquet", [content] * 40, [n % 7 * 1.5 for n in range(40)])
    frame = pd.read_parquet(data).assign(x=np.arange(40) % 7)
    frame.to_parquet(data)
    arguments = ("--target", "label", "--drop", "img", "--inlier-fraction", 1, "--out", tmp_path / "out")
    succeed("fit", data, *arguments)
    assert (tmp_path / "out" / "model.skops").exists()


def test_a_file_that_cannot_be_read_is_skipped(tmp_path):
    class_folders(tmp_path / "blots")
    (tmp_path / "blots" / "red" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    assert read_labelled(tmp_path / "blots").skipped == {"red/gone.png": "No such file or directory"}


def test_a_network_of_another_size_is_refused(tmp_path):
    save_network(TrainedNetwork(networks.get("compact", 3), "compact", 32, ("a", "b")), tmp_path)
    with pytest.raises(InputError, match="broken"):
        load_network(tmp_path)


def test_decisions_about_images_are_honoured(tmp_path):
    class_folders(tmp_path / "blots", 60)
    command = ("fit", tmp_path / "blots", "--epochs", 1, "--out")
    succeed(*command, tmp_path / "first")
    first = pd.read_parquet(tmp_path / "first" / "suspects.parquet")
    fixed, dropped, kept = first["file"][:3]
    given = first["given"][0]
    other = next(name for name in COLOURS if name != given)
    decisions = tmp_path / "decisions.csv"
    # The number of an image changes when files come and go; its name does not.
    decisions.write_text(
        f"row,decision,given,value,file\n0,fix,{given},{other},{fixed}\n1,drop,,,{dropped}\n2,keep,,,{kept}\n"
    )
    printed = succeed(*command, tmp_path / "second", "--decisions", decisions)
    assert summary_of(printed)["images"] == "59 (1 skipped)"
    assert record_of(tmp_path / "second")["skipped"] == {dropped: "dropped, as decided"}
    second = pd.read_parquet(tmp_path / "second" / "suspects.parquet")
    assert set(second["file"][-2:]) == {fixed, kept}
    assert (second["inlier_probability"][-2:] == 1).all()
    assert second.set_index("file").loc[fixed, "given"] == other
    for entry, message in (
        ("0,fix,,violet,red/nothing.png", "there is no usable image 'red/nothing.png'"),
        (f"0,fix,,violet,{fixed}", "cannot become 'violet'; the classes are 'blue', 'green', 'red'"),
        (f"0,keep,{other},,{fixed}", f"is '{given}', and was '{other}' when this was decided"),
        ("9999,drop,,,", "there is no usable image '9999'"),
    ):
        decisions.write_text(f"row,decision,given,value,file\n{entry}\n")
        assert message in refused(*command, tmp_path / "third", "--decisions", decisions)


@pytest.mark.parametrize(
    ("labels", "names", "other"),
    [
        ([0, 1, 2] * 4, COLOURS, 2),
        ([5, 7] * 6, None, 7),
        (["dog", "cat"] * 6, None, "cat"),
        ([True, False] * 6, None, False),
    ],
)
def test_a_parquet_file_of_images_is_fixed_beside_it(tmp_path, labels, names, other):
    data = write_parquet(
        tmp_path / "blots.parquet", [png(blot(COLOURS["red"], k)) for k in range(12)], labels, names
    )
    succeed("fit", data, "--epochs", 1, "--out", tmp_path / "out")
    classes = list(names) if names else sorted({str(label) for label in labels})
    given, wanted = (classes[label] if names else str(label) for label in (labels[0], other))
    decisions = tmp_path / "decisions.csv"
    decisions.write_text(f"row,decision,given,value,file\n0,fix,{given},{wanted},\n3,drop,,,\n4,keep,,,\n")
    fixed = tmp_path / "blots-fixed.parquet"
    assert succeed("fix", tmp_path / "out", decisions) == f"1 image fixed, 1 dropped: {fixed}\n"
    before, after = pq.read_table(data), pq.read_table(fixed)
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after["label"].to_pylist() == [other, *labels[1:3], *labels[4:]]
    assert after["img"].to_pylist() == before["img"].to_pylist()[:3] + before["img"].to_pylist()[4:]
    assert "exists; choose another name" in refused("fix", tmp_path / "out", decisions)
    for entry, message in (
        ("0,fix,,violet,", "cannot become 'violet'"),
        (f"0,drop,{wanted},,", "the images have changed"),
        ("12,drop,,,", "there is no usable image '12'"),
    ):
        decisions.write_text(f"row,decision,given,value,file\n{entry}\n")
        assert message in refused("fix", tmp_path / "out", decisions, "--out", tmp_path / "new.parquet")


def test_a_folder_of_images_is_fixed_as_a_list_of_files(tmp_path):
    class_folders(tmp_path / "blots", 24)
    (tmp_path / "blots" / "red" / "torn.png").write_bytes(b"torn")
    succeed("fit", tmp_path / "blots", "--epochs", 1, "--out", tmp_path / "out")
    files = pd.read_parquet(tmp_path / "out" / "suspects.parquet").set_index("file")["given"].sort_index()
    first, second, third = files.index[:3]
    decisions = tmp_path / "decisions.csv"
    decisions.write_text(
        f"row,decision,given,value,file\n0,fix,{files[first]},red,{first}\n1,drop,,,{second}\n2,keep,,,{third}\n"
    )
    fixed = tmp_path / "blots-fixed.csv"
    assert succeed("fix", tmp_path / "out", decisions) == f"1 image fixed, 1 dropped: {fixed}\n"
    wanted = files.drop(second)
    wanted[first] = "red"
    listed = pd.read_csv(fixed).set_index("file")["label"].sort_index()
    pd.testing.assert_series_equal(listed, wanted, check_names=False)
    assert sum(path.is_file() for path in (tmp_path / "blots").rglob("*")) == 25
    decisions.write_text("row,decision,given,value,file\n0,fix,,violet,red/torn.png\n")
    assert "no usable image 'red/torn.png'" in refused(
        "fix", tmp_path / "out", decisions, "--out", tmp_path / "new.csv"
    )


def test_images_of_16_bits_and_with_transparent_parts_keep_what_they_show(tmp_path):
    grey = np.mgrid[:32, :32][0]
    for number in range(12):
        place = tmp_path / "images" / "ab"[number % 2] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        if number % 2:
            Image.fromarray((1000 + 50 * grey).astype(np.uint16)).save(place)
        else:  # A black disc; the rest is transparent, and black below.
            layer = np.zeros((32, 32, 4), np.uint8)
            layer[8:24, 8:24, 3] = 255
            Image.fromarray(layer, "RGBA").save(place)
    data = read_labelled(tmp_path / "images")
    scan, disc = data.images.pixels[-1].float(), data.images.pixels[0].float()
    assert scan.min() == 0
    assert 120 < scan.mean() < 135
    assert disc[:, 0, 0].tolist() == [255, 255, 255]
    assert disc[:, 16, 16].tolist() == [0, 0, 0]
