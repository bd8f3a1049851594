"""A run as a question to the cost model: its scenario, and the plans that it may have been.

Most rows name one plan. Where a row leaves axes open (blank recompute, micro-batch or degrees), every value that people
would use is a candidate, and the fastest candidate that fits stands for the run: what is not stated was chosen to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from costmodel.calibration.calibration import Calibration
from costmodel.catalog.accelerator_catalog import compact
from costmodel.catalog.framework_catalog import framework_in_era, load_optimizer, recognise_framework
from costmodel.catalog.spellings import recognise_accelerator
from costmodel.catalog.typical_clusters import cluster_with, typical_cluster
from costmodel.errors import InvalidInput
from costmodel.runs import words
from costmodel.runs.columns import Run
from costmodel.runs.models import model_of
from costmodel.runs.plans import PlanRow, plans_of
from costmodel.scenario import Scenario
from costmodel.spec.base import FrozenMap
from costmodel.spec.cluster import AcceleratorSpec, ClusterSpec
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.model import ModelSpec
from costmodel.spec.options import OFFLOADS
from costmodel.spec.plan import RECOMPUTES
from costmodel.spec.workload import Workload

_OF_THE_BOARD = ("nvlink",)
_ROUNDED = 0.05
_GIGA = 1e9
_BITS = 8


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run that can be priced.

    Attributes:
        rows: candidate plans over the axes of ``costmodel.table``; never empty.
        key: equal for cases of equal scenarios.
        memory_axes: what its memory is counted with in place of what a row says.
        notes: what fell back and what was assumed.
    """

    run: Run
    scenario: Scenario
    key: tuple[object, ...]
    rows: tuple[PlanRow, ...]
    memory_axes: Mapping[str, int] = FrozenMap({})
    notes: tuple[str, ...]

    @cached_property
    def question(self) -> tuple[object, ...]:
        """Equal for cases with the same scenario and the same candidates."""
        return self.key, self.memory_axes, tuple(tuple(row.items()) for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class Unpriced:
    """A run that can't be expressed, and why."""

    run: Run
    reason: str


class _Cases:
    """Builds cases under one calibration; scenarios are shared between runs."""

    def __init__(self, calibration: Calibration, known: ClusterSpec | None = None) -> None:
        self.calibration, self.known = calibration, known
        self.scenarios: dict[tuple[object, ...], Scenario] = {}

    def of(self, run: Run) -> Case | Unpriced:
        try:
            return self._case(run)
        except InvalidInput as error:
            return Unpriced(run=run, reason="; ".join((*run.problems, str(error))))

    def _case(self, run: Run) -> Case | Unpriced:
        missing = [name for name in ("seq_len", "global_batch") if getattr(run, name) is None]
        devices = _devices(run)
        if devices is None:
            missing.append("devices")
        if missing or devices is None or run.seq_len is None or run.global_batch is None:
            return Unpriced(run=run, reason="; ".join((*run.problems, f"not stated: {', '.join(missing)}")))
        found = model_of(run)
        if found.spec is None:
            return Unpriced(run=run, reason="; ".join((*run.problems, *found.notes)))
        notes = [*run.problems, *found.notes]
        cluster = self._cluster(run, notes)
        precision, said = words.precision_of(run.precision, cluster.accelerator)
        notes += said
        framework = _framework(run, found.spec, cluster.accelerator, precision.name, notes)
        recompute, modules, said = words.recompute_of(run.recompute)
        notes += said
        if modules is not None:
            framework = _with_modules(framework, modules)
        elif recompute == "selective" and not framework.selective_modules:
            notes.append(f"{framework.title} recomputes whole layers or nothing: selective is priced as nothing")
        optimizer, offload = load_optimizer("adamw"), _offload(run, cluster, notes)
        sequence_parallel = run.sp is not False or found.spec.moe is not None
        fused = _fuses_pointwise(run, framework)
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
            fused,
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
                fused_pointwise=fused,
            )
        scenario = self.scenarios[key]
        policies = range(len(RECOMPUTES)) if recompute is None else [RECOMPUTES.index(recompute)]
        options = {"offload": offload}
        if recompute == "full":
            options["recompute_interval"] = words.recompute_interval_of(run.recompute) or 1
        rows = tuple(row | options for row in plans_of(run, scenario, devices, policies, notes))
        if not rows:
            why = f"no plan on {devices} devices has the degrees that are stated"
            return Unpriced(run=run, reason="; ".join(dict.fromkeys((why, *notes))))
        memory_axes = _memory_axes(run, recompute, modules, notes)
        return Case(
            run=run,
            scenario=scenario,
            key=key,
            rows=rows,
            memory_axes=FrozenMap(memory_axes),
            notes=tuple(dict.fromkeys(notes)),
        )

    def _cluster(self, run: Run, notes: list[str]) -> ClusterSpec:
        if self.known is not None and compact(run.accelerator) == compact(self.known.accelerator.name):
            return self.known
        accelerator = recognise_accelerator(run.accelerator)
        if accelerator.note:
            notes.append(accelerator.note)
        return _cluster(accelerator.accelerator, run)


def cases_of(
    runs: tuple[Run, ...], calibration: Calibration, known: ClusterSpec | None = None
) -> list[Case | Unpriced]:
    """Every run as a case, in order.

    Args:
        known: the cluster of runs that name its accelerator, which need not be in the catalog.
    """
    cases = _Cases(calibration, known)
    return [cases.of(run) for run in runs]


