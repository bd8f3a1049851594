"""The numbers of a scenario in the form that terms read: every field a ``Num``.

A field is a scalar for one scenario, or a column over runs.

Symbols in formulas: h hidden, a heads, k KV heads, f feed-forward width, V vocabulary, s sequence, b micro-batch, L
layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from costmodel.arrays import Ints, Num, num
from costmodel.calibration.calibration import Parameters, stack
from costmodel.errors import InvalidInput
from costmodel.scenario import Scenario
from costmodel.spec.cluster import SCALE_UP_KINDS
from costmodel.spec.model import ModelSpec

MAX_TIERS = 3
_UNBOUNDED = float(2**62)
_SWITCHED_KINDS = SCALE_UP_KINDS - {"pcie"}


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A model as numbers. Widths are in elements; parameter counts are of one layer before any cut.

    Attributes:
        qk_head_dim, v_head_dim: width of one head in scores and in values.
        q_latent, kv_latent: inputs of the two up-projections of multi-head latent attention, 0 without.
        kv_rope_width: the rotary part of the compressed keys, 0 without.
        window: sliding window in tokens; ``window_share`` is the share of layers that use it.
        attention_share, mixer_share, mlp_share: shares of the layers that have attention, a mixer with a fixed-size
            state, an MLP: 1, 0, 1 but for hybrids, whose layers are priced as the average over all of them.
        attention_gate: 1 where the query projection computes an output gate too.
        mixer_input, mixer_inner, mixer_mixed: of a mixer the widths of its input projection, of its output
            projection's input, and of keys, queries and values together.
        dense_layers: layers without experts; all when there are none.
        expert_hidden: width that experts read and write: ``hidden``, or the latent that tokens are projected to.
        mtp_depth: of one prediction module, in average layers: 1 where layers are alike.
        group_limit, groups: a token visits experts of so many of so many groups; 1 of 1 when unlimited.
        attention_params, dense_mlp_params, expert_params: of the average layer, expert_params of one expert in it;
            ``moe_shared_params``: router and shared experts.
    """

    hidden: Num
    heads: Num
    kv_heads: Num
    qk_head_dim: Num
    v_head_dim: Num
    is_mla: Num
    q_latent: Num
    kv_latent: Num
    kv_rope_width: Num
    window: Num
    window_share: Num
    attention_share: Num
    mixer_share: Num
    mlp_share: Num
    attention_gate: Num
    mixer_input: Num
    mixer_inner: Num
    mixer_mixed: Num
    ffn: Num
    gated: Num
    vocab: Num
    dense_layers: Num
    moe_layers: Num
    experts: Num
    top_k: Num
    expert_ffn: Num
    expert_hidden: Num
    shared_ffn: Num
    group_limit: Num
    groups: Num
    mtp_layers: Num
    mtp_depth: Num
    tied: Num
    norms: Num
    attention_params: Num
    dense_mlp_params: Num
    expert_params: Num
    moe_shared_params: Num
    norm_params: Num
    other_params: Num

    @classmethod
    def of(cls, model: ModelSpec) -> ModelFacts:
        """The facts of one model."""
        mla, moe, params = model.mla, model.moe, model.params
        mixer = model.hybrid.mixer if model.hybrid else None
        layers, dense = model.num_layers, model.num_dense_layers
        attention, mixers, mlps = (
            count / layers for count in (model.num_attention_layers, model.num_mixer_layers, model.num_mlp_layers)
        )
        qk_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim if mla else model.head_dim
        return cls(
            hidden=num(model.hidden_size),
            heads=num(model.num_heads),
            kv_heads=num(model.num_heads if mla else model.num_kv_heads),
            qk_head_dim=num(qk_dim),
            v_head_dim=num(mla.v_head_dim if mla else model.head_dim),
            is_mla=num(mla is not None),
            q_latent=num((mla.q_lora_rank or 0) if mla else 0),
            kv_latent=num(mla.kv_lora_rank if mla else 0),
            kv_rope_width=num(mla.qk_rope_head_dim if mla else 0),
            window=num(model.sliding_window or _UNBOUNDED),
            window_share=num(model.num_sliding_layers / model.num_attention_layers),
            attention_share=num(attention),
            mixer_share=num(mixers),
            mlp_share=num(mlps),
            attention_gate=num(model.attention_output_gate),
            mixer_input=num(mixer.projected_width if mixer else 0),
            mixer_inner=num(mixer.inner_width if mixer else 0),
            mixer_mixed=num(mixer.mixed_width if mixer else 0),
            ffn=num(model.ffn_hidden_size),
            gated=num(model.gated_mlp),
            vocab=num(model.vocab_size),
            dense_layers=num(dense),
            moe_layers=num(layers - dense),
            experts=num(moe.num_experts if moe else 1),
            top_k=num(moe.top_k if moe else 1),
            expert_ffn=num(moe.expert_ffn_hidden_size if moe else 0),
            expert_hidden=num((moe.latent_size if moe else None) or model.hidden_size),
            shared_ffn=num(moe.shared_expert_ffn_hidden_size if moe else 0),
            group_limit=num((moe.max_groups_per_token if moe else None) or 1),
            groups=num((moe.num_groups if moe and moe.max_groups_per_token else None) or 1),
            mtp_layers=num(model.num_mtp_layers),
            mtp_depth=num(_mtp_depth(model)),
            tied=num(model.tie_word_embeddings),
            norms=num(model.norms_per_layer),
            attention_params=num(attention * params.attention_per_layer + mixers * params.mixer_per_layer),
            dense_mlp_params=num(mlps * params.dense_mlp_per_layer),
            expert_params=num(mlps * params.per_expert),
            moe_shared_params=num(mlps * params.expert_mlp(0)),
            norm_params=num(params.norms_per_layer),
            other_params=num(params.position_embedding + params.embedding_norm + params.final_norm),
        )


