"""One run as a row of RUNS.csv: an attribute per column, and which numbers can be true of any run at all.

Degrees, shapes and sizes are counts; everything that is measured is an amount. The limits only tell nonsense from
numbers: they lie well beyond every device, model and cluster there is, and a value outside them is taken as blank.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal

Kind = Literal["text", "count", "amount", "flag"]


@dataclass(frozen=True, kw_only=True)
class Column:
    """What a column holds.

    Attributes:
        least, most: the range that a number can lie in.
        above_least: whether ``least`` itself is outside of it.
    """

    kind: Kind
    least: float = 0.0
    most: float = 0.0
    above_least: bool = False

    @property
    def expected(self) -> str:
        """The numbers that can be true, in words."""
        low = f"above {self.least:g}" if self.above_least else f"at least {self.least:g}"
        return f"{low} and at most {self.most:,.0f}"

    def allows(self, value: float) -> bool:
        """Whether the number can be true."""
        return value <= self.most and (value > self.least if self.above_least else value >= self.least)


def _column(default: Any, column: Column) -> Any:
    return field(default=default, metadata={"column": column})


def _text() -> Any:
    return _column("", Column(kind="text"))


def _count(most: int, *, least: int = 1) -> Any:
    return _column(None, Column(kind="count", least=least, most=most))


def _amount(most: float, *, least: float = 0.0, zero: bool = False) -> Any:
    return _column(None, Column(kind="amount", least=least, most=most, above_least=not zero))


def _flag() -> Any:
    return _column(None, Column(kind="flag"))


_MOST_DEVICES = 10_000_000
_MOST_SEQUENCES = 100_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run. A blank cell is ``""`` in a column of text and None in any other.

    Attributes:
        group: ``study/model/cluster``; runs of a group were made by the same people in the same place.
        n_params_b: billions of parameters.
        intra_node_bw_gbs: GB/s, one direction, of one device.
        inter_node_bw_gbps_per_device: Gbit/s, one direction, of one device.
        measured_peak_mem_gb: GiB, of what ``mem_kind`` says.
        line: of the file, the first being 1, on which the row begins; 0 for a run that comes from no file.
        problems: what is wrong with the row, one line each.
    """

    id: str = field(metadata={"column": Column(kind="text")})
    group: str = _text()
    source: str = _text()
    framework: str = _text()
    task: str = _text()
    tier: str = _text()
    model_name: str = _text()
    arch_notes: str = _text()
    n_params_b: float | None = _amount(1e6)
    n_active_params_b: float | None = _amount(1e6)
    layers: int | None = _count(5_000)
    hidden: int | None = _count(1_000_000)
    ffn_hidden: int | None = _count(10_000_000)
    heads: int | None = _count(100_000)
    kv_heads: int | None = _count(100_000)
    head_dim: int | None = _count(100_000)
    vocab: int | None = _count(100_000_000)
    seq_len: int | None = _count(100_000_000)
    experts: int | None = _count(100_000, least=0)
    top_k: int | None = _count(100_000, least=0)
    n_shared_experts: int | None = _count(10_000, least=0)
    moe_ffn_hidden: int | None = _count(10_000_000, least=0)
    moe_dense_layers: str = _text()
    mla: bool | None = _flag()
    swiglu: bool | None = _flag()
    tied_embeddings: bool | None = _flag()
    accelerator: str = _text()
    devices: int | None = _count(_MOST_DEVICES)
    devices_per_node: int | None = _count(_MOST_DEVICES)
    intra_node_bw_gbs: float | None = _amount(1e6, least=0.001)
    inter_node_bw_gbps_per_device: float | None = _amount(1e6, least=0.01)  # 1.25 MB/s
    precision: str = _text()
    tp: int | None = _count(_MOST_DEVICES)
    sp: bool | None = _flag()
    pp: int | None = _count(_MOST_DEVICES)
    vpp: int | None = _count(5_000)
    cp: int | None = _count(_MOST_DEVICES)
    ep: int | None = _count(_MOST_DEVICES)
    etp: int | None = _count(_MOST_DEVICES)
    dp: int | None = _count(_MOST_DEVICES)
    zero_stage: str = _text()
    micro_batch: int | None = _count(_MOST_SEQUENCES)
    global_batch: int | None = _count(_MOST_SEQUENCES)
    recompute: str = _text()
    dist_opt: bool | None = _flag()
    offload: str = _text()
    compile: bool | None = _flag()
    overlap_notes: str = _text()
    measured_step_time_s: float | None = _amount(1e7)
    measured_tokens_per_s_per_device: float | None = _amount(1e9)
    measured_tflops_per_device: float | None = _amount(1e6, zero=True)
    measured_mfu: float | None = _amount(100.0, zero=True)
    flops_definition: str = _text()
    measured_peak_mem_gb: float | None = _amount(2048.0)
    mem_kind: str = _text()
    outcome: str = _text()
    notes: str = _text()
    line: int = 0
    problems: tuple[str, ...] = ()


@cache
def columns() -> dict[str, Column]:
    """Every column by its name, in the order of the file."""
    return {entry.name: entry.metadata["column"] for entry in fields(Run) if "column" in entry.metadata}
