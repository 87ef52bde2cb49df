"""Tables in the files that people have: encodings, separators, titles, compression, workbooks, folders."""

from __future__ import annotations

import bz2
import gzip

import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlier.fit._tables import Limits, inspect_table, read_columns
from tests.fit.commands import record_of, refused, succeed, summary_of
from tests.fit.tables import line

ROWS = [("café", "1,5", "x"), ("naïve", "2,5", ""), ("plain", "3", "y")]


def text(delimiter=",", title=""):
    quoted = [[f'"{cell}"' if delimiter in cell else cell for cell in row] for row in ROWS]
    return title + "\n".join(delimiter.join(row) for row in [("name", "size", "kind"), *quoted]) + "\n"


CONTENTS = {
    "utf-8": text().encode(),
    "with a mark": text().encode("utf-8-sig"),
    "utf-16": text().encode("utf-16"),
    "utf-16 without a mark": text().encode("utf-16-le"),
    "windows": text().encode("cp1252"),
    "semicolons": text(";").encode(),
    "tabs": text("\t").encode(),
    "bars": text("|").encode(),
    "title": text(title="Sales of the year\n").encode(),
    "title and blank": text(";", title="Sales, by name\n\n").encode(),
    "title with cells": text(title="Sales,,\nof May,,\n").encode(),
    "comments": ("# exported, by hand, in May\n# v2\n" + text()).encode(),
    "Excel's own line": ("sep=;\n" + text(";")).encode(),
    "blanks around names": text().replace("name,size", " name, size ").encode(),
    "a name with a line break": text().replace("name,", '"na\nme",').encode(),
    "a delimiter behind each row": (text().replace("\n", ",\n").replace("kind,\n", "kind\n", 1)).encode(),
    "blanks": text(" ").encode(),
    "a footer": (text() + "\nSource: my own, of May\n").replace(", of", " of").encode(),
    "carriage returns alone": text().replace("\n", "\r").encode(),
    "carriage returns": text().replace("\n", "\r\n").encode(),
    "a mark of 32 bits": text().encode("utf-32"),
    "quotes everywhere": "\n".join(
        ",".join('"' + cell.strip('"') + '"' for cell in row) for row in [("name", "size", "kind"), *ROWS]
    ).encode(),
    "an end of file of CP/M": text().encode() + b"\x1a",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_csv_file_is_read_however_it_was_written(name, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(CONTENTS[name])
    table = inspect_table(path)
    assert table.names[1:3] == ("size", "kind")
    assert table.names[0].replace("\n", "") == "name"
    assert table.names[3:] == (("Unnamed: 3",) if name == "a delimiter behind each row" else ())
    cells = read_columns(table, table.names)
    assert cells[0].to_pylist() == ["café", "naïve", "plain"]
    assert cells["size"].to_pylist() == ["1,5", "2,5", "3"]
    assert cells["kind"].to_pylist() == ["x", None, "y"]
    above = {"title": 1, "title and blank": 2, "title with cells": 2, "comments": 2, "Excel's own line": 1}
    assert table.first_row == 2 + above.get(name, 0)


def test_texts_that_parquet_files_hold_as_views(tmp_path):
    labels = pa.array(["left", "right", None] * 20, pa.string_view())
    (tmp_path / "parts").mkdir()
    table = pa.table({"x": range(60), "side": labels, "y": range(60)})
    for name in ("a", "b"):
        pq.write_table(table, tmp_path / "parts" / f"{name}.parquet")
    for target in ("y", "side"):
        for options in ((), ("--backend", "stream")):
            out = tmp_path / f"{target}-{len(options)}"
            succeed("fit", tmp_path / "parts", "--target", target, "--out", out, *options)
            predictions = tmp_path / f"{out.name}.csv"
            succeed("predict", out, tmp_path / "parts" / "a.parquet", "--out", predictions)
            assert len(predictions.read_text().splitlines()) == 61  # with the header


def test_a_compressed_file_of_several_parts_is_read_and_one_with_something_behind_is_not(tmp_path):
    content = line(40).to_csv(index=False).encode()
    options = ("--target", "y", "--inlier-fraction", 0.9, "--out", tmp_path / "out")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(content[:50]) + gzip.compress(content[50:]))
    assert summary_of(succeed("fit", tmp_path / "a.csv.gz", *options))["rows"] == "40"
    for behind in (b"garbage", bytes(512)):
        (tmp_path / "a.csv.gz").write_bytes(gzip.compress(content) + behind)
        message = refused("fit", tmp_path / "a.csv.gz", *options, "--overwrite")
        assert message.endswith("is broken, or has something behind its end")


def test_quotes_behind_a_backslash(tmp_path):
    (tmp_path / "a.csv").write_text('name,size\n"a \\"b\\", c",1\n' * 1 + '"d, \\"e\\"",2\nf,3\n')
    table = inspect_table(tmp_path / "a.csv")
    assert read_columns(table, ["name"])["name"].to_pylist() == ['a "b", c', 'd, "e"', "f"]
    # Elsewhere a backslash is a letter like any other.
    (tmp_path / "a.csv").write_text('name,size\n"C:\\new, old",1\nC:\\x,2\n')
    assert read_columns(inspect_table(tmp_path / "a.csv"), ["name"])["name"].to_pylist() == [
        "C:\\new, old",
        "C:\\x",
    ]


def test_a_name_that_begins_with_a_number_sign_is_no_comment(tmp_path):
    (tmp_path / "a.csv").write_text("#chrom,pos\nchr1,5\nchr2,7\n")
    assert inspect_table(tmp_path / "a.csv").names == ("#chrom", "pos")


def test_columns_without_a_name_get_one(tmp_path):
    frame = line().assign(other=3.0, empty=None)
    text = frame.to_csv().replace("x,y,other,empty", "x,y,,", 1)
    (tmp_path / "a.csv").write_text(text)
    out = tmp_path / "out"
    printed = succeed("fit", tmp_path / "a.csv", "--target", "y", "--out", out, "--inlier-fraction", 0.9)
    assert "'Unnamed: 0'  not used: an identifier" in printed
    assert "'Unnamed: 3'  not used: constant" in printed
    assert "'Unnamed: 4'  not used: empty" in printed
    succeed("predict", out, tmp_path / "a.csv", "--out", tmp_path / "p.csv")


WRONG_NAMES = {
    "numbers": ("1,2\n" * 20, "put a line with the names of the columns above it"),
    "dots": ("x.z\n" + "1.2\n" * 20, "separated by a comma, a semicolon, a tab, a bar or one blank"),
    "encoding": ("имя,x\n" + "1,2\n" * 20, "read as cp1251 (--encoding names another)"),
}


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_a_missing_target_says_what_may_be_wrong_with_the_file(name, tmp_path):
    content, message = WRONG_NAMES[name]
    (tmp_path / "a.csv").write_bytes(content.encode("cp1251"))
    assert message in refused("fit", tmp_path / "a.csv", "--target", "y", "--out", tmp_path / "out")


def test_bytes_of_another_encoding_late_in_a_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"name,size\n" + b"plain,1\n" * 200_000 + "café,2\n".encode("cp1252"))
    cells = read_columns(inspect_table(path), ["name"])
    assert cells["name"][-1].as_py() == "café"


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
def test_compressed_files(suffix, tmp_path):
    path = tmp_path / f"a.csv.{suffix}"
    compress = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "zst": lambda b: pa.compress(b, "zstd", asbytes=True),
    }
    if suffix == "zst":
        with pa.output_stream(str(path), compression="zstd") as file:
            file.write(text().encode())
    else:
        path.write_bytes(compress[suffix](text().encode()))
    table = inspect_table(path)
    assert read_columns(table, ["name"])["name"].to_pylist() == ["café", "naïve", "plain"]
    path.write_bytes(path.read_bytes()[:-10])
    assert "is broken" in refused("fit", path, "--target", "size", "--out", tmp_path / "out")