def _mtp_depth(model: ModelSpec) -> float:
    """A prediction module has attention and an MLP; where a layer is only one of them that is more than a layer."""
    if model.num_mlp_layers == model.num_layers:
        return 1.0
    params, layers = model.params, model.num_layers
    mlp = params.expert_mlp(params.num_experts) if model.moe else params.dense_mlp_per_layer
    mixers = params.num_attention_layers * params.attention_per_layer + params.num_mixer_layers * params.mixer_per_layer
    average = (mixers + model.num_mlp_layers * mlp) / layers + params.norms_per_layer
    return (params.attention_per_layer + mlp + 2 * params.norms_per_layer) / average


@dataclass(frozen=True, kw_only=True)
class HardwareFacts:
    """An accelerator and its network. Tiers are padded to ``MAX_TIERS`` by repeating the outermost.

    Attributes:
        tier_devices: devices in one unit of each tier, innermost first; the outermost is unbounded.
        tier_bandwidth: bytes/s per device and direction, after oversubscription.
        tier_in_network: 1 where the switch reduces.
        tier_scale_up, tier_pcie: 1 where the links are of that kind; neither is a network.
    """

    peak_flops: Num
    attention_peak_flops: Num
    memory_bandwidth: Num
    tier_devices: tuple[Num, ...]
    tier_bandwidth: tuple[Num, ...]
    tier_in_network: tuple[Num, ...]
    tier_scale_up: tuple[Num, ...]
    tier_pcie: tuple[Num, ...]


