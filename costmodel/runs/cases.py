"""A run as a question to the cost model: its scenario, and the plans that it may have been.

Most rows name one plan. Where a row leaves axes open (blank recompute, micro-batch or degrees), every value that people
would use is a candidate, and the fastest candidate that fits stands for the run: what is not stated was chosen to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd

from costmodel.calibration.calibration import Calibration
from costmodel.catalog.framework_catalog import framework_in_era, load_optimizer, recognise_framework
from costmodel.catalog.spellings import recognise_accelerator
from costmodel.catalog.typical_clusters import cluster_with, typical_cluster
from costmodel.errors import InvalidInput
from costmodel.runs import words
from costmodel.runs.columns import Run
from costmodel.runs.models import model_of
from costmodel.scenario import Scenario
from costmodel.spec.cluster import AcceleratorSpec, ClusterSpec
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES
from costmodel.spec.workload import OptimizerRecipe, Workload
from costmodel.stages import Layout

_GIGA = 1e9
_BITS = 8
_ON_THE_HOST = "host"

PlanRow = dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run that can be priced.

    Attributes:
        rows: candidate plans over the axes of ``costmodel.table``; never empty.
        key: equal for cases of equal scenarios.
        notes: what fell back and what was assumed.
    """

    run: Run
    scenario: Scenario
    key: tuple[object, ...]
    rows: tuple[PlanRow, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Unpriced:
    """A run that can't be expressed, and why."""

    run: Run
    reason: str


class _Cases:
    """Builds cases under one calibration; scenarios are shared between runs."""

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self.scenarios: dict[tuple[object, ...], Scenario] = {}

    def of(self, run: Run) -> Case | Unpriced:
        try:
            return self._case(run)
        except InvalidInput as error:
            return Unpriced(run=run, reason=str(error))

    def _case(self, run: Run) -> Case | Unpriced:
        missing = [name for name in ("seq_len", "global_batch") if getattr(run, name) is None]
        devices = _devices(run)
        if devices is None:
            missing.append("devices")
        if missing or devices is None or run.seq_len is None or run.global_batch is None:
            return Unpriced(run=run, reason=f"not stated: {', '.join(missing)}")
        found = model_of(run)
        if found.spec is None:
            return Unpriced(run=run, reason="; ".join(found.notes))
        accelerator = recognise_accelerator(run.accelerator)
        notes = [*run.problems, *found.notes]
        if accelerator.note:
            notes.append(accelerator.note)
        cluster = _cluster(accelerator.accelerator, run)
        precision, said = words.precision_of(run.precision, accelerator.accelerator)
        notes += said
        framework = _framework(run, precision.name, notes)
        recompute, modules, said = words.recompute_of(run.recompute)
        notes += said
        if modules is not None:
            framework = _with_modules(framework, modules)
        optimizer = _optimizer(run, notes)
        sequence_parallel = run.sp is not False or found.spec.moe is not None
        key = (
            found.spec.name,
            id(found.spec),
            cluster.name,
            id(cluster),
            run.seq_len,
            run.global_batch,
            precision.name,
            framework.name,
            framework.selective_modules,
            optimizer.name,
            sequence_parallel,
            devices,
        )
        if key not in self.scenarios:
            self.scenarios[key] = Scenario(
                model=found.spec,
                cluster=cluster,
                devices=devices,
                workload=Workload(
                    global_batch_size=run.global_batch, seq_len=run.seq_len, precision=precision, optimizer=optimizer
                ),
                framework=framework,
                calibration=self.calibration,
                sequence_parallel=sequence_parallel,
                fused_attention=framework.fused_attention,
            )
        scenario = self.scenarios[key]
        policies = range(len(RECOMPUTES)) if recompute is None else [RECOMPUTES.index(recompute)]
        rows = tuple(_plans(run, scenario, devices, policies, notes))
        if not rows:
            return Unpriced(run=run, reason=f"no plan on {devices} devices has the degrees that are stated")
        return Case(run=run, scenario=scenario, key=key, rows=rows, notes=tuple(dict.fromkeys(notes)))


def cases_of(runs: tuple[Run, ...], calibration: Calibration) -> list[Case | Unpriced]:
    """Every run as a case, in order."""
    cases = _Cases(calibration)
    return [cases.of(run) for run in runs]


def _devices(run: Run) -> int | None:
    if run.devices is not None:
        return run.devices
    if run.dp is None:
        return None
    return run.dp * (run.tp or 1) * (run.pp or 1) * (run.cp or 1)


def _cluster(accelerator: AcceleratorSpec, run: Run) -> ClusterSpec:
    return _cluster_like(accelerator, run.devices_per_node, run.intra_node_bw_gbs, run.inter_node_bw_gbps_per_device)


@lru_cache(maxsize=1024)
def _cluster_like(
    accelerator: AcceleratorSpec, devices_per_node: int | None, inside: float | None, outside: float | None
) -> ClusterSpec:
    return cluster_with(
        typical_cluster(accelerator),
        devices_per_node=devices_per_node,
        scale_up_bandwidth_bytes_per_s=None if inside is None else inside * _GIGA,
        scale_out_bandwidth_bytes_per_s_per_device=None if outside is None else outside * _GIGA / _BITS,
    )


def _framework(run: Run, precision: str, notes: list[str]) -> FrameworkSpec:
    framework, known = recognise_framework(run.framework)
    if not known:
        what = f"framework {run.framework!r} is not known" if run.framework else "framework blank"
        notes.append(f"{what}: {framework.name} taken")
    framework = framework_in_era(framework, precision, _uses_sequence_parallel(run))
    if precision not in framework.gradient_bytes:
        notes.append(f"{framework.title} says nothing of {precision} gradients: the widest that it has are taken")
        framework = _with_gradients(framework, precision)
    return framework


def _uses_sequence_parallel(run: Run) -> bool | None:
    """None where the row can't tell: without tensor parallelism there is nothing to cut."""
    return run.sp if run.tp is not None and run.tp > 1 else None


@lru_cache(maxsize=256)
def _with_gradients(framework: FrameworkSpec, precision: str) -> FrameworkSpec:
    widest = max(framework.gradient_bytes.values())
    return framework.model_copy(update={"gradient_bytes": {**framework.gradient_bytes, precision: widest}})


@lru_cache(maxsize=1024)
def _with_modules(framework: FrameworkSpec, modules: tuple[str, ...]) -> FrameworkSpec:
    return framework.model_copy(update={"selective_modules": modules})


def _optimizer(run: Run, notes: list[str]) -> OptimizerRecipe:
    offload = words.offload_of(run.offload or _offload_in_notes(run))
    if offload == "none":
        return load_optimizer("adamw")
    notes.append(f"offload of {offload} takes no device memory and no time here: neither transfer is priced yet")
    return _on_the_host() if offload == "optimizer" else load_optimizer("adamw")


def _offload_in_notes(run: Run) -> str:
    text = run.overlap_notes.lower()
    return text if "optimizer" in text and ("offload" in text or "cpu" in text) else ""


@lru_cache(maxsize=1)
def _on_the_host() -> OptimizerRecipe:
    adamw = load_optimizer("adamw")
    return adamw.model_copy(update={"name": _ON_THE_HOST, "master_bytes": 0, "moment_bytes": 0.0})


def _plans(
    run: Run, scenario: Scenario, devices: int, policies: range | list[int], notes: list[str]
) -> Iterator[PlanRow]:
    """Every candidate."""
    batch = scenario.workload.global_batch_size
    cp, ep, etp = run.cp or 1, run.ep or 1, run.etp or 1
    if scenario.model.moe is None and ep * etp > 1:
        notes.append(f"ep {ep} and etp {etp} mean nothing for a model without experts")
        ep = etp = 1
    for tp, pp in _model_parallel(run, scenario, devices, cp, notes):
        dp = run.dp if run.dp is not None and run.dp * tp * pp * cp == devices else devices // (tp * pp * cp)
        if dp < 1:
            continue
        if dp * tp * pp * cp != devices:
            notes.append(f"tp {tp} * pp {pp} * cp {cp} don't divide devices {devices}: dp {dp} taken")
        elif run.dp is not None and run.dp != dp:
            notes.append(f"dp {run.dp} contradicts devices {devices} = tp {tp} * pp {pp} * cp {cp} * dp: dp {dp} taken")
        for micro in _micro_batches(run, batch, dp, notes):
            sharding = _sharding(run, scenario, dp)
            stages = _stages(run, scenario, pp)
            for recompute in policies:
                yield {
                    "tp": tp,
                    "cp": cp,
                    "cp_comm_type": _cp_comm(run, scenario, cp),
                    "ep": ep,
                    "etp": etp,
                    "dp": dp,
                    "pp": pp,
                    "micro_batch_size": micro,
                    "num_microbatches": max(round(batch / (micro * dp)), 1),
                    "recompute": recompute,
                    **sharding,
                    **stages,
                }


def _powers(most: int) -> list[int]:
    return [1 << exponent for exponent in range(most.bit_length()) if 1 << exponent <= most]


def _model_parallel(run: Run, scenario: Scenario, devices: int, cp: int, notes: list[str]) -> list[tuple[int, int]]:
    """(tp, pp): as stated; from the others when one is blank; else what people would try."""
    if run.tp is not None and run.pp is not None:
        return [(run.tp, run.pp)]
    if run.dp is not None and (run.tp is not None or run.pp is not None):
        known = (run.tp or 1) * (run.pp or 1) * cp * run.dp
        rest = devices // known if devices % known == 0 else 1
        return [(run.tp or rest, run.pp or rest)]
    node = scenario.cluster.devices_per_node
    model = scenario.model
    tps = [run.tp] if run.tp else [tp for tp in _powers(min(node, devices)) if model.num_heads % tp == 0]
    pps = [run.pp] if run.pp else [pp for pp in _powers(min(devices, model.num_layers))]
    if run.dp is not None:
        pairs = [(tp, pp) for tp, pp in product(tps, pps) if tp * pp * cp * run.dp == devices]
    else:
        pairs = [(tp, pp) for tp, pp in product(tps, pps) if devices % (tp * pp * cp) == 0]
    blank = " and ".join(name for name in ("tp", "pp") if getattr(run, name) is None)
    notes.append(f"{blank} not stated: the fastest that fits is taken")
    return pairs


def _micro_batches(run: Run, batch: int, dp: int, notes: list[str]) -> list[int]:
    if run.micro_batch is not None:
        if batch % (run.micro_batch * dp):
            notes.append(
                f"global_batch {batch} is no multiple of micro_batch {run.micro_batch} * dp {dp}: "
                f"{max(round(batch / (run.micro_batch * dp)), 1)} micro-batches taken"
            )
        return [run.micro_batch]
    per_replica = max(batch // dp, 1)
    notes.append("micro_batch not stated: the fastest that fits is taken")
    return [size for size in _powers(per_replica) if per_replica % size == 0]


def _sharding(run: Run, scenario: Scenario, dp: int) -> PlanRow:
    word = words.sharding_of(run.zero_stage)
    if word is not None:
        stage = int(word.means)
    elif run.dist_opt is not None:
        stage = 1 if run.dist_opt else 0
    else:
        stage = scenario.framework.usual_zero_stage
    if stage == 0:
        return {"zero_stage": 0, "dp_shard": 1, "dp_replicate": dp}
    group = words.shard_group_of(run.overlap_notes) or words.shard_group_of(run.zero_stage)
    if group is None and word is not None and word.hybrid:
        group = scenario.cluster.devices_per_node
    shard = gcd(dp, group) if group is not None else dp
    return {"zero_stage": stage, "dp_shard": shard, "dp_replicate": dp // shard}


def _stages(run: Run, scenario: Scenario, pp: int) -> PlanRow:
    """Chunks, schedule, and whether embedding and loss take a layer's place so that the chunks come out even."""
    vpp = (run.vpp or 1) if pp > 1 else 1
    layers = scenario.model.num_layers
    even = (
        (Layout.EVEN, layers),
        (Layout.EMBEDDING_AND_LOSS_COUNT, layers + 2),
        (Layout.LOSS_COUNTS, layers + 1),
    )
    layout = next((layout for layout, slots in even if slots % (pp * vpp) == 0 and slots >= 2 * pp), Layout.EVEN)
    schedule = "interleaved_1f1b" if vpp > 1 else "1f1b"
    return {"vpp": vpp, "layout": int(layout), "schedule": SCHEDULES.index(schedule)}


def _cp_comm(run: Run, scenario: Scenario, cp: int) -> int:
    if cp == 1:
        return 0
    return CP_COMM_TYPES.index(words.cp_comm_of(run.overlap_notes, scenario.framework.cp_comm_types))
