"""Which models the probe can't train, and how they can't be cut by tensor parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.scenario import Scenario
from costmodel.spec.model import ModelSpec, Moe
from costmodel.spec.plan import Plan
from planner.export.errors import Refusal

_NORMS = (1, 2, 4)


def model_refusals(scenario: Scenario, plan: Plan) -> Iterator[Refusal]:
    """Parts of the model that the probe has no module for, and cuts that its heads and widths don't allow."""
    model = scenario.model
    yield from _parts(model)
    window = model.sliding_window
    if window is not None and window < plan.seq_len:
        yield _of_model("sliding_window", window, f"sequences of {plan.seq_len} would need windowed attention")
    positions = model.max_position_embeddings
    if model.learned_position_embeddings and positions is not None and positions < plan.seq_len:
        yield _of_model("max_position_embeddings", positions, f"sequences have {plan.seq_len} tokens")
    if model.moe is not None:
        yield from _experts(model.moe, plan)
    for degree in ("ep", "etp"):
        if getattr(plan, degree) > 1:
            yield Refusal(field=degree, value=getattr(plan, degree), why="the probe keeps all experts on every device")
    yield from _cuts(model, plan)


def _of_model(field: str, value: object, why: str) -> Refusal:
    return Refusal(field=f"model.{field}", value=value, why=why)


def _parts(model: ModelSpec) -> Iterator[Refusal]:
    if model.mla is not None:
        yield _of_model("mla", "latent attention", "the probe has grouped-query attention alone")
    if model.hybrid is not None:
        yield _of_model("hybrid", model.hybrid.mixer.kind, "every layer of the probe has attention and an MLP")
    if model.num_mtp_layers:
        yield _of_model("num_mtp_layers", model.num_mtp_layers, "the probe predicts one token")
    for field in ("attention_sinks", "attention_output_gate"):
        if getattr(model, field):
            yield _of_model(field, True, "the probe's attention has none")
    if model.norms_per_layer not in _NORMS:
        yield _of_model("norms_per_layer", model.norms_per_layer, "layers of the probe have 1, 2 or 4")
    if model.head_dim % 2 and not model.learned_position_embeddings:
        yield _of_model("head_dim", model.head_dim, "rotary embeddings turn pairs of elements")


def _experts(moe: Moe, plan: Plan) -> Iterator[Refusal]:
    if moe.latent_size is not None:
        yield _of_model("moe.latent_size", moe.latent_size, "experts of the probe work on the hidden size")
    if moe.max_groups_per_token is not None:
        yield _of_model("moe.max_groups_per_token", moe.max_groups_per_token, "tokens of the probe go to any expert")
    if plan.tp > 1:
        yield Refusal(field="tp", value=plan.tp, why="the probe cuts no layers with experts")
    if plan.moe_capacity_factor is not None:
        yield Refusal(field="moe_capacity_factor", value=plan.moe_capacity_factor, why="the probe drops no tokens")
    if plan.ep_overlap:
        yield Refusal(field="ep_overlap", value=True, why="there is no exchange between experts to overlap")


def _cuts(model: ModelSpec, plan: Plan) -> Iterator[Refusal]:
    tp, tokens = plan.tp, plan.seq_len // plan.cp
    heads = tp * plan.cp if plan.cp > 1 and plan.cp_comm_type == "a2a" else tp
    field, value = ("tp", tp) if heads == tp else ("cp", plan.cp)
    if heads > 1:
        for name in ("num_heads", "num_kv_heads"):
            count = getattr(model, name)
            if count % heads:
                yield Refusal(field=field, value=value, why=f"{heads} ranks don't divide {name} {count}")
    if tp == 1:
        return
    if model.ffn_hidden_size % tp:
        yield Refusal(field="tp", value=tp, why=f"it doesn't divide ffn_hidden_size {model.ffn_hidden_size}")
    if plan.sequence_parallel and tokens % tp:
        yield Refusal(field="tp", value=tp, why=f"it doesn't divide the {tokens} tokens of a rank's sequence")
    if model.qk_norm == "full":
        yield _of_model("qk_norm", model.qk_norm, "a norm over all heads isn't cut by tensor parallelism")
