"""Files of runs as people have them: every readable row is read, and what is wrong is said with its row and column."""

from __future__ import annotations

import gzip
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from costmodel.errors import InvalidInput, UnreadableFile
from costmodel.runs import reader
from costmodel.runs.columns import Run, columns
from costmodel.runs.reader import problems_of, read_runs


def read(tmp_path: Path, content: str | bytes, name: str = "runs.csv") -> tuple[Run, ...]:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_runs(path)


def one(tmp_path: Path, content: str) -> Run:
    (run,) = read(tmp_path, content)
    return run


def test_a_row_becomes_typed_values(tmp_path: Path) -> None:
    run = one(
        tmp_path,
        "id,group,devices,tp,sp,micro_batch,recompute,n_params_b,measured_step_time_s,compile\n"
        "a,study/model/c,64,8,1,2,selective:mlp,8.03,1.5e1,0\n",
    )
    assert (run.id, run.group, run.recompute) == ("a", "study/model/c", "selective:mlp")
    assert (run.devices, run.tp, run.micro_batch) == (64, 8, 2)
    assert (run.sp, run.compile) == (True, False)
    assert (run.n_params_b, run.measured_step_time_s) == (8.03, 15.0)
    assert (run.line, run.problems) == (2, ())


def test_an_id_is_enough_and_everything_else_is_blank(tmp_path: Path) -> None:
    run = one(tmp_path, "id\nonly\n")
    for name, column in columns().items():
        if name != "id":
            assert getattr(run, name) == ("" if column.kind == "text" else None)
    assert run.problems == ()


def test_every_attribute_but_the_books_is_a_column() -> None:
    assert {field.name for field in fields(Run)} - columns().keys() == {"line", "problems"}


@pytest.mark.parametrize(
    ("content", "ids", "tps"),
    [
        ("\ufeffid,tp\na,8\n", ["a"], [8]),
        ("id,tp\r\na,8\r\nb,4\r\n", ["a", "b"], [8, 4]),
        ("id;tp\na;8\n", ["a"], [8]),
        ("id\ttp\na\t8\n", ["a"], [8]),
        ("ID, TP \na, 8 \n", ["a"], [8]),
        ("tp,colour,id\n8,green,a\n", ["a"], [8]),
        ('"id","tp"\n"a","8"\n', ["a"], [8]),
        ("id,tp\n\na,8\n\n,\nb,4", ["a", "b"], [8, 4]),
        ("id,tp\n", [], []),
    ],
    ids=["bom", "crlf", "semicolon", "tab", "upper case", "unknown column", "quoted", "blank lines", "no rows"],
)
def test_dialects(tmp_path: Path, content: str, ids: list[str], tps: list[int]) -> None:
    runs = read(tmp_path, content)
    assert [run.id for run in runs] == ids
    assert [run.tp for run in runs] == tps
    assert problems_of(runs) == []


def test_quoted_separators_newlines_and_quotes_are_text(tmp_path: Path) -> None:
    runs = read(tmp_path, 'id,notes,tp\na,"two, with\na ""newline""",8\nb,,4\n')
    assert runs[0].notes == 'two, with\na "newline"'
    assert [(run.line, run.tp) for run in runs] == [(2, 8), (4, 4)]


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("tp", "8.0", 8),
        ("seq_len", "1e3", 1000),
        ("vocab", '"128,256"', 128256),
        ("vocab", "128 256", 128256),
        ("vocab", "128_256", 128256),
        ("measured_tokens_per_s_per_device", '"12,345.5"', 12345.5),
        ("measured_step_time_s", '"1,5"', 1.5),
        ("measured_mfu", "0", 0.0),
        ("tp", "NaN", None),
        ("tp", "n/a", None),
        ("tp", "-", None),
        ("tp", "None", None),
        ("sp", "TRUE", True),
        ("sp", "no", False),
        ("sp", "1.0", True),
        ("notes", "n/a", ""),
        ("recompute", "none", "none"),
        ("experts", "0", 0),
    ],
)
def test_ways_to_write_a_value(tmp_path: Path, column: str, text: str, value: Any) -> None:
    run = one(tmp_path, f"id,{column}\na,{text}\n")
    assert getattr(run, column) == value
    assert run.problems == ()