def test_a_workbook_with_a_title(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["Houses of May"])
    book.active.append(["", *line()])  # A column without a name.
    for row in line().itertuples(index=False):
        book.active.append([None, *row])
    book.save(tmp_path / "a.xlsx")
    out = tmp_path / "out"
    printed = succeed("fit", tmp_path / "a.xlsx", "--target", "y", "--out", out, "--inlier-fraction", 0.9)
    assert "the header is row 2" in printed
    assert record_of(out)["first_row"] == 3
    assert pd.read_parquet(out / "suspects.parquet")["row"].min() == 3
    printed = succeed("predict", out, tmp_path / "a.xlsx", "--out", tmp_path / "p.csv")
    assert "40 rows predicted" in printed


def test_a_folder_of_parquet_files_is_one_table(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    line().iloc[:20].to_parquet(folder / "b.parquet")
    line().iloc[20:].to_parquet(folder / "c.parquet")
    out = tmp_path / "out"
    printed = succeed("fit", folder, "--target", "y", "--out", out, "--inlier-fraction", 0.9)
    assert summary_of(printed)["rows"] == "40"
    line().rename(columns={"x": "z"}).to_parquet(folder / "d.parquet")
    assert "lacks column 'x'" in refused("fit", folder, "--target", "y", "--out", tmp_path / "other")
    line().astype({"x": str}).to_parquet(folder / "d.parquet")
    assert "one type in some files" in refused("fit", folder, "--target", "y", "--out", tmp_path / "other")
    # Integers, or nothing at all, in one of the files are no other type.
    line().astype({"x": int}).to_parquet(folder / "d.parquet")
    line().assign(x=None).to_parquet(folder / "e.parquet")
    printed = succeed("fit", folder, "--target", "y", "--out", tmp_path / "other", "--inlier-fraction", 0.9)
    assert summary_of(printed)["rows"] == "120"


def test_parquet_files_in_subfolders_are_not_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts" / "year=2020").mkdir(parents=True)
    line().to_parquet(tmp_path / "parts" / "year=2020" / "a.parquet")
    assert "is a folder without Parquet files; name 'parts/year=2020'" in refused(
        "fit", "parts", "--target", "y"
    )


def test_a_folder_of_csv_files_and_an_empty_one_are_no_folder_of_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables").mkdir()
    assert "is an empty folder; name a table" in refused("fit", "tables", "--target", "y")
    line().to_csv(tmp_path / "tables" / "b.csv.gz", index=False)
    message = refused("fit", "tables", "--target", "y")
    assert "is a folder without Parquet files; name 'tables/b.csv.gz'" in message


def test_a_table_without_a_header_is_said_to_have_none(tmp_path):
    (tmp_path / "a.csv").write_text("0,0,1\n1,2,4\n2,3,5\n")
    message = refused("fit", tmp_path / "a.csv", "--target", "y", "--out", tmp_path / "out")
    assert (
        "has no header: its first line holds numbers; put a line with the names of the columns above"
        in message
    )


def test_what_is_too_large_is_refused_before_it_is_read(tmp_path):
    line(1000).to_csv(tmp_path / "a.csv", index=False)
    out = ("--target", "y", "--out", tmp_path / "out")
    assert "the limit is 500 (--max-rows raises it)" in refused(
        "fit", tmp_path / "a.csv", *out, "--max-rows", 500
    )
    message = refused("fit", tmp_path / "a.csv", *out, "--max-gigabytes", 1e-5)
    assert "(--max-gigabytes raises it)" in message
    many = pa.table({"x": pa.nulls(30_000_000, pa.int8()), "y": pa.nulls(30_000_000, pa.int8())})
    pq.write_table(many, tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 200_000
    assert "has 30,000,000 rows or more" in refused("fit", tmp_path / "a.parquet", *out)
    with gzip.open(tmp_path / "bomb.csv.gz", "wb", 1) as file:
        file.write(b"x,y\n")
        for _ in range(100):
            file.write(b"1,2\n" * 250_000)
    assert (tmp_path / "bomb.csv.gz").stat().st_size < 2_000_000
    message = refused("fit", tmp_path / "bomb.csv.gz", *out, "--max-gigabytes", 0.05)
    assert "the limit is 0.05" in message


def test_limits_hold_for_other_encodings_too(tmp_path):
    (tmp_path / "a.csv").write_bytes(text().encode("utf-16") * 2)
    with pytest.raises(ValueError, match="limit"):
        read_columns(inspect_table(tmp_path / "a.csv"), ["name"], Limits(10, 1e-8))


WORDS = {
    "cp1251": ("город", "Москва", "Казань"),
    "koi8_r": ("город", "Москва", "Казань"),
    "cp932": ("都市", "東京", "名古屋"),
    "gb18030": ("城市", "北京", "广州"),
    "euc_kr": ("도시", "서울", "인천광역시"),
    "cp1253": ("πόλη", "Αθήνα", "Θεσσαλονίκη"),
    "mac_roman": ("ville", "Orléans", "Besançon"),
    "cp1252": ("ville", "Orléans", "20 °C – “Besançon”"),
}


@pytest.mark.parametrize("encoding", WORDS)
def test_encodings_are_found(encoding, tmp_path):
    name, *cells = WORDS[encoding]
    content = f"{name},y\n" + "".join(f"{cell},{k}\n" for k in range(20) for cell in cells)
    (tmp_path / "a.csv").write_bytes(content.encode(encoding))
    table = inspect_table(tmp_path / "a.csv")
    assert table.names == (name, "y")
    assert read_columns(table, [name])[name].to_pylist()[:2] == cells
    assert table.notes == (f"read as {encoding} (--encoding names another)",)


def test_short_lines_are_notes_below_a_table_and_errors_inside(tmp_path):
    content = line().to_csv(index=False)
    (tmp_path / "a.csv").write_text(content + "\nSource: my own\nin May\n")
    out = tmp_path / "out"
    printed = succeed("fit", tmp_path / "a.csv", "--target", "y", "--out", out, "--inlier-fraction", 0.9)
    assert "the last 2 lines are no row, and skipped" in printed
    assert summary_of(printed)["rows"] == "40"
    first, rest = content.split("\n", 1)
    (tmp_path / "b.csv").write_text(f"{first}\nSource: my own\n{rest}")
    message = refused("fit", tmp_path / "b.csv", "--target", "y", "--out", tmp_path / "other")
    assert "row 2 has 1 of 2 cells: 'Source: my own'; give each row" in message
    (tmp_path / "c.csv").write_text(content + "note\n" * 11)
    assert "Expected 2 columns, got 1" in refused(
        "fit", tmp_path / "c.csv", "--target", "y", "--out", tmp_path / "other"
    )


def test_a_sheet_of_notes_is_passed_over(tmp_path):
    with pd.ExcelWriter(tmp_path / "a.xlsx") as book:
        pd.DataFrame({"note": ["see the next sheet"]}).to_excel(book, sheet_name="Notes", index=False)
        line().to_excel(book, sheet_name="Data", index=False)
    table = inspect_table(tmp_path / "a.xlsx")
    assert table.notes == ("sheet 'Data' is read, of 2",)
    assert read_columns(table, ["y"]).num_rows == 40


def test_an_encoding_can_be_named(tmp_path):
    (tmp_path / "a.csv").write_bytes("имя,x,y\n".encode("cp1251") + b"1,2,3\n" * 20)
    assert inspect_table(tmp_path / "a.csv", "cp1251").names[0] == "имя"
    out = ("--target", "y", "--out", tmp_path / "out")
    assert "encoding 'nope' is unknown" in refused("fit", tmp_path / "a.csv", *out, "--encoding", "nope")
    assert "is not utf-8; name its encoding" in refused(
        "fit", tmp_path / "a.csv", *out, "--encoding", "utf-8"
    )


def test_a_leak_is_named(tmp_path):
    frame = line(60)
    frame["euros"], frame["noise"] = 0.9 * frame["y"] ** 3, [(7 * k) % 13 for k in range(60)]
    frame.to_csv(tmp_path / "a.csv", index=False)
    printed = succeed("fit", tmp_path / "a.csv", "--target", "y", "--out", tmp_path / "out")
    assert "'euros'  number: determines 'y'" in printed
    assert record_of(tmp_path / "out")["leaks"] == ["x", "euros"]