@dataclass(frozen=True, kw_only=True)
class WorkFacts:
    """The step and the recipe: bytes per parameter and per activation element; 1 or 0 for what is or isn't in use.

    Attributes:
        param_bytes: of a parameter as the passes read it; ``kept_param_bytes``: as its rank keeps it.
    """

    seq_len: Num
    param_bytes: Num
    kept_param_bytes: Num
    gradient_bytes: Num
    optimizer_bytes: Num
    activation_bytes: Num
    vocab_multiple: Num
    recompute_norms: Num
    recompute_activation: Num
    recompute_attention: Num
    recompute_latent: Num
    sequence_parallel: Num
    fused_attention: Num


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that terms may read beside the plan."""

    model: ModelFacts
    hardware: HardwareFacts
    work: WorkFacts
    cal: Parameters

    @classmethod
    def of(cls, scenario: Scenario) -> Facts:
        """The facts of one scenario, as scalars."""
        return cls(
            model=ModelFacts.of(scenario.model),
            hardware=_hardware_facts(scenario),
            work=_work_facts(scenario),
            cal=scenario.resolved.parameters,
        )

    @classmethod
    def columns(cls, scenarios: Sequence[Scenario]) -> Facts:
        """The facts of many scenarios, one row each."""
        rows = [cls.of(scenario) for scenario in scenarios]
        return cls(
            model=_stacked([row.model for row in rows]),
            hardware=_stacked([row.hardware for row in rows]),
            work=_stacked([row.work for row in rows]),
            cal=stack([row.cal for row in rows]),
        )

    def take(self, rows: slice | Ints) -> Facts:
        """The same facts for some rows; scalars hold for any."""
        return Facts(
            model=_sliced(self.model, rows),
            hardware=_sliced(self.hardware, rows),
            work=_sliced(self.work, rows),
            cal=_sliced(self.cal, rows),
        )


def _hardware_facts(scenario: Scenario) -> HardwareFacts:
    cluster, precision = scenario.cluster, scenario.workload.precision
    accelerator = cluster.accelerator
    sizes = [float(tier.group_devices or _UNBOUNDED) for tier in cluster.tiers] or [_UNBOUNDED]
    sizes[-1] = _UNBOUNDED
    rates = [tier.effective_bandwidth_bytes_per_s for tier in cluster.tiers] or [
        accelerator.memory_bandwidth_bytes_per_s
    ]
    in_network = [float(tier.in_network_reduction) for tier in cluster.tiers] or [0.0]
    kinds = [tier.kind for tier in cluster.tiers] or ["nvlink"]
    padding = MAX_TIERS - len(sizes)
    if padding < 0:
        raise InvalidInput("cluster.tiers", len(sizes), f"at most {MAX_TIERS} tiers are priced")
    return HardwareFacts(
        peak_flops=num(accelerator.peak(precision.compute)),
        attention_peak_flops=num(accelerator.peak(precision.attention_compute)),
        memory_bandwidth=num(accelerator.memory_bandwidth_bytes_per_s),
        tier_devices=tuple(num(size) for size in sizes + [_UNBOUNDED] * padding),
        tier_bandwidth=tuple(num(rate) for rate in rates + [rates[-1]] * padding),
        tier_in_network=tuple(num(flag) for flag in in_network + [in_network[-1]] * padding),
        tier_scale_up=tuple(num(kind in _SWITCHED_KINDS) for kind in kinds + [kinds[-1]] * padding),
        tier_pcie=tuple(num(kind == "pcie") for kind in kinds + [kinds[-1]] * padding),
    )


def _work_facts(scenario: Scenario) -> WorkFacts:
    workload, framework = scenario.workload, scenario.framework
    precision, optimizer = workload.precision, workload.optimizer
    modules = set(framework.selective_modules)
    read = precision.param_bytes + precision.weight_copy_bytes
    master = optimizer.master_bytes if precision.keeps_master else 0
    # A master copy that is the parameter replaces what would lie beside it.
    is_master = framework.fp32_parameters and master > 0
    return WorkFacts(
        seq_len=num(workload.seq_len),
        param_bytes=num(read),
        kept_param_bytes=num(master if is_master else read),
        gradient_bytes=num(scenario.gradient_bytes),
        optimizer_bytes=num((0 if is_master else master) + optimizer.moment_bytes),
        activation_bytes=num(precision.activation_bytes),
        vocab_multiple=num(framework.vocab_padding_multiple),
        recompute_norms=num("layernorm" in modules),
        recompute_activation=num("moe_act" in modules),
        recompute_attention=num("core_attn" in modules),
        recompute_latent=num("mla_up_proj" in modules),
        sequence_parallel=num(scenario.sequence_parallel),
        fused_attention=num(scenario.fused_attention),
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
