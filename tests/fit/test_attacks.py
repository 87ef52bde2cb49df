"""Files that are broken, hostile or not files: one line, nothing executed, nothing hangs, nothing else touched."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import skops.io
from sklearn.feature_extraction.text import CountVectorizer

from tests.fit.commands import run, succeed
from tests.fit.tables import line

ROOT = Path(__file__).parents[2]
ROWS = "x,y\n" + "".join(f"{k},{2 * k}\n" for k in range(30))
TABLES, MODELS, RECORDS, OUTPUTS = {}, {}, {}, {}


def attack(register, name, message):
    """Add a function that prepares an attack to a table of attacks."""

    def add(prepare):
        register[name] = (prepare, message)
        return prepare

    return add


def content(name, data, message, file="bad.csv"):
    """Add an attack that is a file of some bytes."""

    def prepare(folder):
        (folder / file).write_bytes(data() if callable(data) else data)
        return folder / file

    TABLES[name] = (prepare, message)


content("empty", b"", "is empty")
content("blanks", b" \n\t\n", "is empty")
content("mark alone", b"\xef\xbb\xbf", "has no such column")
content("zero bytes", b"x,y\n" + bytes(100), "contains zero bytes")
content("machine code", lambda: Path(sys.executable).resolve().read_bytes()[:5000], "zero bytes")
content("random bytes", bytes(range(1, 256)) * 20, "has no such column")
content("odd UTF-16", ROWS.encode("utf-16")[:-1], "is not utf-16")
content("duplicate names", b"y,y\n" + b"1,2\n" * 20, "2 columns named 'y'")
content("thousands of columns", b",".join(b"c%d" % k for k in range(6000)) + b"\n", "the maximum is 5,000")
content("ragged", ROWS.encode() + b"1,2,3\n", "Expected 2 columns, got 3")
content("endless header", b"x" * 3_000_000, "has no line break")
content("endless row", ROWS.encode() + b"1" * 6_000_000, "is not a valid CSV file")
content("open quote", ROWS.encode() + b'"1,2\n' + b"3,4\n" * 1_500_000, "closing quote")
content("delimiters", b",,,,\n" * 30, "has no such column")
content("formula target", b"x,y\n" + b"1,=cmd|' /C calc'!A0\n" * 20, "in every row")
content("script target", b"x,y\n" + b"1,<script>alert(1)</script>\n" * 20, "in every row")
content("gzip of nothing", gzip.compress(b""), "is empty", "bad.csv.gz")
content("broken gzip", gzip.compress(ROWS.encode() * 99)[:60] + b"\0" * 99, "is broken", "bad.csv.gz")
content("gzip in gzip", gzip.compress(gzip.compress(ROWS.encode())), "contains zero bytes", "bad.csv.gz")
content("broken zstd", b"\x28\xb5\x2f\xfd" + b"\xff" * 99, "is broken", "bad.csv.zst")
content("Parquet of nothing", b"PAR1", "is a broken Parquet file", "bad.parquet")
content("Parquet of noise", b"PAR1" + os.urandom(500) + b"PAR1", "is a broken Parquet file", "bad.parquet")
content("compressed Parquet", lambda: gzip.compress(b"PAR1" + bytes(99)), "decompress it first", "bad.gz")
content("workbook of noise", b"PK\3\4" + os.urandom(99), "is not a readable workbook", "bad.xlsx")
content("old workbook of noise", b"\xd0\xcf\x11\xe0" + bytes(600), "is not a readable workbook", "bad.xls")
content("unknown type", b"\x89PNG\r\n", "is not a Parquet file, and its name ends neither", "bad.png")


@attack(TABLES, "workbook that unpacks to much", "the limit is 8")
def _(folder):
    with zipfile.ZipFile(folder / "bad.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", bytes(1_000_000))
    data = (folder / "bad.xlsx").read_bytes()
    # The directory of the archive states 9 GB.
    place = data.rindex(b"PK\1\2") + 24
    (folder / "bad.xlsx").write_bytes(
        data[:place] + (4_294_967_294).to_bytes(4, "little") + data[place + 4 :]
    )
    with zipfile.ZipFile(folder / "bad.xlsx", "a") as archive:
        for name in ("a", "b", "c"):
            archive.writestr(name, b"")
            archive.NameToInfo[name].file_size = 4_294_967_294
    return folder / "bad.xlsx"


@attack(TABLES, "half a Parquet file", "is a broken Parquet file")
def _(folder):
    pq.write_table(pa.table({"x": range(5000), "y": range(5000)}), folder / "whole.parquet")
    data = (folder / "whole.parquet").read_bytes()
    (folder / "whole.parquet").unlink()
    (folder / "bad.parquet").write_bytes(data[: len(data) // 2] + data[-8:])
    return folder / "bad.parquet"


@attack(TABLES, "many rows in few bytes", "has 50,000,000 rows or more")
def _(folder):
    pq.write_table(pa.table({"y": pa.nulls(50_000_000, pa.int8())}), folder / "bad.parquet")
    return folder / "bad.parquet"


@attack(TABLES, "lists that are not numbers", "which is neither numbers, text, times nor vectors")
def _(folder):
    pq.write_table(pa.table({"x": [[{"a": 1}]] * 20, "y": range(20)}), folder / "bad.parquet")
    return folder / "bad.parquet"


@attack(TABLES, "pipe", "is not a regular file")
def _(folder):
    os.mkfifo(folder / "bad.csv")
    return folder / "bad.csv"


@attack(TABLES, "pipe as Parquet", "is not a regular file")
def _(folder):
    os.mkfifo(folder / "bad.parquet")
    return folder / "bad.parquet"


@attack(TABLES, "socket", "is not a regular file")
def _(folder):
    os.chdir(folder)  # The path of a socket is short.
    socket.socket(socket.AF_UNIX).bind("bad.csv")
    os.chdir(ROOT)
    return folder / "bad.csv"


@attack(TABLES, "device", "is not a regular file")
def _(folder):
    return Path("/dev/zero")


@attack(TABLES, "link to a device", "is not a regular file")
def _(folder):
    (folder / "bad.csv").symlink_to("/dev/zero")
    return folder / "bad.csv"


@attack(TABLES, "dangling link", "does not exist")
def _(folder):
    (folder / "bad.csv").symlink_to(folder / "nowhere")
    return folder / "bad.csv"


@attack(TABLES, "link to itself", "")
def _(folder):
    (folder / "bad.csv").symlink_to(folder / "bad.csv")
    return folder / "bad.csv"


@attack(TABLES, "name that is too long", "")
def _(folder):
    return folder / ("x" * 300 + ".csv")


@attack(TABLES, "pipes instead of images", "no usable image")
def _(folder):
    for name in ("cat", "dog"):
        (folder / "images" / name).mkdir(parents=True)
        os.mkfifo(folder / "images" / name / "1.png")
    return folder / "images"


def record_change(name, message, change):
    RECORDS[name] = (change, message)


record_change("nothing", "lacks its run.json", lambda text: "")
record_change("no JSON", "lacks its run.json", lambda text: "{")
record_change("a list", "lacks its run.json", lambda text: "[]")
record_change("depth", "lacks its run.json", lambda text: "[" * 100_000)
record_change("another maker", "lacks its run.json", lambda text: text.replace("inlier fit", "somebody"))
for key in ("columns", "target", "task", "kind"):
    record_change(f"without {key}", "is broken", lambda text, key=key: _edit(text, lambda r: r.pop(key)))
for key, value in (
    ("kind", "tables"),
    ("task", "poetry"),
    ("target", ["y"]),
    ("columns", "x"),
    ("task", None),
):
    record_change(
        f"{key} = {value!r}",
        "is broken",
        lambda text, k=key, v=value: _edit(text, lambda r: r.update({k: v})),
    )
for key, value in {
    "kind": "executable", "name": 7, "decimal": ";", "century": "soon", "month_first": "perhaps",
    "missing": ["many"], "unit": 3, "percent": "much",
}.items():  # fmt: skip
    record_change(
        f"column with {key} = {value!r}", "is broken",
        lambda text, k=key, v=value: _edit(text, lambda r: r["columns"][0].update({k: v})),
    )  # fmt: skip
record_change(
    "column that is a number", "is broken", lambda text: _edit(text, lambda r: r.update(columns=[1]))
)
record_change(
    "column without a name", "is broken", lambda text: _edit(text, lambda r: r["columns"][0].pop("name"))
)
record_change("images", "holds no network", lambda text: _edit(text, lambda r: r.update(kind="images")))
record_change(
    "another column",
    "lacks columns of the model",
    lambda text: _edit(text, lambda r: r["columns"][0].update(name="z")),
)


def _edit(text, change):
    record = json.loads(text)
    change(record)
    return json.dumps(record)


@attack(MODELS, "no model", "is not a model of inlier fit")
def _(path):
    path.unlink()


@attack(MODELS, "a pipe", "is not a model of inlier fit")
def _(path):
    path.unlink()
    os.mkfifo(path)


@attack(MODELS, "nothing", "is not a model of inlier fit")
def _(path):
    path.write_bytes(b"")


@attack(MODELS, "a pickle", "is not a model of inlier fit")
def _(path):
    path.write_bytes(b"cos\nsystem\n(S'touch /tmp/executed'\ntR.")


@attack(MODELS, "half of it", "is not a model of inlier fit")
def _(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@attack(MODELS, "no schema", "is not a model of inlier fit")
def _(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.json", "{}")


@attack(MODELS, "a schema of another kind", "cannot be loaded")
def _(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("schema.json", "[1, 2]")


@attack(MODELS, "a deep schema", "is not a model of inlier fit")
def _(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("schema.json", "[" * 200_000)


@attack(MODELS, "a type that opens files", "which no model of inlier fit does")
def _(path):
    skops.io.dump(CountVectorizer(input="filename").fit([__file__]), path)


@attack(MODELS, "zeros that unpack to much", "unpacks to far more than its size")
def _(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", "{}")
        archive.writestr("1.npy", bytes(50_000_000))


@attack(OUTPUTS, "the model itself", "is inside the model")
def _(folder, model):
    return model / "model.skops"


@attack(OUTPUTS, "a new file in the model", "is inside the model")
def _(folder, model):
    return model / "p.csv"


@attack(OUTPUTS, "the model by another name", "is inside the model")
def _(folder, model):
    (folder / "link").symlink_to(model)
    return folder / "link" / "p.csv"


@attack(OUTPUTS, "a link to a file", "is a link")
def _(folder, model):
    (folder / "mine.txt").write_text("ten years of work")
    (folder / "p.csv").symlink_to(folder / "mine.txt")
    return folder / "p.csv"


@attack(OUTPUTS, "a link to nothing", "is a link")
def _(folder, model):
    (folder / "p.csv").symlink_to(folder / "planted")
    return folder / "p.csv"


@attack(OUTPUTS, "a pipe", "not a regular file")
def _(folder, model):
    os.mkfifo(folder / "p.csv")
    return folder / "p.csv"


@attack(OUTPUTS, "a folder", "is a folder")
def _(folder, model):
    return folder


@attack(OUTPUTS, "no folder", "does not exist")
def _(folder, model):
    return folder / "none" / "p.csv"


@attack(OUTPUTS, "the input", "is the input itself")
def _(folder, model):
    return folder / "line.csv"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model of the smallest table, fitted once."""
    folder = tmp_path_factory.mktemp("fitted")
    line().to_csv(folder / "line.csv", index=False)
    succeed("fit", folder / "line.csv", "--target", "y", "--inlier-fraction", 0.9, "--out", folder / "out")
    return folder / "out"


