"""Tables of GEMMs and attention cores: what is read, what is left out with a reason, and what can't be true."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.calibration.calibration import load_calibration
from costmodel.calibration.microbenchmarks.devices import Devices
from costmodel.calibration.microbenchmarks.kernel_table import read_kernel_table
from costmodel.calibration.microbenchmarks.kernels import kernel_evidence
from costmodel.errors import InvalidInput
from tests.costmodel.microbenchmarks.logs import written

PUBLISHED = Path(__file__).parent / "h100_gemms.csv"
ATTENTION = Path(__file__).parent / "h200_attention.csv"
GEMM = "gpu,precision,m,n,k,batch,tflops"
CORE = "gpu,precision,pass,batch,seqlen,heads,head_dim_qk,causal,time_ms,tflops"


def test_published_gemms_are_read_by_the_names_of_their_columns() -> None:
    table = read_kernel_table(str(PUBLISHED))
    assert (len(table.gemms), len(table.attention), table.passed_over) == (36, 0, ())
    first = table.gemms[0]
    assert (first.m, first.n, first.k, first.flops_per_s) == (128, 3072, 8192, 247.8e12)
    assert (first.gpu, first.precision, first.where) == ("H100", "fp16", f"{PUBLISHED}:2")


def test_semicolons_and_tabs_separate_cells_too(tmp_path: Path) -> None:
    text = f"{GEMM}\nH100,bf16,4096,4096,4096,,600\n"
    for separator in ";\t":
        (row,) = read_kernel_table(written(tmp_path, text.replace(",", separator), "gemm.csv")).gemms
        assert row.flops_per_s == 600e12


def test_products_of_several_at_once_are_left_out(tmp_path: Path) -> None:
    text = f"{GEMM}\nH100,bf16,4096,4096,4096,1,600\nH100,bf16,4096,4096,4096,40,500\n"
    path = written(tmp_path, text, "gemm.csv")
    table = read_kernel_table(path)
    assert len(table.gemms) == 1
    assert table.passed_over == (f"{path}: 1 rows are of several products at once and are left out, row 3 first",)


def test_attention_counts_under_a_causal_mask_in_16_bits() -> None:
    """Four of the published rows have a window of 1,024 tokens: their FLOPs aren't those of the whole mask."""
    table = read_kernel_table(str(ATTENTION))
    assert len(table.attention) == 10
    assert "without a causal mask" in table.passed_over[0]
    (evidence,), notes = kernel_evidence([str(ATTENTION)], Devices(), load_calibration())
    assert len(evidence) == 5
    assert any("attention rows are left out" in note for note in notes)


def test_attention_without_a_time_is_left_out(tmp_path: Path) -> None:
    text = f"{CORE}\nH100,bf16,fwd,1,8192,32,128,true,,500\nH100,bf16,bwd,1,8192,32,128,true,2.5,\n"
    table = read_kernel_table(written(tmp_path, text, "core.csv"))
    (row,) = table.attention
    assert (row.backward, row.tokens, row.v_head_dim, row.seconds, row.flops_per_s) == (True, 8192, 128, 2.5e-3, None)
    assert "no time_ms" in table.passed_over[0]


ROW = "H100,bf16,4096,4096,4096,1"
BROKEN = {
    "empty": ("", "it is empty"),
    "no table": ("hello\n", r"m, n, k, tflops, precision is missing"),
    "no rows": (f"{GEMM}\n", "no rows below its header"),
    "cut": (f"{GEMM}\n{ROW},600\nH100,bf16,40", r"gemm\.csv:3.*3 of 7 cells"),
    "negative": (f"{GEMM}\n{ROW},-600\n", r"gemm\.csv:2.*tflops '-600' can't be"),
    "zero": (f"{GEMM}\nH100,bf16,0,4096,4096,1,600\n", r"gemm\.csv:2.*m '0' can't be"),
    "no number": (f"{GEMM}\n{ROW},fast\n", r"gemm\.csv:2.*tflops 'fast' is not a number"),
    "nan": (f"{GEMM}\n{ROW},nan\n", r"gemm\.csv:2.*tflops 'nan' can't be"),
    "quote": (f'{GEMM}\nH100,"bf16,4096,4096,4096,1,600\n', r"gemm\.csv:2.*quote"),
    "unknown device": (f"{GEMM}\nfoo,bf16,4096,4096,4096,1,600\n", r"gemm\.csv:2.*'foo'.*--accelerator"),
    "no device": (f"{GEMM}\n,bf16,4096,4096,4096,1,600\n", r"gemm\.csv:2.*names no device.*--accelerator"),
    "unknown precision": (f"{GEMM}\nH100,seven,4096,4096,4096,1,600\n", r"gemm\.csv:2.*precision 'seven'"),
    "lacking precision": (f"{GEMM}\nA100-80GB,fp8,4096,4096,4096,1,600\n", r"gemm\.csv:2.*has no fp8"),
    "above the peak": (f"{GEMM}\n{ROW},1979\n", r"gemm\.csv:2.*1979 TFLOP/s can't be.*989 in bf16"),
    "all left out": (f"{CORE}\nH100,bf16,fwd,1,8192,32,128,false,2.5,\n", "without a causal mask"),
    "too quick a core": (f"{CORE}\nH100,bf16,fwd,1,8192,32,128,true,0.1,\n", r"gemm\.csv:2.*TFLOP/s can't be"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_can_not_be_is_an_error_that_names_the_file_and_the_line(tmp_path: Path, case: str) -> None:
    text, expected = BROKEN[case]
    with pytest.raises(InvalidInput, match=expected):
        kernel_evidence([written(tmp_path, text, "gemm.csv")], Devices(), load_calibration())


def test_the_user_may_say_what_a_table_does_not(tmp_path: Path) -> None:
    path = written(tmp_path, "precision,m,n,k,tflops\nbf16,4096,4096,4096,600\n", "gemm.csv")
    (evidence,), _ = kernel_evidence([path], Devices(stated="h100-sxm5-80gb"), load_calibration())
    assert evidence.places[0].cluster.accelerator.name == "h100-sxm5-80gb"
