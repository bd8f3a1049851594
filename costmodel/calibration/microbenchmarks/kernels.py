"""Single GEMMs and attention cores against the formulas that plans are priced by (``costmodel.kernels``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isclose

import numpy as np

from costmodel.arrays import Num, num
from costmodel.calibration.calibration import Calibration
from costmodel.calibration.microbenchmarks.devices import Devices
from costmodel.calibration.microbenchmarks.evidence import Evidence, Place, facts_of
from costmodel.calibration.microbenchmarks.kernel_table import TERA, AttentionRow, GemmRow, read_kernel_table
from costmodel.calibration.microbenchmarks.settings import microbenchmark_settings
from costmodel.calibration.parameters import Parameters
from costmodel.catalog.framework_catalog import load_precision
from costmodel.errors import InvalidInput
from costmodel.kernels import FLASH_BACKWARD_OVER_FORWARD, attention_core_s, gemm_s
from costmodel.model_facts import UNBOUNDED
from costmodel.runs.words import stated_precision
from costmodel.scenario import lacking_format

_OF_GEMMS = ("gemm_efficiency", "gemm_k_half", "gemm_mn_half", "gemm_launch_s")
_OF_ATTENTION = ("attention_efficiency", "gemm_launch_s")
_COUNTS = (1.0, 2.0)  # FLOPs that a file counts, over those under the mask: with or without the masked half


def kernel_evidence(
    paths: Sequence[str], devices: Devices, calibration: Calibration, field: str = "gemm"
) -> tuple[list[Evidence], list[str]]:
    """(what tables of kernels say, which rows were passed over and why).

    Raises:
        InvalidInput: a file is unusable, or names a device or a precision that isn't known, or has no row of use.
    """
    gemms: list[tuple[GemmRow, Place]] = []
    attention: list[tuple[AttentionRow, Place]] = []
    notes: list[str] = []
    for path in paths:
        table = read_kernel_table(path, field)
        notes += table.passed_over
        gemms += [(row, _place(row, devices, field)) for row in table.gemms]
        fitting = [(row, _place(row, devices, field)) for row in table.attention if _priced(row)]
        left = len(table.attention) - len(fitting)
        if left:
            notes.append(
                f"{path}: {left} attention rows are left out: in 8 bits, or their time and TFLOP/s are of another mask"
            )
        if not table.gemms and not fitting:
            raise InvalidInput(field, path, "no row of it can be used: " + "; ".join(notes))
        attention += fitting
    found = [_gemms(gemms, calibration)] if gemms else []
    found += [_attention(attention, calibration)] if attention else []
    return found, notes


def _place(row: GemmRow | AttentionRow, devices: Devices, field: str) -> Place:
    accelerator = devices.named(row.gpu, row.where, field)
    name = stated_precision(row.precision)
    if not name:
        raise InvalidInput(field, row.where, f"precision {row.precision!r} is not known; bf16, fp16 or fp8 say")
    recipe = load_precision(name)
    lacking = lacking_format(recipe, accelerator)
    if lacking is not None:
        raise InvalidInput(field, row.where, f"{accelerator.name} has no {name}: it has {accelerator.formats}")
    format_ = recipe.attention_compute if isinstance(row, AttentionRow) else recipe.compute
    peak, rate = accelerator.peak(format_), _flops_per_s(row)
    if rate > microbenchmark_settings().kernels.above_peak * peak:
        expected = f"{rate / TERA:.4g} TFLOP/s can't be: {accelerator.name} has {peak / TERA:.4g} in {format_}"
        raise InvalidInput(field, row.where, expected)
    return Place(cluster=devices.place_of(accelerator), precision=recipe)


def _flops_per_s(row: GemmRow | AttentionRow) -> float:
    return row.flops_per_s if isinstance(row, GemmRow) else _masked_flops(row) / row.seconds


def _masked_flops(row: AttentionRow) -> float:
    """FLOPs under the causal mask, of the pass that was timed."""
    forward = row.tokens * row.seq_len * row.heads * (row.qk_head_dim + row.v_head_dim)
    return forward * (FLASH_BACKWARD_OVER_FORWARD if row.backward else 1.0)


def _priced(row: AttentionRow) -> bool:
    """Whether plans are priced by such a core, and the row's own figures agree that its mask is the causal one."""
    name = stated_precision(row.precision)
    if name and load_precision(name).compute != load_precision(name).attention_compute:
        return False
    if row.flops_per_s is None:
        return True
    counted = row.flops_per_s * row.seconds / _masked_flops(row)
    alike = microbenchmark_settings().kernels.same_count
    return any(isclose(counted, count, rel_tol=alike) for count in _COUNTS)


def _gemms(rows: Sequence[tuple[GemmRow, Place]], calibration: Calibration) -> Evidence:
    places = tuple(place for _, place in rows)
    facts = facts_of(places, calibration)
    m, n, k, rate = num([(row.m, row.n, row.k, row.flops_per_s) for row, _ in rows]).T

    def predicted(values: Mapping[str, Num]) -> Num:
        return np.log(gemm_s(replace(facts, cal=Parameters(**values)), m, n, k))

    sweeps = _sweeps([row.where for row, _ in rows], places)
    return Evidence(
        kind="GEMMs",
        places=places,
        sweeps=sweeps,
        alike=sweeps,
        logs=np.log(2.0 * m * n * k / rate),
        scales=np.full(len(rows), microbenchmark_settings().scales.gemm),
        base=facts.cal,
        predicted=predicted,
        told_by=_OF_GEMMS,
    )


def _attention(rows: Sequence[tuple[AttentionRow, Place]], calibration: Calibration) -> Evidence:
    places = tuple(place for _, place in rows)
    facts = facts_of(places, calibration)
    seq_len, tokens, heads, qk, v, seconds = num(
        [(r.seq_len, r.tokens, r.heads, r.qk_head_dim, r.v_head_dim, r.seconds) for r, _ in rows]
    ).T
    backward = np.array([row.backward for row, _ in rows], dtype=bool)
    none = np.zeros_like(seq_len)
    facts = replace(
        facts,
        work=replace(facts.work, seq_len=seq_len),
        model=replace(facts.model, qk_head_dim=qk, v_head_dim=v, window=none + UNBOUNDED, window_share=none),
    )

    def predicted(values: Mapping[str, Num]) -> Num:
        there, back = attention_core_s(replace(facts, cal=Parameters(**values)), tokens, heads)
        return np.log(np.where(backward, back, there))

    sweeps = _sweeps([row.where for row, _ in rows], places)
    return Evidence(
        kind="attention cores",
        places=places,
        sweeps=sweeps,
        alike=sweeps,
        logs=np.log(seconds),
        scales=np.full(len(rows), microbenchmark_settings().scales.attention),
        base=facts.cal,
        predicted=predicted,
        told_by=_OF_ATTENTION,
    )


def _sweeps(where: Sequence[str], places: Sequence[Place]) -> tuple[str, ...]:
    """Rows of one file on one device in one precision."""
    return tuple(
        f"{row.rpartition(':')[0]} {place.cluster.accelerator.name} {place.calibrated_as}"
        for row, place in zip(where, places, strict=True)
    )
