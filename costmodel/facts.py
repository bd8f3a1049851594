"""The numbers of a scenario in the form that terms read: every field a ``Num``.

A field is a scalar for one scenario, or a column over runs.

Symbols in formulas: h hidden, a heads, k KV heads, f feed-forward width, V vocabulary, s sequence, b micro-batch, L
layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from costmodel.arrays import Ints, Num, num
from costmodel.calibration.parameters import Parameters, stack
from costmodel.catalog.collective_catalog import published_sweeps
from costmodel.curves import NO_CURVE, NO_CURVES, Curve, CurveBook
from costmodel.errors import InvalidInput
from costmodel.model_facts import UNBOUNDED, ModelFacts
from costmodel.recipe_bytes import recipe_bytes
from costmodel.recompute_modules import modules_code
from costmodel.scenario import Scenario
from costmodel.spec.cluster import SCALE_UP_KINDS, ClusterSpec
from costmodel.spec.published_sweep import measured_on

MAX_TIERS = 3
_SWITCHED_KINDS = SCALE_UP_KINDS - {"pcie"}


@dataclass(frozen=True, kw_only=True)
class HardwareFacts:
    """An accelerator and its network. Tiers are padded to ``MAX_TIERS`` by repeating the outermost.

    Attributes:
        peak_flops: of the large GEMMs, those of layers that stay in higher precision among them.
        attention_peak_flops, head_peak_flops: of the attention core, and of the head.
        vector_peak_flops: in 32 bits outside of the matrix units; infinite where nobody says.
        host_bandwidth: bytes/s between a device and its host, one direction; infinite where nobody knows: no search
            then has such a plan, and a run of one is priced by the hosts' memory alone.
        host_memory: bytes of a node; infinite where nobody knows.
        tier_devices: devices in one unit of each tier, innermost first; the outermost is unbounded.
        tier_bandwidth: bytes/s per device and direction, after oversubscription.
        tier_in_network: 1 where the switch reduces.
        tier_scale_up, tier_pcie: 1 where the links are of that kind; neither is a network.
        curve_set: position of the cluster's measured collectives in ``Facts.curves``.
    """

    peak_flops: Num
    attention_peak_flops: Num
    head_peak_flops: Num
    vector_peak_flops: Num
    memory_bandwidth: Num
    host_bandwidth: Num
    host_memory: Num
    devices_per_node: Num
    tier_devices: tuple[Num, ...]
    tier_bandwidth: tuple[Num, ...]
    tier_in_network: tuple[Num, ...]
    tier_scale_up: tuple[Num, ...]
    tier_pcie: tuple[Num, ...]
    curve_set: Num


@dataclass(frozen=True, kw_only=True)
class WorkFacts:
    """The step and the recipe: bytes per parameter and per activation element; 1 or 0 for what is or isn't in use.

    Attributes:
        param_bytes: of a parameter as the passes read it; ``kept_param_bytes``: as its rank keeps it.
        gathered_bytes: of a layer's parameter that was gathered, with the quantised copies that a pass uses.
        absent_param_bytes: of what a layer's parameter has of the former no more once it is kept quantised alone.
        kept_copy_bytes: of quantised copies that lie beside a layer's parameter all the time.
        gradient_copy_bytes: of each whole gradient's copy beside the accumulated one; ``unsharded_copy_bytes``: the
            same where nothing is sharded over several replicas alone.
        optimizer_bytes: of master copy and moments, where the former is not the parameter.
        moment_bytes: of one of two 32-bit moments; 0 where the optimizer has fewer or narrower ones.
        optimizer_traffic: what the optimizer step moves, over what it moves under AdamW with the usual gradients.
        newton_schulz: iterations that the optimizer spends on every matrix; 0 where its step is elementwise.
        gradient_wire, parameter_wire: bytes on the wire, over those of the usual reduction and gather.
        stage_2_gathers: 1 where stage 2 cuts parameters and gathers them for every micro-batch.
        stage_1_deals_tensors: 1 where stage 1 all-reduces gradients, and each rank broadcasts the tensors that it owns.
        bucket_bytes, bucket_params, bucket_params_per_rank: size of a bucket of gradients; all 0 where it is a layer.
        quantise_bytes, quantise_weight_bytes: moved to quantise one activation, one parameter; 0 where nothing is.
        quantise_alone: share of a pass that a tensor still needs whose kernel could write it quantised.
        saved_input_bytes: of one saved element that only products read again; ``saved_twice_bytes``: what is kept
            quantised of one whose 16-bit form is kept all the same.
        selects_products: 1 where those are all but the outputs of attention and of every second product.
        gradients_follow_optimizer: whether gradients leave the device with the optimizer's state; else they stay.
        offloads_parameters_alone: whether offloaded parameters leave gradients and optimizer behind.
        host_runs_optimizer: whether the host's processors run the step on state that lives there.
        usual_modules: code of what selective recompute runs again unless a plan names modules of its own.
    """

    seq_len: Num
    param_bytes: Num
    kept_param_bytes: Num
    gathered_bytes: Num
    absent_param_bytes: Num
    kept_copy_bytes: Num
    gradient_bytes: Num
    gradient_copy_bytes: Num
    unsharded_copy_bytes: Num
    optimizer_bytes: Num
    moment_bytes: Num
    optimizer_traffic: Num
    newton_schulz: Num
    gradient_wire: Num
    parameter_wire: Num
    stage_2_gathers: Num
    stage_1_deals_tensors: Num
    bucket_bytes: Num
    bucket_params: Num
    bucket_params_per_rank: Num
    quantise_bytes: Num
    quantise_weight_bytes: Num
    quantise_alone: Num
    activation_bytes: Num
    saved_input_bytes: Num
    saved_twice_bytes: Num
    vocab_multiple: Num
    usual_modules: Num
    selects_products: Num
    gradients_follow_optimizer: Num
    offloads_parameters_alone: Num
    host_runs_optimizer: Num
    sequence_parallel: Num
    fused_attention: Num
    fused_pointwise: Num
    expert_streams: Num


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that terms may read beside the plan.

    Attributes:
        curves: measured collectives of every cluster that a row is about.
    """

    model: ModelFacts
    hardware: HardwareFacts
    work: WorkFacts
    cal: Parameters
    curves: CurveBook = NO_CURVES

    @classmethod
    def of(cls, scenario: Scenario) -> Facts:
        """The facts of one scenario, as scalars."""
        curves = _curves_of(scenario.cluster)
        return cls(
            model=ModelFacts.of(scenario.model),
            hardware=_hardware_facts(scenario, curve_set=0 if curves else NO_CURVE),
            work=_work_facts(scenario),
            cal=scenario.resolved.parameters,
            curves=CurveBook([curves] if curves else []),
        )

    @classmethod
    def columns(cls, scenarios: Sequence[Scenario]) -> Facts:
        """The facts of many scenarios, one row each."""
        rows = [cls.of(scenario) for scenario in scenarios]
        position = {
            curves: index for index, curves in enumerate(dict.fromkeys(s for row in rows for s in row.curves.sets))
        }
        sets = [position[row.curves.sets[0]] if row.curves.sets else NO_CURVE for row in rows]
        return cls(
            model=_stacked([row.model for row in rows]),
            hardware=replace(_stacked([row.hardware for row in rows]), curve_set=num(sets)),
            work=_stacked([row.work for row in rows]),
            cal=stack([row.cal for row in rows]),
            curves=CurveBook(position),
        )

    def take(self, rows: slice | Ints) -> Facts:
        """The same facts for some rows; scalars hold for any."""
        return Facts(
            model=_sliced(self.model, rows),
            hardware=_sliced(self.hardware, rows),
            work=_sliced(self.work, rows),
            cal=_sliced(self.cal, rows),
            curves=self.curves,
        )


