"""Records for tests of the store: small, alike, and different where a test says so."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from costmodel.fingerprint import digest, plan_document_id
from db.records import Calibration, Cluster, Json, Measurement, Model, NewSearch, Plan, Scenario, SearchResult
from db.store import Store

NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
VERSION = "0.1.0+0123abcd"
LEASE = timedelta(seconds=30)

CALIBRATION = Calibration(
    id=digest("calibration"),
    name="shipped",
    retrieved="2026-02-01",
    source="public runs",
    spec={"name": "shipped", "levels": [1.5, 2.0]},
)


def later(seconds: float) -> datetime:
    """So many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def new_id() -> str:
    """An id that nothing else has."""
    return uuid.uuid4().hex


def scenario(
    model: str = "llama-3.1-8b", cluster: str = "dgx-h100", devices: int = 16, batch: int = 64, **how: Any
) -> Scenario:
    """A scenario; the same words give the same ids."""
    accelerator = how.pop("accelerator", "h100-sxm5-80gb")
    given = {
        "seq_len": 4096,
        "precision": "bf16",
        "optimizer": "adamw",
        "framework": "megatron-core",
        "framework_version": "0.16",
        "min_free_bytes": None,
        **how,
    }
    spec = {"model": model, "cluster": cluster, "devices": devices, "global_batch_size": batch, **given}
    return Scenario(
        id=digest(spec),
        model=Model(
            id=digest(["model", model]),
            name=model,
            params_total=8_030_261_248,
            params_active=8_030_261_248,
            num_layers=32,
            source="config.json",
            spec={"name": model, "hidden_size": 4096},
        ),
        cluster=Cluster(
            id=digest(["cluster", cluster]),
            name=cluster,
            accelerator=accelerator,
            devices_per_node=8,
            max_devices=None,
            price_per_device_hour=2.5,
            source="a data sheet",
            spec={"name": cluster},
        ),
        devices=devices,
        global_batch_size=batch,
        spec=spec,
        **given,
    )


