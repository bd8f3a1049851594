"""Reads tables of single kernels: GEMMs by m, n and k, and attention cores by sequence and heads.

Columns are found by name, and others are ignored. A row that says something impossible is an error, since a table that
a program wrote is wrong throughout where it is wrong once; a row of a kind that no plan is priced by is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from costmodel.catalog.documents import read_text
from costmodel.catalog.folders import expanded
from costmodel.errors import InvalidInput
from costmodel.runs.delimited import SEPARATORS, Record, records

TERA = 1e12

_GEMM = ("m", "n", "k", "tflops")
_ATTENTION = ("pass", "batch", "seqlen", "heads", "head_dim_qk", "causal", "time_ms")
_PASSES = {"fwd": "forward", "forward": "forward", "bwd": "backward", "backward": "backward"}
_TRUE, _FALSE = frozenset({"1", "true", "yes", "causal"}), frozenset({"0", "false", "no", "full"})


@dataclass(frozen=True, kw_only=True)
class GemmRow:
    """``[m, k] @ [k, n]`` at so many FLOP/s."""

    where: str
    gpu: str
    precision: str
    m: float
    n: float
    k: float
    flops_per_s: float


@dataclass(frozen=True, kw_only=True)
class AttentionRow:
    """The fused core under a causal mask.

    Attributes:
        tokens: of all sequences together.
        flops_per_s: as the file counts FLOPs; None where it doesn't.
    """

    where: str
    gpu: str
    precision: str
    backward: bool
    tokens: float
    seq_len: float
    heads: float
    qk_head_dim: float
    v_head_dim: float
    seconds: float
    flops_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class KernelTable:
    """What a file has; ``passed_over`` says which rows are of no use, and why."""

    gemms: tuple[GemmRow, ...] = ()
    attention: tuple[AttentionRow, ...] = ()
    passed_over: tuple[str, ...] = ()


def read_kernel_table(path: str, field: str = "gemm") -> KernelTable:
    """The rows of a CSV file with the columns ``m, n, k, tflops`` or ``pass, batch, seqlen, heads, head_dim_qk, causal,
    time_ms``, and with ``precision`` and ``gpu``.

    Raises:
        UnreadableFile: the file is absent, larger than 16 MiB, or no text.
        InvalidInput: columns are missing, a row is cut or says what can't be, or no row can be used; with its line.
    """
    text = read_text(expanded(path, field), field)
    header, separator = _header(text, path, field)
    names = [cell.strip().lower() for cell in header.cells]
    wanted = _ATTENTION if "seqlen" in names else _GEMM
    missing = [name for name in (*wanted, "precision") if name not in names]
    if missing:
        expected = f"the first row has to name the columns {', '.join((*wanted, 'precision', 'gpu'))}"
        raise InvalidInput(field, path, f"{expected}; {', '.join(missing)} is missing")
    gemms: list[GemmRow] = []
    attention: list[AttentionRow] = []
    passed_over: dict[str, list[int]] = {}
    for record in records(text, separator):
        if record.line <= header.line or not any(record.cells):
            continue
        row = _Row(path=path, field=field, record=record, names=names)
        found = row.attention() if wanted is _ATTENTION else row.gemm()
        if isinstance(found, str):
            passed_over.setdefault(found, []).append(record.line)
        elif isinstance(found, GemmRow):
            gemms.append(found)
        else:
            attention.append(found)
    notes = tuple(
        f"{path}: {len(lines)} rows {why} and are left out, row {lines[0]} first" for why, lines in passed_over.items()
    )
    if not gemms and not attention:
        raise InvalidInput(field, path, "; ".join(notes) or "it has no rows below its header")
    return KernelTable(gemms=tuple(gemms), attention=tuple(attention), passed_over=notes)


def _header(text: str, path: str, field: str) -> tuple[Record, str]:
    """The first row, and the separator that finds most columns in it."""
    found = [(next(iter(records(text, separator)), None), separator) for separator in SEPARATORS]
    rows = [(record, separator) for record, separator in found if record is not None]
    if not rows:
        raise InvalidInput(field, path, "it is empty; a row of column names is expected first")
    return max(rows, key=lambda entry: len(entry[0].cells))


@dataclass(frozen=True, kw_only=True)
class _Row:
    path: str
    field: str
    record: Record
    names: list[str]

    @property
    def where(self) -> str:
        return f"{self.path}:{self.record.line}"

    def _wrong(self, expected: str) -> InvalidInput:
        return InvalidInput(self.field, self.where, expected)

    @property
    def cells(self) -> Mapping[str, str]:
        if self.record.problem or len(self.record.cells) < len(self.names):
            expected = (
                self.record.problem or f"the row has {len(self.record.cells)} of {len(self.names)} cells: it is cut"
            )
            raise self._wrong(expected)
        return {name: cell.strip() for name, cell in zip(self.names, self.record.cells, strict=False)}

    def _above_zero(self, name: str) -> float:
        text = self.cells[name]
        try:
            value = float(text)
        except ValueError:
            raise self._wrong(f"{name} {text!r} is not a number") from None
        if not (isfinite(value) and value > 0):
            raise self._wrong(f"{name} {text!r} can't be: it has to be above 0")
        return value

    def gemm(self) -> GemmRow | str:
        cells = self.cells
        if cells.get("batch", "1") not in ("", "1"):
            return "are of several products at once"
        return GemmRow(
            where=self.where,
            gpu=cells.get("gpu", ""),
            precision=cells["precision"],
            m=self._above_zero("m"),
            n=self._above_zero("n"),
            k=self._above_zero("k"),
            flops_per_s=self._above_zero("tflops") * TERA,
        )

    def attention(self) -> AttentionRow | str:
        cells = self.cells
        causal, one_pass = cells["causal"].lower(), _PASSES.get(cells["pass"].lower())
        if causal in _FALSE:
            return "are without a causal mask"
        if causal not in _TRUE:
            return "don't say whether the mask is causal"
        if one_pass is None:
            return "are of no single pass (fwd, bwd)"
        if not cells["time_ms"]:
            return "have no time_ms, and FLOPs of attention are counted in several ways"
        seq_len, qk = self._above_zero("seqlen"), self._above_zero("head_dim_qk")
        return AttentionRow(
            where=self.where,
            gpu=cells.get("gpu", ""),
            precision=cells["precision"],
            backward=one_pass == "backward",
            tokens=self._above_zero("batch") * seq_len,
            seq_len=seq_len,
            heads=self._above_zero("heads"),
            qk_head_dim=qk,
            v_head_dim=self._above_zero("head_dim_v") if cells.get("head_dim_v") else qk,
            seconds=self._above_zero("time_ms") * 1e-3,
            flops_per_s=self._above_zero("tflops") * TERA if cells.get("tflops") else None,
        )
