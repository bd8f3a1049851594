"""A finished run as a row of RUNS.csv, which ``planner calibrate`` learns from."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.fingerprint import digest
from costmodel.runs.columns import columns
from costmodel.spec.model import ModelSpec
from planner.profiling.probe.job import ProbeJob

_GIB = 2**30
# RUNS.csv has no column for the optimizer: rows are priced as AdamW's.
_OPTIMIZERS = ("adam", "adamw")
# What PyTorch's own parallelism is priced as where the plan is another framework's.
_OWN, _STANDS_IN = ("pytorch-fsdp", "torchtitan"), "torchtitan"


def run_text(job: ProbeJob, metrics: Path) -> str | None:
    """The file; None where RUNS.csv has no words for what ran, or no step counted."""
    plan = job.plan
    if plan.optimizer not in _OPTIMIZERS or (plan.zero_stage and plan.dp_replicate > 1):
        return None
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    times = [line["step_time_s"] for line in lines if "step" in line and not line.get("warm_up")]
    if not times:
        return None
    environment: Mapping[str, Any] = lines[0]["environment"]
    peaks = [line["peak_allocated_bytes"] for line in lines if "peak_allocated_bytes" in line]
    row = _row(job, environment) | {
        "measured_step_time_s": f"{statistics.median(times):.6g}",
        "measured_peak_mem_gb": f"{max(peaks[-1]) / _GIB:.6g}" if peaks else "",
        "mem_kind": "GiB, max over ranks of torch max_memory_allocated" if peaks else "",
        "outcome": "ok",
        "notes": "; ".join(environment["notes"]),
    }
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [name for name in columns() if name in row], lineterminator="\n")
    writer.writeheader()
    writer.writerow(row)
    return stream.getvalue()


def _row(job: ProbeJob, environment: Mapping[str, Any]) -> dict[str, Any]:
    plan, model = job.plan, job.scenario.model
    return _model(model) | {
        "id": f"probe-{digest(job.model_dump(mode='json', exclude={'scenario': {'calibration'}}))[:12]}",
        "group": f"probe/{model.name}/{environment['host']}",
        "source": f"the probe, torch {environment['torch']}",
        "framework": plan.framework if plan.framework in _OWN else _STANDS_IN,
        "task": "pretrain",
        "seq_len": plan.seq_len,
        "accelerator": environment["device"],
        "devices": plan.devices_used,
        "precision": plan.precision,
        "tp": plan.tp,
        "sp": int(plan.sequence_parallel),
        "pp": plan.pp,
        "vpp": plan.vpp,
        "cp": plan.cp,
        "ep": plan.ep,
        "dp": plan.dp,
        "zero_stage": plan.zero_stage,
        "micro_batch": plan.micro_batch_size,
        "global_batch": plan.global_batch_size,
        "recompute": plan.recompute,
        "compile": 0,
    }


def _model(model: ModelSpec) -> dict[str, Any]:
    shape = {
        "model_name": model.name,
        "layers": model.num_layers,
        "hidden": model.hidden_size,
        "ffn_hidden": model.ffn_hidden_size,
        "heads": model.num_heads,
        "kv_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "vocab": model.vocab_size,
        "swiglu": int(model.gated_mlp),
        "tied_embeddings": int(model.tie_word_embeddings),
    }
    if model.moe is None:
        return shape
    moe = model.moe
    return shape | {
        "experts": moe.num_experts,
        "top_k": moe.top_k,
        "n_shared_experts": round(moe.shared_expert_ffn_hidden_size / moe.expert_ffn_hidden_size),
        "moe_ffn_hidden": moe.expert_ffn_hidden_size,
        "moe_dense_layers": f"first {moe.num_dense_layers}" if moe.num_dense_layers else "",
    }