def plan(of: Scenario, tp: int = 1, step_time_s: float = 1.0, *, created_at: datetime = NOON, **axes: Any) -> Plan:
    """A plan of a scenario, addressed by its content."""
    pp = axes.get("pp", 1)
    document: Json = {
        "tp": tp,
        "pp": pp,
        "vpp": 1,
        "cp": 1,
        "cp_comm_type": "p2p",
        "ep": 1,
        "etp": 1,
        "dp": 8,
        "dp_replicate": 1,
        "dp_shard": 8,
        "zero_stage": 1,
        "sequence_parallel": False,
        "micro_batch_size": 1,
        "num_microbatches": 8,
        "global_batch_size": of.global_batch_size,
        "seq_len": of.seq_len,
        "devices_used": 8 * tp * pp,
        "schedule": "1f1b",
        "layers_per_stage": [32 // pp] * pp,
        "layers_per_chunk": None,
        "recompute": "none",
        "recompute_modules": [],
        "recomputed_layers_per_stage": [0] * pp,
        "offload": "none",
        "precision": of.precision,
        "optimizer": of.optimizer,
        "framework": of.framework,
        "framework_version": of.framework_version,
        **axes,
    }
    return Plan(
        id=plan_document_id(of.id, document, CALIBRATION.id, VERSION),
        scenario_id=of.id,
        calibration_id=CALIBRATION.id,
        cost_model_version=VERSION,
        plan=document,
        prediction=prediction(step_time_s, pp),
        created_at=created_at,
    )


def prediction(step_time_s: float, stages: int = 1) -> Json:
    """A prediction in the words of ``suggest --json``."""
    return {
        "step_time_s": step_time_s,
        "step_time_interval_s": [step_time_s * 0.75, step_time_s * 1.25],
        "tokens_per_s_per_device": 16384.0 / step_time_s,
        "mfu": 0.4 / step_time_s,
        "hfu": 0.41 / step_time_s,
        "time": {"attention": 0.1, "mlp": step_time_s - 0.1},
        "memory": {
            "peak_bytes": round(70e9 / step_time_s),
            "usable_bytes": 74_403_104_686,
            "stages": [{"parameters": 2_471_628_800, "activations": 36_550_171_689}] * stages,
        },
        "provenance": "analytic",
    }


UTILISATION: Json = {
    "mfu": 0.4,
    "hfu": 0.41,
    "attention": "causal",
    "peak": "bf16",
    "peak_flops_per_s": 989.5e12,
    "parameters": 7_504_924_672,
    "model_flops_per_token": 46.6e9,
    "hardware_flops_per_token": 47.8e9,
    "model_flops_per_step": 6.1e15,
    "model_flops_per_s_per_device": 395.8e12,
    "tokens_per_s": 131072.0,
    "mfu_parameters_only": 0.386,
    "mfu_full_attention": 0.414,
    "mfu_bf16_peak": None,
}


def new_search(of: Scenario, **how: Any) -> NewSearch:
    """A question about a scenario."""
    calibration = how.pop("calibration", CALIBRATION)
    problem_key = digest(["problem", of.id])
    fields: dict[str, Any] = {
        "id": new_id(),
        "key": digest([problem_key, calibration.id]),
        "problem_key": problem_key,
        "scenario_id": of.id,
        "calibration_id": calibration.id,
        "cost_model_version": VERSION,
        "search_version": "1+89abcdef",
        "question": question(of),
        "objective": "step_time",
        "top": 2,
        "max_seconds": 60.0,
        "seed": 0,
        "created_by": None,
        **how,
    }
    return NewSearch(**fields)


def question(of: Scenario) -> Json:
    """How a scenario is to be searched, and what it is called."""
    return {
        "scenario": {
            "id": of.id,
            "model": of.model.name,
            "params": of.model.params_total,
            "cluster": of.cluster.name,
            "accelerator": of.cluster.accelerator,
            "devices": of.devices,
            "global_batch_size": of.global_batch_size,
            "seq_len": of.seq_len,
            "precision": of.precision,
            "optimizer": of.optimizer,
            "framework": of.framework,
            "framework_title": "Megatron Core",
            "framework_version": of.framework_version,
            "not_calibrated": [],
        },
        "min_free_bytes": of.min_free_bytes,
        "objective": "step_time",
        "price_per_device_hour": None,
        "pins": ["pp=4,8"],
        "forbids": [],
        "min_used": 0.9,
        "top": 2,
        "max_seconds": 60.0,
        "seed": 0,
    }


def result(of: Scenario, **how: Any) -> SearchResult:
    """An answer with two plans."""
    fields: dict[str, Any] = {
        "status": "optimal",
        "best": 1.0,
        "bound": 1.0,
        "gap": 0.0,
        "proven_top_k": True,
        "plans_within": 2,
        "elapsed_s": 0.7,
        "details": {"eliminated": {"memory": 12}, "warnings": [], "infeasibility": None, "search": facts()},
        "plans": [plan(of, 1, 1.0), plan(of, 2, 2.0)],
        **how,
    }
    return SearchResult(**fields)


def facts() -> Json:
    """How an answer was found."""
    return {
        "elapsed_s": 0.7,
        "plans_considered": 40,
        "calibration": CALIBRATION.name,
        "calibration_id": CALIBRATION.id,
        "cost_model": VERSION,
        "search_version": "1+89abcdef",
        "meshes": 52,
        "master_solutions": 9,
        "seed": 0,
    }


def measurement(of: Plan, **how: Any) -> Measurement:
    """What happened when a plan ran."""
    fields: dict[str, Any] = {
        "id": new_id(),
        "plan_id": of.id,
        "status": "ok",
        "step_time_s": 1.1,
        "tokens_per_s_per_device": 14_000.0,
        "peak_allocated_bytes": 60_000_000_000,
        "peak_reserved_bytes": None,
        "steps": 50,
        "job_id": "4711",
        "environment": {"driver": "550.54"},
        "note": "",
        "log_tail": "step 50\n",
        "created_by": "ci",
        "measured_at": NOON,
        "created_at": NOON,
        **how,
    }
    return Measurement(**fields)


def keep(store: Store, *scenarios: Scenario, calibration: Calibration = CALIBRATION) -> None:
    """Store scenarios and a calibration, which searches and plans point at."""
    with store.writing() as repos:
        for one in scenarios:
            repos.scenarios.put(one, NOON)
        repos.calibrations.put(calibration, NOON)


def other_calibration() -> Calibration:
    """A calibration of another content."""
    return replace(CALIBRATION, id=digest("other calibration"), name="ours", spec={"name": "ours", "levels": [1.4]})