@lru_cache(maxsize=1024)
def _curves_of(cluster: ClusterSpec) -> tuple[Curve, ...]:
    return tuple(Curve.of(measured) for measured in measured_on(cluster, published_sweeps()))


def _hardware_facts(scenario: Scenario, curve_set: int) -> HardwareFacts:
    cluster, precision = scenario.cluster, scenario.workload.precision
    accelerator = cluster.accelerator
    sizes = [float(tier.group_devices or UNBOUNDED) for tier in cluster.tiers] or [UNBOUNDED]
    sizes[-1] = UNBOUNDED
    rates = [tier.effective_bandwidth_bytes_per_s for tier in cluster.tiers] or [
        accelerator.memory_bandwidth_bytes_per_s
    ]
    in_network = [float(tier.in_network_reduction) for tier in cluster.tiers] or [0.0]
    kinds = [tier.kind for tier in cluster.tiers] or ["nvlink"]
    padding = MAX_TIERS - len(sizes)
    if padding < 0:
        raise InvalidInput("cluster.tiers", len(sizes), f"at most {MAX_TIERS} tiers are priced")
    # Of what a device lacks nothing is priced: a rule refuses it, and no number comes of what is none.
    peaks = accelerator.peak_flops_per_s
    peak, wide = (peaks.get(needed, np.nan) for needed in (precision.compute, precision.attention_compute))
    # Layers that stay in higher precision take their share of the FLOPs at that rate.
    kept = precision.kept_layer_share
    return HardwareFacts(
        peak_flops=num(1.0 / ((1.0 - kept) / peak + kept / wide)),
        attention_peak_flops=num(wide),
        head_peak_flops=num(wide if "head" in precision.kept else peak),
        vector_peak_flops=num(peaks.get("fp32", np.inf)),
        memory_bandwidth=num(accelerator.memory_bandwidth_bytes_per_s),
        host_bandwidth=num(cluster.host_bandwidth_bytes_per_s or np.inf),
        host_memory=num(cluster.host_memory_bytes_per_node or np.inf),
        devices_per_node=num(cluster.devices_per_node),
        tier_devices=tuple(num(size) for size in sizes + [UNBOUNDED] * padding),
        tier_bandwidth=tuple(num(rate) for rate in rates + [rates[-1]] * padding),
        tier_in_network=tuple(num(flag) for flag in in_network + [in_network[-1]] * padding),
        tier_scale_up=tuple(num(kind in _SWITCHED_KINDS) for kind in kinds + [kinds[-1]] * padding),
        tier_pcie=tuple(num(kind == "pcie") for kind in kinds + [kinds[-1]] * padding),
        curve_set=num(curve_set),
    )