@pytest.fixture
def model(fitted, tmp_path):
    """A copy of it, in a folder with a table."""
    shutil.copytree(fitted, tmp_path / "model")
    line().to_csv(tmp_path / "line.csv", index=False)
    return tmp_path / "model"


def snapshot(folder):
    """All entries of a folder: type, content of regular files, and where links lead."""
    entries = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        data = path.readlink() if stat.S_ISLNK(mode) else path.read_bytes() if stat.S_ISREG(mode) else None
        entries[path.relative_to(folder)] = (stat.S_IFMT(mode), data)
    return entries


def assert_refused(message, folder, *arguments):
    before = snapshot(folder)
    result = run(*arguments)
    assert result.code in (1, 2), (result.code, result.out)
    assert result.out == ""
    (text,) = result.error.splitlines()
    assert text.startswith("inlier: ")
    assert message in text
    assert snapshot(folder) == before


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", TABLES)
def test_a_hostile_table(name, tmp_path):
    prepare, message = TABLES[name]
    data = prepare(tmp_path)
    target = () if name == "pipes instead of images" else ("--target", "y")
    assert_refused(message, tmp_path, "fit", data, *target, "--out", tmp_path / "out")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", RECORDS)
def test_an_edited_record(name, model, tmp_path):
    change, message = RECORDS[name]
    path = model / "run.json"
    path.write_text(change(path.read_text()))
    assert_refused(message, tmp_path, "predict", model, tmp_path / "line.csv", "--out", tmp_path / "p.csv")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["pipe", "folder", "large", "link to itself"])