def _devices(run: Run) -> int | None:
    if run.devices is not None:
        return run.devices
    if run.dp is None:
        return None
    return run.dp * (run.tp or 1) * (run.pp or 1) * (run.cp or 1)


def _cluster(accelerator: AcceleratorSpec, run: Run) -> ClusterSpec:
    inside = _link_rate(typical_cluster(accelerator), run.intra_node_bw_gbs)
    return _cluster_like(accelerator, run.devices_per_node, inside, run.inter_node_bw_gbps_per_device)


def _link_rate(cluster: ClusterSpec, stated: float | None) -> float | None:
    """GB/s inside a node as stated; None where that is the usual rate, counted both ways or as half of it.

    The links of a board are what they are, and people count them in all three ways.
    """
    if stated is None or not cluster.tiers or cluster.tiers[0].kind not in _OF_THE_BOARD:
        return stated
    usual = cluster.tiers[0].bandwidth_bytes_per_s / _GIGA
    return None if any(abs(stated / (usual * ways) - 1.0) < _ROUNDED for ways in (0.5, 1.0, 2.0)) else stated


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


def _framework(
    run: Run, model: ModelSpec, accelerator: AcceleratorSpec, precision: str, notes: list[str]
) -> FrameworkSpec:
    framework, known = recognise_framework(run.framework)
    if not known:
        what = f"framework {run.framework!r} is not known" if run.framework else "framework blank"
        notes.append(f"{what}: {framework.name} taken")
    stated, parallel = words.stated_precision(run.precision), _uses_sequence_parallel(run)
    era = framework_in_era(framework, run.framework, accelerator.family, stated, parallel, _is_sharded(run))
    if era is not framework and model.moe is None:
        told = "without sequence parallelism" if parallel is False else f"in {stated}"
        notes.append(f"framework {run.framework!r} {told} on {accelerator.name} is priced as {era.title}")
        framework = era
    framework = _as_runs_keep_parameters(framework)
    if precision in framework.gradient_bytes:
        # A run that was made shows that its version could; which one it was, few runs say.
        framework = _at_any_version(framework)
    else:
        notes.append(f"{framework.title} says nothing of {precision} gradients: the widest that it has are taken")
        framework = _with_gradients(framework, precision)
    return framework


def _fuses_pointwise(run: Run, framework: FrameworkSpec) -> bool:
    """Whether elementwise kernels are fused: by the framework, by torch.compile, or by kernels that a run names."""
    if framework.fused_pointwise is None or words.names_fused_kernels(f"{run.overlap_notes} {run.notes}"):
        return True
    return framework.fused_pointwise if run.compile is None else run.compile


def _uses_sequence_parallel(run: Run) -> bool | None:
    """None where the row can't tell: without tensor parallelism there is nothing to cut."""
    return run.sp if run.tp is not None and run.tp > 1 else None


def _is_sharded(run: Run) -> bool:
    stage, _, _ = words.sharding_of(run.zero_stage)
    return bool(run.dist_opt) if stage is None else stage > 0


@lru_cache(maxsize=256)
def _with_gradients(framework: FrameworkSpec, precision: str) -> FrameworkSpec:
    widest = max(framework.gradient_bytes.values())
    return framework.model_copy(update={"gradient_bytes": FrozenMap({**framework.gradient_bytes, precision: widest})})


@lru_cache(maxsize=256)
def _as_runs_keep_parameters(framework: FrameworkSpec) -> FrameworkSpec:
    usual = framework.usual_quantised_parameters
    return framework.model_copy(update={"quantised_parameters": usual}) if usual else framework


@lru_cache(maxsize=256)
def _at_any_version(framework: FrameworkSpec) -> FrameworkSpec:
    return framework.model_copy(update={"precision_since": FrozenMap({}), "precision_until": FrozenMap({})})


@lru_cache(maxsize=1024)
def _with_modules(framework: FrameworkSpec, modules: tuple[str, ...]) -> FrameworkSpec:
    return framework.model_copy(update={"selective_modules": modules})


def _offload(run: Run, cluster: ClusterSpec, notes: list[str]) -> int:
    """The code of what a run keeps with its hosts."""
    offload, said = words.offload_of(run.offload or _offload_in_notes(run))
    notes += said
    if offload != "none" and cluster.host_bandwidth_bytes_per_s is None:
        notes.append(f"the host link of {cluster.name} is unknown: transfers are priced by the hosts' memory alone")
    return OFFLOADS.index(offload)


def _memory_axes(run: Run, recompute: str | None, modules: tuple[str, ...] | None, notes: list[str]) -> dict[str, int]:
    """What an activation policy that can't be priced keeps on the device: a layer's tensors, while it works.

    The hosts hold what is offloaded. A list of one's own was chosen so that it fits, by recomputing or offloading the
    rest; what stays for good is as good as nothing.
    """
    custom = recompute == "selective" and modules is None and words.keeps_a_list_of_its_own(run)
    if custom:
        notes.append("which tensors a custom policy keeps isn't said: memory counts none but those of a layer at work")
    if not custom and not words.offloads_activations(run.recompute):
        return {}
    return {"recompute": RECOMPUTES.index("full"), "offload": OFFLOADS.index("activations")}


def _offload_in_notes(run: Run) -> str:
    text = run.overlap_notes.lower()
    return text if "optimizer" in text and ("offload" in text or "cpu" in text) else ""
