"""Numbers, dates, durations and answers as people write them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from inlier.fit._columns import Column, infer_column, read_column
from inlier.fit._targets import in_one_spelling, infer_target, misspelled
from inlier.fit._written import century_of, split_date


def read(texts):
    return infer_column("a", pa.chunked_array([pa.array(texts, pa.string())]))


NUMBERS = {
    "plain": (["1", "-2.5", "1e3", "+4"], [1, -2.5, 1000, 4]),
    "thousands": (["1,234.50", "1,000,000", "-12"], [1234.5, 1e6, -12]),
    "thousands only": (["1,234", "12,500"], [1234, 12500]),
    "decimal comma": (["0,5", "1.234,75", "12"], [0.5, 1234.75, 12]),
    "points for thousands": (["1.234.567", "2.500"], [1234567, 2500]),
    "three decimals": (["1.234", "2.500"], [1.234, 2.5]),
    "Swiss": (["1'234.50", "12’000"], [1234.5, 12000]),
    "French": (["1 234,50 €", "12\u202f000 €", "1\u00a0000\u00a0000 €"], [1234.5, 12000, 1e6]),
    "Indian": (["12,34,567", "1,00,000"], [1234567, 100000]),
    "currency": (["$1,234.50", "-$5", "$ 7", "US$7"][:3], [1234.5, -5, 7]),
    "currency code": (["EUR 5", "EUR 12.50"], [5, 12.5]),
    "accounting": (["(1,234.50)", "12", "3-"], [-1234.5, 12, -3]),
    "real minus": (["−5", "3"], [-5, 3]),
    "per cent": (["12 %", "7.5%", "(3 %)"], [12, 7.5, -3]),
    "units": (["12.0 oz", "12.0 oz.", "12.0 OZ.", "16 ounce"], [12, 12, 12, 16]),
    "units converted": (["1 kg", "2 kg", "500 g", "1.5"], [1, 2, 0.5, 1.5]),
    "units of several words": (["1,200 sq. ft.", "850 Sq Ft", "900 sq ft"], [1200, 850, 900]),
    "degrees": (["12°C", "7 °C"], [12, 7]),
    "feet": (['5"', '6"'], [5, 6]),
    "multiples": (["1.5k", "950", "800", "2M"], [1500, 950, 800, 2e6]),
    "missing words": (["5", "unknown", "?", "-", "7 "], [5, np.nan, np.nan, np.nan, 7]),
    "about": (["~20", "≈ 3", "ca. 7", "5"], [20, 3, 7, 5]),
    "full width": (["１，２３４．５", "１２"], [1234.5, 12]),
    "Arabic": (["١٬٢٣٤٫٥", "١٢"], [1234.5, 12]),
    "Persian": (["۱٫۵٪", "۷٪"], [1.5, 7]),
    "one currency in two spellings": (["$5", "7 USD", "US$ 9"], [5, 7, 9]),
    "thousands of a currency": (["$1.5k", "$900", "$ 50", "$2M"], [1500, 900, 50, 2e6]),
    "leading zeros and points": (["0.5", ".5", "0"], [0.5, 0.5, 0]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    texts, expected = NUMBERS[name]
    reading = read(texts)
    assert reading.column.kind == "number"
    np.testing.assert_allclose(reading.values, expected, rtol=1e-12)
    assert not reading.suspects
    # A model is applied to new rows as it was fitted.
    again = read_column(reading.column, pa.chunked_array([pa.array(texts)]))
    np.testing.assert_array_equal(again.values, reading.values)


NOT_NUMBERS = {
    "codes": ["007", "012", "100"],
    "names": ["B12", "A4", "C9"],
    "versions": ["1.2.3", "1.2.4"],
    "house numbers": ["12a", "12b", "7", "9c"],
    "phones": ["555-1234", "555-9876"],
    "ranges": ["10-20", "20-30"],
    "sentences": ["2 rooms near the lake", "3 rooms, quiet", "4 rooms with a view"],
    "mixed units": ["5 kg", "3 m", "7 kg", "2 m"],
}


@pytest.mark.parametrize("name", NOT_NUMBERS)
def test_what_is_not_a_number_stays_text(name):
    assert read(NOT_NUMBERS[name]).column.kind == "text"


def test_cells_that_do_not_fit_are_named_and_missing():
    texts = [f"{k} kg" for k in range(60)] + ["large", "7 m", "9 kg (approx.)"]
    reading = read(texts)
    assert reading.column.unit == "kg"
    assert {cell.position: cell.reason for cell in reading.suspects} == {
        60: "not a number",
        61: "unit m, unlike the rest",
        62: "followed by 'approx.'",
    }
    assert np.isnan(reading.values[60:62]).all()
    assert reading.values[62] == 9


def test_a_stray_per_cent_sign_is_named_and_its_size_follows_from_the_rest():
    stray = read(["0.05", "0.06", "0.07"] * 20 + ["0.055%"])
    assert stray.values[-1] == 0.055
    assert stray.suspects[0].reason == "a per cent sign, unlike the rest"
    assert read(["0.05", "0.06", "0.07"] * 20 + ["5.5%"]).values[-1] == pytest.approx(0.055)


def test_limits_are_read_and_named():
    reading = read(["0.5", "0.7", "<0.1"] * 10)
    assert reading.values[:3].tolist() == [0.5, 0.7, 0.1]
    assert len(reading.suspects) == 10
    assert reading.suspects[0].reason == "a limit"


def test_words_that_begin_like_a_month_are_no_dates():
    assert read(["Marathon 2020", "Augsburg 2019", "Decathlon 1999"]).column.kind == "text"


def test_more_than_one_in_twenty_strays_is_no_column_of_numbers():
    assert read(["5"] * 94 + ["x"] * 6).column.kind == "text"
    assert read(["5"] * 96 + ["x"] * 4).column.kind == "number"


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ([3.0, 8.0, -999.0, -999.0, -999.0, 12.0], (-999.0,)),
        ([3.0, 8.0, 9999.0, 9999.0, 9999.0, 12.0], (9999.0,)),
        ([3.0, 8.0, -999.0, 12.0], ()),
        ([-1200.0, 500.0, -999.0, -999.0, -999.0], ()),
        ([99.0, 99.0, 99.0, 97.0, 12.0], ()),
    ],
)
def test_numbers_that_stand_for_missing(values, missing):
    reading = infer_column("a", pa.chunked_array([values]))
    assert reading.column.missing == missing
    assert np.isnan(reading.values).sum() == np.isin(values, missing).sum()
    assert bool(reading.notes) == bool(missing)


DATES = {
    "ISO": (["2020-01-31", "2020-02-01T10:30:00Z"], ["2020-01-31", "2020-02-01T10:30"]),
    "offset": (["2020-01-31T01:00:00+02:00"] * 2, ["2020-01-30T23:00"] * 2),
    "American": (["01/31/2020", "2/1/2020 6:30 PM"], ["2020-01-31", "2020-02-01T18:30"]),
    "British": (["31/01/2020", "01/02/2020"], ["2020-01-31", "2020-02-01"]),
    "German": (["31.01.2020", "1.2.2020 18:30"], ["2020-01-31", "2020-02-01T18:30"]),
    "names": (["31 Dec 2020", "Jan 5, 2021", "March 3rd, 2021"], ["2020-12-31", "2021-01-05", "2021-03-03"]),
    "mixed": (["2020-01-31", "31 Jan 2020", "31.01.2020"], ["2020-01-31"] * 3),
    "compact": (["20200131T103000", "20200201T000000"], ["2020-01-31T10:30", "2020-02-01"]),
    "short years": (["07/11/24", "12/31/98"], ["2024-07-11", "1998-12-31"]),
    "months": (["2020-01", "2021-12"], ["2020-01-01", "2021-12-01"]),
    "names of months": (
        ["Jan 2020", "September 2020", "Dezember 2021"],
        ["2020-01-01", "2020-09-01", "2021-12-01"],
    ),
    "numbers of eight digits": (["20200131", "20201201"], ["2020-01-31", "2020-12-01"]),
    "year first, short": (["98-01-31", "98-12-07"], ["1998-01-31", "1998-12-07"]),
    "year first, days tell": (
        ["19-01-31", "20-02-01", "19-03-28"],
        ["2019-01-31", "2020-02-01", "2019-03-28"],
    ),
    "first of the month": (["01-03-19", "01-04-19", "01-05-20"], ["2019-01-03", "2019-01-04", "2020-01-05"]),
    "month and short year": (["Mar-23", "Jan-20"], ["2023-03-01", "2020-01-01"]),
    "quarters": (["Q1 2023", "2020-Q3", "2021Q4"], ["2023-01-01", "2020-07-01", "2021-10-01"]),
    "French": (["5 mars 2023", "1er août 2022", "14 juillet 2021"][::2], ["2023-03-05", "2021-07-14"]),
    "Spanish": (["5 de enero de 2023", "3 de agosto de 2020"], ["2023-01-05", "2020-08-03"]),
    "web server": (["05/Mar/2023:10:30:00 +0000"] * 2, ["2023-03-05T10:30"] * 2),
    "weekday": (["Fri, 31 Jan 2020", "Sat, 1 Feb 2020"], ["2020-01-31", "2020-02-01"]),
}


@pytest.mark.parametrize("name", DATES)
def test_dates(name):
    texts, expected = DATES[name]
    reading = read(texts)
    assert reading.column.kind == "date"
    np.testing.assert_array_equal(reading.values, np.array(expected, dtype="datetime64[us]"))
    assert not reading.suspects


def test_integers_that_are_dates_are_dates_in_new_rows_too():
    values = pa.chunked_array([pa.array([20200131, 20201231, None, 20190228] * 10 + [0])])
    reading = infer_column("day", values)
    assert reading.column.kind == "date"
    assert reading.values[0] == np.datetime64("2020-01-31")
    assert [cell.value for cell in reading.suspects] == ["0"]
    again = read_column(reading.column, pa.chunked_array([[20210101]]))
    assert again.values[0] == np.datetime64("2021-01-01")
    assert infer_column("a", pa.chunked_array([[20201301, 20209999, 12345678]])).column.kind == "number"


def test_a_word_that_stands_for_missing_numbers_is_noted():
    numbers = [f"{k}.5" for k in range(40)]
    reading = read([*numbers, *["not measured"] * 10, *["unknown"] * 3])
    assert reading.column.kind == "number"
    assert reading.notes == ("'not measured' in 10 cells, 'unknown' in 3 cells taken as missing",)
    assert not reading.suspects
    # Where the column is one of numbers without that, each such cell is named.
    assert len(read([*numbers, *numbers, *["large"] * 3]).suspects) == 3
    assert read([*numbers, *["low"] * 10, *["high"] * 10]).column.kind == "text"
    assert read(["1", "2", "3"] * 10 + ["many"] * 9).column.kind == "text"


def test_odd_dates_are_named():
    texts = [f"{day}/01/2020" for day in range(13, 28)] * 4 + ["01/20/2020", "2020-02-31", "soon"]
    reading = read(texts)
    assert [cell.reason for cell in reading.suspects] == [
        "day and month in another order than in the rest", "not a date", "not a date",
    ]  # fmt: skip
    assert reading.values[60] == np.datetime64("2020-01-20")


@pytest.mark.parametrize(
    ("years", "first"),
    [
        (range(19, 25), 2019),
        (range(60, 73), 1960),
        ([*range(70, 100), *range(25)], 1970),
        (range(20, 99), 1920),
    ],
)
def test_the_century_is_the_one_in_which_dates_lie_together(years, first):
    dates = [split_date(f"1/1/{year:02}") for year in years]
    assert century_of(dates, latest=2036) == first
    assert min(date.value(True, first).astype("datetime64[Y]").astype(int) + 1970 for date in dates) == first


def test_durations_and_answers():
    assert read(["1:30:00", "0:45", "2:15"]).values.tolist() == [5400, 2700, 8100]
    assert read(["1:30 PM", "12:05 am", "11:00 p.m."]).values.tolist() == [48600, 300, 82800]
    assert read(["2h 30m", "45 min", "1 day"]).values.tolist() == [9000, 2700, 86400]
    answers = read(["Yes", "no", "YES", "No", None] * 10 + ["maybe"])
    assert answers.column.kind == "yes/no"
    assert answers.values[:4].tolist() == [1, 0, 1, 0]
    assert answers.suspects[0].reason == "neither yes nor no"
    assert read(["yes", "maybe", "no"] * 9).column.kind == "text"


def test_a_numeric_target_with_a_few_texts_is_regression_and_its_rows_are_named():
    cells = [f"{k},{k % 10}5 €" for k in range(1, 99)] + ["see note", "free"]
    target = infer_target("price", pa.chunked_array([cells]), "auto")
    assert target.task == "regression"
    assert target.values[0] == 1.15
    assert len(target.rows) == 98
    assert [(cell.position, cell.value) for cell in target.suspects] == [(98, "see note"), (99, "free")]


def test_a_target_in_several_currencies_is_refused_with_the_remedy():
    cells = [f"{'$€£'[k % 3]}{k}.50" for k in range(60)]
    with pytest.raises(
        ValueError, match=r"numbers in several units \('\$', '£', '€'\) that are not converted; write"
    ):
        infer_target("price", pa.chunked_array([cells]), "auto")


def spelled(labels):
    return in_one_spelling(np.array(labels, object), np.full(len(labels), np.nan))


def test_an_input_in_several_currencies_is_text_and_says_so():
    reading = read([f"{'$€'[k % 2]}{k}.50" for k in range(60)])
    assert reading.column.kind == "text"
    assert "numbers in several units ('$', '€') are read as text" in reading.notes[0]


def test_spellings_of_a_class_are_one_class_and_reported():
    labels = ["NY"] * 50 + ["ny"] * 3 + ["N.Y."] * 2 + ["LA"] * 40 + ["Boston"] * 60 + ["Bostn", "BOSTON"]
    merged, notes = spelled(labels)
    assert notes == (
        "one class in 2 spellings: 'Boston' (60), 'BOSTON' (1)",
        "one class in 3 spellings: 'NY' (50), 'ny' (3), 'N.Y.' (2); 'ny' is kept apart",
    )
    assert set(merged) == {"NY", "ny", "LA", "Boston", "Bostn"}
    assert misspelled(np.array(labels, object)) == {
        "BOSTON": "spelled like 'Boston', which is 60 times as frequent",
        "Bostn": "spelled like 'Boston', which is 60 times as frequent",
        "N.Y.": "spelled like 'NY', which is 25 times as frequent",
    }
    target = infer_target("city", pa.chunked_array([labels]), "auto")
    assert [cell.value for cell in target.suspects] == ["N.Y.", "N.Y.", "Bostn", "BOSTON"]
    assert target.given.tolist() == labels
    assert target.values[-1] == "Boston"


def test_answers_are_one_class_however_they_are_spelled():
    labels = ["Yes", "Yes", "y", "No", "No", "N"] * 20 + ["unknown"] * 9 + ["perhaps"]
    target = infer_target("left", pa.chunked_array([labels]), "auto")
    # What stands for a missing answer is no class; a word that is none is one of its own, and named.
    assert set(target.values) == {"Yes", "No", "perhaps"}
    assert len(target.rows) == 121
    assert [cell.value for cell in target.suspects] == ["perhaps"]
    with pytest.raises(ValueError, match="is 'Yes' in every row"):
        infer_target("left", pa.chunked_array([["Yes", "yes"] * 20]), "auto")


@pytest.mark.parametrize(
    "classes", [("C", "C++", "C#"), ("A", "A-", "A+"), ("v1.5", "v15"), ("<5", ">5"), ("-1", "1")]
)
def test_marks_that_tell_classes_apart_are_no_spellings(classes):
    labels = np.array([name for k, name in enumerate(classes) for _ in range(100 if k == 0 else 2)], object)
    assert spelled(labels)[0].tolist() == labels.tolist()
    assert not misspelled(labels)


def test_dates_in_the_type_of_the_file_for_a_column_of_numbers_are_named():
    reading = read_column(Column("a", "number"), pa.chunked_array([pa.array([1, 2], pa.date32())]))
    assert np.isnan(reading.values).all()
    assert reading.suspects[0].reason == "a date, not a number"