def test_a_record_that_is_not_a_file(kind, model, tmp_path):
    path = model / "run.json"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(200_000_000)
    else:
        path.symlink_to(path)
    result = run("predict", model, tmp_path / "line.csv", "--out", tmp_path / "p.csv")
    assert result.code == 2
    assert "lacks its run.json" in result.error
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", MODELS)
def test_a_hostile_model(name, model, tmp_path):
    change, message = MODELS[name]
    change(model / "model.skops")
    assert_refused(message, tmp_path, "predict", model, tmp_path / "line.csv", "--out", tmp_path / "p.csv")
    assert not Path("/tmp/executed").exists()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_place_where_nothing_may_be_written(name, model, tmp_path):
    prepare, message = OUTPUTS[name]
    out = prepare(tmp_path, model)
    assert_refused(message, tmp_path, "predict", model, tmp_path / "line.csv", "--out", out, "--overwrite")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "line.npy"])
def test_a_pipe_where_a_file_of_the_model_should_be(name, model, tmp_path):
    columns = [{"name": "npy", "kind": "embedding", "width": 3, "source": "npy"}]
    change = {"columns": columns} if name == "line.npy" else {"kind": "images"}
    (model / "run.json").write_text(_edit((model / "run.json").read_text(), lambda r: r.update(change)))
    (model / "model.json").write_text('{"network": "compact", "size": 32, "classes": ["a", "b"]}')
    (model / "model.safetensors").write_bytes(b"{}")
    path = tmp_path / name if name == "line.npy" else model / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    message = "is missing or not a matrix" if name == "line.npy" else "holds no network"
    assert_refused(message, tmp_path, "predict", model, tmp_path / "line.csv", "--out", tmp_path / "p.csv")


