"""Scenarios and plans for tests, from catalog names and from the axes that a test cares about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.arrays import num
from costmodel.calibration.calibration import Calibration, load_calibration
from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.framework_catalog import load_framework, load_optimizer, load_precision
from costmodel.catalog.model_catalog import load_model
from costmodel.curves import NO_CURVE, NO_CURVES
from costmodel.facts import Facts
from costmodel.predict import PredictionTable, StagePrediction, predict, predict_stages
from costmodel.rules import legal_mask
from costmodel.rules.rule import as_columns
from costmodel.scenario import Scenario
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.model import ModelSpec
from costmodel.spec.options import OPTIONS, usual_options
from costmodel.spec.plan import SCHEDULES
from costmodel.spec.workload import Workload
from costmodel.table import PlanTable, stage_table
from costmodel.terms.term import Axes

UNCALIBRATED = Calibration(name="none", retrieved="", source="", parameters=())
"""For what needs no calibration, as the rules don't."""


def scenario_of(
    model: str | ModelSpec = "llama-3-8b",
    cluster: str | ClusterSpec = "dgx-h100",
    devices: int = 64,
    global_batch_size: int = 256,
    seq_len: int = 8192,
    *,
    precision: str = "bf16",
    optimizer: str = "adamw",
    calibration: Calibration | None = None,
    **framework: Any,
) -> Scenario:
    """A training step under Megatron-Core and the shipped calibration; names are those of the catalog.

    ``framework`` are changes to the framework, ``version="0.13"`` say.
    """
    return Scenario(
        model=load_model(model) if isinstance(model, str) else model,
        cluster=load_cluster(cluster) if isinstance(cluster, str) else cluster,
        devices=devices,
        workload=Workload(
            global_batch_size=global_batch_size,
            seq_len=seq_len,
            precision=load_precision(precision),
            optimizer=load_optimizer(optimizer),
        ),
        framework=load_framework("megatron-core").model_copy(update=framework),
        calibration=calibration or load_calibration(),
    )


def divisors(value: int) -> list[int]:
    """All divisors, the plain way: it shares nothing with what the search uses."""
    return [d for d in range(1, value + 1) if value % d == 0]