def test_where_semicolons_separate_a_comma_is_a_decimal_point(tmp_path: Path) -> None:
    run = one(tmp_path, "id;measured_step_time_s;vocab\na;1,024;128,256\n")
    assert run.measured_step_time_s == pytest.approx(1.024)
    assert run.vocab == 128256


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("tp", "eight"),
        ("tp", "0"),
        ("tp", "-8"),
        ("tp", "2.5"),
        ("tp", "8 of them"),
        ("layers", "1e9"),
        ("layers", "9" * 400),
        ("devices", "1e400"),
        ("hidden", "inf"),
        ("sp", "perhaps"),
        ("measured_step_time_s", "0"),
        ("measured_step_time_s", "-1.5"),
        ("measured_peak_mem_gb", "80000"),
        ("n_params_b", "8B"),
    ],
)
def test_a_value_that_cannot_be_is_blank_and_reported(tmp_path: Path, column: str, text: str) -> None:
    (first, second) = read(tmp_path, f"id,{column},notes\na,,\nb,{text},kept\n")
    assert first.problems == ()
    assert getattr(second, column) is None
    assert second.notes == "kept"
    (problem,) = second.problems
    assert problem.startswith(f"row 3, column {column}: '{text[:20]}")
    assert problem.endswith("taken as blank")
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("row", "column", "said"),
    [
        ({"tp": 8, "pp": 2, "cp": 1, "dp": 4, "devices": 32}, "devices", "tp 8 x pp 2 x cp 1 x dp 4 is not 32"),
        ({"tp": 3, "devices": 32}, "devices", "tp 3 x pp 1 x cp 1 does not divide 32"),
        ({"pp": 4, "ep": 16, "devices": 32}, "ep", "pp 4 x ep x etp 16 is more than the 32 devices"),
        ({"global_batch": 100, "micro_batch": 8, "dp": 4}, "global_batch", "100 is not a multiple"),
        ({"top_k": 8, "experts": 4}, "top_k", "8 are more than the 4 experts"),
        ({"heads": 32, "kv_heads": 64}, "kv_heads", "64 are more than the 32 heads"),
        ({"heads": 32, "kv_heads": 5}, "kv_heads", "5 do not divide the 32 heads"),
        ({"n_params_b": 8, "n_active_params_b": 80}, "n_active_params_b", "80 are more than all 8"),
        ({"outcome": "oom", "measured_step_time_s": 3}, "outcome", "a step time was measured"),
        (
            {
                "measured_step_time_s": 3,
                "measured_tokens_per_s_per_device": 1024,
                "devices": 8,
                "global_batch": 16,
                "seq_len": 4096,
            },
            "measured_step_time_s",
            "make it 8 s",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_contradictions_are_reported_and_kept(tmp_path: Path, row: dict[str, Any], column: str, said: str) -> None:
    run = one(tmp_path, f"id,{','.join(row)}\na,{','.join(str(value) for value in row.values())}\n")
    assert {name: getattr(run, name) for name in row} == row
    (problem,) = run.problems
    assert problem.startswith(f"row 2, column {column}: ")
    assert said in problem


def test_axes_that_are_not_stated_contradict_nothing(tmp_path: Path) -> None:
    assert one(tmp_path, "id,tp,dp,devices\na,8,4,32\n").problems == ()
    assert one(tmp_path, "id,tp,devices\na,8,32\n").problems == ()


def test_ids_that_are_missing_or_twice_are_reported_and_kept(tmp_path: Path) -> None:
    runs = read(tmp_path, "id,tp\na,8\n,4\na,2\n")
    assert [(run.id, run.tp) for run in runs] == [("a", 8), ("", 4), ("a", 2)]
    assert problems_of(runs) == [
        "row 3, column id: it is blank; every run needs one",
        "row 4, column id: 'a' is the id of row 2 too",
    ]


def test_a_file_cut_in_the_middle_keeps_the_rows_before(tmp_path: Path) -> None:
    runs = read(tmp_path, "id,tp,devices,notes\na,8,32,x\nb,4,12")
    assert [(run.id, run.tp, run.devices) for run in runs] == [("a", 8, 32), ("b", 4, None)]
    (problem,) = problems_of(runs)
    assert problem.startswith("row 3: it has 3 cells for 4 columns; the file seems to be cut here")


def test_short_and_long_rows_are_reported(tmp_path: Path) -> None:
    runs = read(tmp_path, "id,tp,notes\na,8\nb,4,x,y\n")
    assert [(run.id, run.tp) for run in runs] == [("a", 8), ("b", 4)]
    assert [problem.split(":")[0] for problem in problems_of(runs)] == ["row 2", "row 3"]


@pytest.mark.parametrize("after", ["", 'c,2,"fine"\n', "c,2,plain\n"], ids=["at the end", "quotes after", "no quotes"])
def test_a_quote_that_is_never_closed_costs_no_other_row(tmp_path: Path, after: str) -> None:
    runs = read(tmp_path, f'id,tp,notes\na,8,"first"\nb,4,"cut off\n{after}')
    assert [(run.id, run.tp) for run in runs][:2] == [("a", 8), ("b", 4)]
    assert [run.id for run in runs][2:] == (["c"] if after else [])
    (problem,) = problems_of(runs)
    assert problem.startswith("row 3: a quote is opened and not closed")


def test_a_cell_beyond_all_measure_costs_its_row_only(tmp_path: Path) -> None:
    runs = read(tmp_path, f"id,notes\na,x\nb,{'y' * 200_000}\nc,z\n")
    assert [run.id for run in runs] == ["a", "", "c"]
    assert problems_of(runs)[0].startswith("row 3: a cell is longer than")


def test_gzip_is_read_like_plain_text(tmp_path: Path) -> None:
    (run,) = read(tmp_path, gzip.compress(b"id,tp\na,8\n"), "runs.csv.gz")
    assert run.tp == 8


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (b"", UnreadableFile, "empty"),
        (b"\n\n", UnreadableFile, "empty"),
        (b"name,tp\na,8\n", InvalidInput, "one of them is id"),
        (b"run-1,8,4\nrun-2,8,4\n", InvalidInput, "one of them is id"),
        (b"id,tp,TP\na,8,4\n", InvalidInput, "column tp is there twice"),
        (b"id,notes\na,caf\xe9\n", UnreadableFile, "UTF-8"),
        ("id,tp\na,8\n".encode("utf-16"), UnreadableFile, "UTF-8"),
        (b"\x7fELF\0\0\0", UnreadableFile, "UTF-8"),
        (gzip.compress(b"id,tp\na,8\n")[:-6], UnreadableFile, "can't be read"),
        (b"\x1f\x8bnot gzip at all", UnreadableFile, "can't be read"),
    ],
    ids=["empty", "only newlines", "no id", "no header", "twice", "latin-1", "utf-16", "binary", "cut gzip", "no gzip"],
)
def test_what_is_no_list_of_runs_is_an_error_of_one_line(
    tmp_path: Path, content: bytes, error: type[InvalidInput], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith("runs: ")
    assert "\n" not in str(caught.value)


def test_an_absent_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="there is no such file"):
        read_runs(tmp_path / "absent.csv")
    with pytest.raises(UnreadableFile, match="can't be read"):
        read_runs(tmp_path)
    with pytest.raises(UnreadableFile, match="history: "):
        read_runs("a\0b", field="history")


def test_sizes_are_bounded_packed_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_BYTES", 2**20)
    rows = b"id,tp\n" + b"a,8\n" * 2**18
    for content in (rows, gzip.compress(rows)):
        with pytest.raises(UnreadableFile, match="larger than 1 MiB"):
            read(tmp_path, content)
    monkeypatch.setattr(reader, "MAX_ROWS", 3)
    assert len(read(tmp_path, "id\na\nb\nc\n")) == 3
    with pytest.raises(UnreadableFile, match="more than 3 rows"):
        read(tmp_path, "id\na\nb\nc\nd\n")