def test_a_link_under_the_name_of_a_temporary_file_is_not_followed(model, tmp_path):
    (tmp_path / "mine.txt").write_text("ten years of work")
    (tmp_path / ".p.csv.new").symlink_to(tmp_path / "mine.txt")
    succeed("predict", model, tmp_path / "line.csv", "--out", tmp_path / "p.csv")
    assert (tmp_path / "mine.txt").read_text() == "ten years of work"


def test_a_link_as_output_folder_is_not_followed(model, tmp_path):
    (tmp_path / "link").symlink_to(model)
    arguments = ("fit", tmp_path / "line.csv", "--target", "y", "--out", tmp_path / "link", "--overwrite")
    assert_refused("is a link", tmp_path, *arguments)


@pytest.mark.slow
def test_a_full_disk_leaves_the_earlier_output(model, tmp_path):
    before = snapshot(tmp_path)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "from inlier.cli import main; sys.argv = ['inlier', *sys.argv[1:]]; main()"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, "fit", tmp_path / "line.csv", "--target", "y"]
    command += ["--out", model, "--overwrite"]
    # Coverage would write its own file on the full disk, and complain.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode == 1, result.stderr
    (text,) = result.stderr.splitlines()
    assert "cannot be written" in text
    assert snapshot(tmp_path) == before


@pytest.mark.slow
def test_a_process_that_is_killed_between_steps_leaves_one_output_whole(model, tmp_path):
    names = {path.name for path in model.iterdir()}
    code = (
        "import os, signal, sys; from pathlib import Path; from inlier.fit import _outputs\n"
        "exchange = _outputs._exchange\n"
        "def killed(*arguments):\n"
        "    {when} and exchange(*arguments); os.kill(os.getpid(), signal.SIGKILL)\n"
        "_outputs._exchange = killed\n"
        "from inlier.cli import main; sys.argv = ['inlier', *sys.argv[1:]]; main()"
    )
    for when, seed in (("False", 0), ("True", 7)):
        command = [sys.executable, "-W", "ignore", "-c", code.format(when=when), "fit", tmp_path / "line.csv"]
        command += ["--target", "y", "--out", model, "--overwrite", "--seed", "7"]
        result = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, timeout=300)
        assert result.returncode == -9
        assert {path.name for path in model.iterdir()} == names
        assert json.loads((model / "run.json").read_text())["seed"] == seed


@pytest.mark.slow
def test_two_fits_into_one_folder_leave_one_output_whole(tmp_path):
    line().to_csv(tmp_path / "line.csv", index=False)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "inlier.cli",
        "fit",
        tmp_path / "line.csv",
        "--target",
        "y",
    ]
    command = list(map(str, [*command, "--out", tmp_path / "out"]))
    both = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=300)[1] for process in both]
    assert sorted(process.returncode == 0 for process in both) in ([False, True], [True, True]), errors
    assert not any("Traceback" in error for error in errors)
    succeed("predict", tmp_path / "out", tmp_path / "line.csv", "--out", tmp_path / "p.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["line.csv", "out", "p.csv"]


def test_there_are_at_least_sixty_attacks():
    assert len(TABLES) + len(RECORDS) + len(MODELS) + len(OUTPUTS) >= 60
