"""A model of the catalog: its shape, and where its parameters are."""

from __future__ import annotations

from api.dashboard.catalog.entry import Cell, Column, Entry, Table, billions, figure, text
from costmodel.catalog.model_catalog import named_model
from costmodel.spec.model import ModelSpec
from costmodel.spec.params import ParamCounts

COLUMNS = (
    Column(name="Model"),
    Column(name="Parameters", figure=True),
    Column(name="Active", figure=True),
    Column(name="Layers", figure=True),
    Column(name="Width", figure=True),
    Column(name="Heads", figure=True),
    Column(name="KV heads", figure=True),
    Column(name="Experts", figure=True),
    Column(name="Vocabulary", figure=True),
    Column(name="Kind"),
    Column(name="Source"),
)


def row_of(name: str) -> tuple[Cell, ...]:
    """The entry in the list."""
    model = named_model(name)
    params, moe = model.params, model.moe
    return (
        text(model.name, f"/catalog/models/{name}"),
        Cell(text=billions(params.total), figure=True),
        Cell(text=billions(params.active) if moe else "", figure=True),
        figure(model.num_layers),
        figure(model.hidden_size),
        figure(model.num_heads),
        figure(model.num_kv_heads),
        Cell(text=f"{moe.top_k} of {moe.num_experts}" if moe else "", figure=True),
        figure(model.vocab_size),
        text(_kind(model)),
        text(model.source),
    )


def entry_of(name: str) -> Entry:
    """The entry's page.

    Raises:
        UnknownName: the catalog has no such model.
    """
    model = named_model(name)
    params = model.params
    active = f", of which a token passes through {billions(params.active)}" if model.moe else ""
    return Entry(
        kind="models",
        name=model.name,
        about=f"{_kind(model)} with {billions(params.total)} parameters{active}, {model.num_layers} decoder layers.",
        facts=_facts(model),
        source=model.source,
        retrieved="",
        tables=[_parts(params)],
        caveats=list(model.notes),
        links=(("Searches of it", f"/searches?model={name}"),),
    )


def _kind(model: ModelSpec) -> str:
    body = "Mixture of experts" if model.moe else "Dense"
    return f"{body}, hybrid" if model.hybrid else body


def _facts(model: ModelSpec) -> list[tuple[str, str]]:
    found = [
        ("Width", f"{model.hidden_size:,}"),
        ("Attention", _attention(model)),
        ("Vocabulary", f"{model.vocab_size:,} tokens, {'tied' if model.tie_word_embeddings else 'untied'} embeddings"),
        ("MLP", f"{model.ffn_hidden_size:,} wide, {'gated' if model.gated_mlp else 'plain'}"),
        ("Norms", f"{model.norms_per_layer} a layer"),
    ]
    if model.max_position_embeddings:
        found.append(("Positions", f"up to {model.max_position_embeddings:,} tokens"))
    if model.num_sliding_layers:
        found.append(("Windows", f"{model.num_sliding_layers} layers see {model.sliding_window:,} tokens"))
    if moe := model.moe:
        experts = f"{moe.num_experts}, {moe.top_k} a token, {moe.expert_ffn_hidden_size:,} wide"
        if moe.shared_expert_ffn_hidden_size:
            experts += f"; shared ones {moe.shared_expert_ffn_hidden_size:,} wide"
        found.append(("Experts", experts))
        dense = model.num_dense_layers
        found.append(("Layers", f"{model.num_layers - dense} with experts, {dense} dense"))
    if hybrid := model.hybrid:
        mixer = hybrid.mixer.kind.replace("_", " ")
        layers = f"{hybrid.num_attention_layers} with attention, {hybrid.num_mixer_layers} with {mixer}"
        found.append(("Mixers", layers))
    if model.num_mtp_layers:
        found.append(("Multi-token prediction", f"modules: {model.num_mtp_layers}"))
    return found


def _attention(model: ModelSpec) -> str:
    if mla := model.mla:
        return f"{model.num_heads} heads, latent (keys and values {mla.kv_lora_rank} wide)"
    kind = "multi-head" if model.num_kv_heads == model.num_heads else "grouped-query"
    kind = "multi-query" if model.num_kv_heads == 1 and model.num_heads > 1 else kind
    return f"{model.num_heads} heads of {model.head_dim}, {model.num_kv_heads} of keys and values ({kind})"


def _parts(params: ParamCounts) -> Table:
    moe, experts = params.num_moe_layers, params.num_experts
    parts = [
        ("embedding", params.embedding, 1),
        ("position embedding", params.position_embedding, 1),
        ("norm of the embedding", params.embedding_norm, 1),
        ("attention", params.attention_per_layer, params.num_attention_layers),
        ("mixer", params.mixer_per_layer, params.num_mixer_layers),
        ("dense MLP", params.dense_mlp_per_layer, params.num_dense_layers),
        ("router", params.router_per_layer, moe),
        ("shared experts", params.shared_expert_per_layer, moe),
        ("routed expert", params.per_expert, moe * experts),
        ("norms", params.norms_per_layer, params.num_layers),
        ("last norm", params.final_norm, 1),
        ("output projection", params.head, 1),
    ]
    rows = [
        (text(name), figure(each), figure(count), figure(each * count), _share(each * count, params.total))
        for name, each, count in parts
        if each * count
    ]
    rows.append((text("all"), figure(None), figure(None), figure(params.total), _share(params.total, params.total)))
    note = "The output projection is the embedding itself where the two are tied." if not params.head else ""
    if params.mtp:
        note = f"{note} Multi-token prediction adds {params.mtp:,} that count in neither total.".strip()
    return Table(
        id="parameters",
        title="Parameters by part",
        columns=(
            Column(name="Part"),
            Column(name="each", figure=True),
            Column(name="how many", figure=True),
            Column(name="together", figure=True),
            Column(name="share", unit="%", figure=True),
        ),
        rows=rows,
        note=note,
    )


def _share(count: int, whole: int) -> Cell:
    return Cell(text=f"{100 * count / whole:.1f}", figure=True, bar=round(100 * count / whole, 1))