def padded_vocab(model: ModelSpec, tp: int, multiple: int = 128) -> int:
    """The vocabulary filled up to a multiple of ``multiple * tp``: Megatron's ``--make-vocab-size-divisible-by``."""
    return -(-model.vocab_size // (multiple * tp)) * multiple * tp


def plan_row(global_batch_size: int, **axes: int) -> dict[str, int]:
    """A row of a ``PlanTable``: what is not named is 1 (zero_stage 1), what follows from the rest is derived.

    Everything is sharded over all of ``dp`` unless ``dp_replicate`` says otherwise, and nothing with ``zero_stage`` 0.
    """
    row = dict.fromkeys(("tp", "cp", "ep", "etp", "dp", "pp", "vpp", "zero_stage", "micro_batch_size"), 1)
    row |= {"cp_comm_type": 0, "layout": 0, "recompute": 0} | axes
    row.setdefault("dp_replicate", 1 if row["zero_stage"] else row["dp"])
    row.setdefault("dp_shard", row["dp"] // row["dp_replicate"])
    row.setdefault("num_microbatches", global_batch_size // (row["dp"] * row["micro_batch_size"]))
    row.setdefault("schedule", SCHEDULES.index("interleaved_1f1b" if row["vpp"] > 1 else "1f1b"))
    usual = {axis: int(code) for axis, code in usual_options(as_columns(row)).items()}
    return {"recompute_modules": 0, **usual, **row}


def priced(scenario: Scenario, *rows: dict[str, int], facts: Facts | None = None) -> PredictionTable:
    """The ranking form of plans."""
    table = PlanTable.of_rows(rows)
    return predict(facts or Facts.of(scenario), table, stage_table(scenario, table))


def broken_down(scenario: Scenario, *rows: dict[str, int], facts: Facts | None = None) -> StagePrediction:
    """The full form of plans, with every stage."""
    table = PlanTable.of_rows(rows)
    return predict_stages(facts or Facts.of(scenario), table, stage_table(scenario, table, every_stage=True))


def by_formula(facts: Facts) -> Facts:
    """The same facts without measured collectives: everything by latency and rate."""
    return replace(facts, hardware=replace(facts.hardware, curve_set=num(NO_CURVE)), curves=NO_CURVES)


def recalibrated(facts: Facts, **parameters: float) -> Facts:
    """The same facts under other values of some calibration parameters."""
    return replace(facts, cal=replace(facts.cal, **{name: num(value) for name, value in parameters.items()}))


def random_legal_plans(scenario: Scenario, count: int, seed: int) -> PlanTable:
    """About ``count`` distinct plans drawn from all axes at random, less those that break a rule of the framework."""
    draw = np.random.default_rng(seed).choice
    batch, found = scenario.workload.global_batch_size, {}
    moe = scenario.model.moe is not None
    for _ in range(200):
        rows = []
        for _ in range(4 * count):
            zero_stage, tp, cp, pp = draw([0, 1, 2, 3]), draw([1, 2, 4, 8]), draw([1, 1, 2, 4]), draw([1, 2, 4, 8, 16])
            dp = scenario.devices // (tp * cp * pp)
            micro = draw([1, 2, 4])
            if dp == 0 or batch % (dp * micro):
                continue
            rows.append(
                plan_row(
                    batch,
                    tp=tp,
                    cp=cp,
                    pp=pp,
                    dp=dp,
                    zero_stage=zero_stage,
                    micro_batch_size=micro,
                    vpp=draw([1, 2, 4, 5]) if pp > 1 else 1,
                    layout=draw([0, 1, 2]) if pp > 1 else 0,
                    cp_comm_type=draw([0, 1, 2]) if cp > 1 else 0,
                    ep=draw([1, 2, 8, 32]) if moe else 1,
                    etp=draw([1, 1, 2, 4]) if moe else 1,
                    dp_replicate=draw([1, 1, 2]) if zero_stage and dp % 2 == 0 else 1 if zero_stage else dp,
                    recompute=draw([0, 1, 2]),
                )
            )
        table = PlanTable.of_rows(rows)
        table = table.take(legal_mask(scenario, table))
        found |= {tuple(table.row(index).items()): None for index in range(len(table))}
        if len(found) >= count:
            break
    return PlanTable.of_rows([dict(key) for key in list(found)[:count]])


def ideal(facts: Facts) -> Facts:
    """A device that computes at its peak and does nothing else: no launch, no memory traffic, free links, no host."""
    hardware = facts.hardware
    endless = num(1e30)
    free = replace(hardware, memory_bandwidth=endless, tier_bandwidth=tuple(endless for _ in hardware.tier_bandwidth))
    without = ("gemm_launch_s", "fixed_step_s", "fixed_microbatch_s", "fixed_chunk_s", "gemm_k_half", "gemm_mn_half")
    latency = ("scale_up_latency_s", "scale_out_latency_s", "scale_up_hop_s", "scale_out_hop_s")
    full = ("gemm_efficiency", "attention_efficiency", "compute_multiplier", "grouped_gemm_factor", "expert_imbalance")
    # A saturation size of exactly zero would divide nothing by nothing where a model has no such GEMM.
    floors = ("host_layer_s", "host_pipeline_layer_s", "host_pipeline_layer_tp_s")
    values = dict.fromkeys((*without, *latency, *floors), 1e-30)
    values |= dict.fromkeys((*full, "misaligned_factor", "time_level"), 1.0)
    # What a scan multiplies is no part of a model's FLOPs.
    return by_formula(recalibrated(replace(facts, hardware=free), **values, scan_efficiency=1e30))


def lossless(facts: Facts) -> Facts:
    """Links at their rated speed, no latency, no reduction in switches, no overlap with compute."""
    links = ("scale_up_efficiency", "scale_out_efficiency", "all_to_all_factor")
    names = (*links, "in_network_gain", "in_network_gain_across", "expert_imbalance", "tp_exposed_share")
    values = dict.fromkeys((*names, "ep_exposed_share", "cp_exposed_share", "pp_exposed_share"), 1.0)
    latency = ("scale_up_latency_s", "scale_out_latency_s", "scale_up_hop_s", "scale_out_hop_s")
    exact = recalibrated(
        facts, **values, **dict.fromkeys(latency, 0.0), pp_exposed_share_interleaved=1.0, time_level=1.0
    )
    return by_formula(exact)


def axes_of(**values: float) -> Axes:
    """Axes for one term, as columns of one row; options that are not named are neutral."""
    neutral = {option.name: option.usual for option in OPTIONS if not callable(option.usual)}
    given = neutral | {"recompute_modules": 0.0, "cp_a2a_degree": 1.0} | values
    return Axes({axis: np.array([value], dtype=np.float64) for axis, value in given.items()})