def _work_facts(scenario: Scenario) -> WorkFacts:
    workload, framework = scenario.workload, scenario.framework
    precision, quantisation = workload.precision, workload.precision.quantisation
    of = recipe_bytes(scenario)
    lower, buckets = 1.0 - precision.kept_layer_share, framework.gradient_buckets
    element = float(precision.activation_bytes)
    gradient_copy = framework.gradient_copies.get(precision.name, 0)
    saved = quantisation.copy_bytes if quantisation and framework.saves_quantised_inputs else None
    gathered = quantisation.copy_bytes if quantisation and precision.name in framework.quantised_gathers else None
    return WorkFacts(
        seq_len=num(workload.seq_len),
        param_bytes=num(of.read),
        kept_param_bytes=num(of.kept),
        # Gathered in 8 bits, a parameter is there in 8 bits only: products read it along either edge.
        gathered_bytes=num(of.read + of.copies if gathered is None else gathered),
        absent_param_bytes=num(lower * of.read if precision.name in framework.quantised_parameters else 0.0),
        kept_copy_bytes=num(of.kept_copies),
        gradient_bytes=num(scenario.gradient_bytes),
        gradient_copy_bytes=num(0 if framework.copies_when_unsharded else gradient_copy),
        unsharded_copy_bytes=num(gradient_copy if framework.copies_when_unsharded else 0),
        optimizer_bytes=num(of.optimizer),
        moment_bytes=num(of.moment),
        optimizer_traffic=num(of.traffic_over_adamw),
        newton_schulz=num(workload.optimizer.newton_schulz_iterations),
        gradient_wire=num(scenario.gradient_wire_share),
        parameter_wire=num(1.0 if gathered is None else gathered / precision.param_bytes),
        stage_2_gathers=num(framework.stage_2_gathers),
        stage_1_deals_tensors=num(framework.stage_1_deals_tensors),
        bucket_bytes=num(buckets.bytes if buckets else 0),
        bucket_params=num(buckets.parameters if buckets else 0),
        bucket_params_per_rank=num(buckets.parameters_per_rank if buckets else 0),
        quantise_bytes=num(quantisation.pass_bytes * lower if quantisation else 0),
        quantise_weight_bytes=num(quantisation.weight_pass_bytes * lower if quantisation else 0),
        quantise_alone=num(0 if quantisation and quantisation.fused else 1),
        activation_bytes=num(element),
        saved_input_bytes=num(element if saved is None else lower * saved + (1.0 - lower) * element),
        saved_twice_bytes=num(0.0 if saved is None else lower * saved),
        vocab_multiple=num(framework.vocab_padding_multiple),
        usual_modules=num(modules_code(framework.selective_modules)),
        selects_products=num(framework.selects_products),
        gradients_follow_optimizer=num(framework.has("gradients_follow_optimizer")),
        offloads_parameters_alone=num(framework.has("offloads_parameters_alone")),
        host_runs_optimizer=num(not framework.has("optimizer_visits_device")),
        sequence_parallel=num(scenario.sequence_parallel),
        fused_attention=num(scenario.fused_attention),
        fused_pointwise=num(scenario.fused_pointwise),
        expert_streams=num(framework.expert_streams or np.inf),
    )


_Group = TypeVar("_Group", ModelFacts, HardwareFacts, WorkFacts, Parameters)


def _sliced(group: _Group, rows: slice | Ints) -> _Group:
    """Columns cut to ``rows``; scalars as they are."""

    def cut(value: Num) -> Num:
        return value if value.ndim == 0 else value[rows]

    values: dict[str, Any] = {}
    for field in fields(group):
        value = getattr(group, field.name)
        values[field.name] = tuple(cut(part) for part in value) if isinstance(value, tuple) else cut(value)
    return type(group)(**values)


def _stacked(rows: list[_Group]) -> _Group:
    """One object whose every field is the column of that field over ``rows``."""
    columns: dict[str, Any] = {}
    for field in fields(rows[0]):
        values = [getattr(row, field.name) for row in rows]
        if isinstance(values[0], tuple):
            columns[field.name] = tuple(num([value[i] for value in values]) for i in range(len(values[0])))
        else:
            columns[field.name] = num(values)
    return type(rows[0])(**columns)
