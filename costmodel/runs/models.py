"""The model of a run: from the columns of its shape, and from the catalog where the columns leave something open."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from costmodel.catalog import folders
from costmodel.catalog.model_catalog import load_model, model_names
from costmodel.errors import InvalidInput
from costmodel.runs.columns import Run
from costmodel.runs.model_words import leading_dense_layers, model_defaults, mtp_layers
from costmodel.runs.named_models import FAR_OFF, model_called, size_called
from costmodel.spec.model import Mla, ModelSpec, Moe
from costmodel.spec.validation import build

_BILLION = 10**9


@dataclass(frozen=True, kw_only=True)
class FoundModel:
    """A model, or None with the reason; and what was assumed."""

    spec: ModelSpec | None
    notes: tuple[str, ...] = ()


_SHAPE = (
    "model_name",
    "n_params_b",
    "layers",
    "hidden",
    "ffn_hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "experts",
    "top_k",
    "n_shared_experts",
    "moe_ffn_hidden",
    "moe_dense_layers",
    "mla",
    "swiglu",
    "tied_embeddings",
    "arch_notes",
)


def model_of(run: Run) -> FoundModel:
    """The model that a run trained. Runs of one shape share the result."""
    shape = tuple(getattr(run, column) for column in _SHAPE)
    return _model(shape, folders.user_dir())


@lru_cache(maxsize=8192)
def _model(shape: tuple[object, ...], _: Path | None) -> FoundModel:
    run = Run(id="", **dict(zip(_SHAPE, shape, strict=True)))  # type: ignore[arg-type]
    named = model_called(run.model_name)
    if run.layers is None or run.hidden is None:
        return _without_shape(run, named)
    if named is not None and _agrees(run, named):
        return FoundModel(spec=_with_stated_mtp(run, named))
    return _from_columns(run, named)


def _with_stated_mtp(run: Run, model: ModelSpec) -> ModelSpec:
    stated = mtp_layers(run.arch_notes)
    return model if stated is None else model.model_copy(update={"num_mtp_layers": stated})


def _without_shape(run: Run, named: ModelSpec | None) -> FoundModel:
    """From the name, else from the number of parameters."""
    if named is not None and _agrees(run, named) and _is_as_large(run, named):
        spec = _with_stated_mtp(run, named)
        return FoundModel(spec=spec, notes=(f"shape not given: {named.name} of the catalog taken by its name",))
    if run.n_params_b is None and (size := size_called(run.model_name)):
        run = _with(run, n_params_b=size)
    if run.n_params_b is None or run.experts:
        what = "neither its shape nor a known name nor its size is given"
        if named is not None:
            what = f"it is not {named.name} of the catalog by what the row says, and its shape is not given"
        return FoundModel(spec=None, notes=(f"model {run.model_name!r}: {what}",))
    layers, hidden = _ladder(run)
    found = _from_columns(_with(run, layers=layers, hidden=hidden), None)
    note = f"shape not given: {layers} layers of {hidden} taken for {run.n_params_b:g}B parameters"
    return FoundModel(spec=found.spec, notes=(note, *found.notes))


def _with(run: Run, **columns: float) -> Run:
    values = {column: getattr(run, column) for column in _SHAPE}
    return Run(id="", **(values | columns))


def _ladder(run: Run) -> tuple[int, int]:
    """Layers and width of a GPT of that size: ``N = 12 L h^2`` with layers in proportion to the width."""
    defaults = model_defaults()
    assert run.n_params_b is not None
    body = run.n_params_b * _BILLION
    if run.layers is not None:
        layers = run.layers
    elif run.hidden is not None:
        layers = max(round(body / (12 * run.hidden**2)), 1)
    else:
        layers = max(round((body / 12 * defaults.layers_per_hidden**2) ** (1 / 3)), 1)
    hidden = run.hidden or max(round((body / (12 * layers)) ** 0.5 / defaults.head_dim), 1) * defaults.head_dim
    return layers, hidden


def _is_as_large(run: Run, model: ModelSpec) -> bool:
    """Whether the row's count is that of the model, with or without what predicts further tokens; if it has one."""
    counts = (model.params.total / _BILLION, model.params.with_mtp / _BILLION)
    return run.n_params_b is None or any(abs(count / run.n_params_b - 1.0) <= FAR_OFF for count in counts)


def _agrees(run: Run, model: ModelSpec) -> bool:
    """Whether every shape column that is filled says what the catalog's model has."""
    moe = model.moe
    dense, step, _ = leading_dense_layers(run.moe_dense_layers)
    shared = moe.shared_expert_ffn_hidden_size // moe.expert_ffn_hidden_size if moe else 0
    pairs = (
        (run.layers, model.num_layers),
        (run.hidden, model.hidden_size),
        (run.heads, model.num_heads),
        (run.ffn_hidden, model.ffn_hidden_size) if moe is None else (None, 0),
        (run.kv_heads, model.num_kv_heads) if model.mla is None else (None, 0),
        (run.vocab, model.vocab_size),
        (run.experts or None, moe.num_experts if moe else 0),
        (run.top_k or None, moe.top_k if moe else 0),
        (run.moe_ffn_hidden or None, moe.expert_ffn_hidden_size if moe else 0),
        (run.n_shared_experts, shared) if moe else (None, 0),
        (dense, moe.num_dense_layers) if moe and run.moe_dense_layers else (None, 0),
        (step, moe.layer_step) if moe and run.moe_dense_layers else (None, 0),
        (run.head_dim, model.head_dim) if model.mla is None else (None, 0),
        (run.mla, model.mla is not None),
        (run.swiglu, model.gated_mlp),
        (run.tied_embeddings, model.tie_word_embeddings),
    )
    return all(found is None or found == own for found, own in pairs)


def _from_columns(run: Run, named: ModelSpec | None) -> FoundModel:
    defaults, notes = model_defaults(), []
    assert run.layers is not None, "the caller has a shape"
    assert run.hidden is not None, "the caller has a shape"
    heads = run.heads or max(run.hidden // (run.head_dim or defaults.head_dim), 1)
    gated = True if run.swiglu is None else run.swiglu
    ffn = run.ffn_hidden
    if ffn is None:
        ratio = defaults.gated_ffn_over_hidden if gated else defaults.ffn_over_hidden
        ffn = -(-round(run.hidden * ratio) // defaults.ffn_multiple) * defaults.ffn_multiple
        notes.append(f"ffn_hidden blank: {ffn}")
    vocab = run.vocab or (named.vocab_size if named else defaults.vocab)
    if run.vocab is None:
        notes.append(f"vocab blank: {vocab}")
    mla = _latent(run, heads) if run.mla else None
    kv_heads = run.kv_heads or heads
    if heads % kv_heads:
        notes.append(f"kv_heads {kv_heads} don't divide heads {heads}: one per head taken")
        kv_heads = heads
    fields = {
        "name": run.model_name or "run",
        "num_layers": run.layers,
        "hidden_size": run.hidden,
        "num_heads": heads,
        "num_kv_heads": heads if mla else kv_heads,
        "head_dim": mla.qk_head_dim if mla else run.head_dim or max(run.hidden // heads, 1),
        "ffn_hidden_size": ffn,
        "vocab_size": vocab,
        "gated_mlp": gated,
        "tie_word_embeddings": bool(run.tied_embeddings),
        "mla": mla,
        "moe": _experts(run, ffn, notes),
        "num_mtp_layers": mtp_layers(run.arch_notes) or 0,
    }
    try:
        spec = build(ModelSpec, fields, "model")
    except InvalidInput as error:
        return FoundModel(spec=None, notes=(f"shape of model {run.model_name!r}: {error}",))
    total = spec.params.total / _BILLION
    if run.n_params_b and abs(total / run.n_params_b - 1.0) > FAR_OFF:
        notes.append(f"the shape has {total:.3g}B parameters, n_params_b says {run.n_params_b:g}")
    return FoundModel(spec=spec, notes=tuple(notes))


def _experts(run: Run, ffn: int, notes: list[str]) -> Moe | None:
    if not run.experts or run.experts < 2:
        return None
    width = run.moe_ffn_hidden or ffn
    if not run.moe_ffn_hidden:
        notes.append(f"moe_ffn_hidden blank: {width}")
    top_k = run.top_k or 1
    if run.top_k is None:
        notes.append("top_k blank: 1")
    dense, every, said = leading_dense_layers(run.moe_dense_layers)
    notes += said
    if dense > (run.layers or 0):
        notes.append(f"{dense} dense layers of {run.layers}: all are taken to be dense")
        return None
    return Moe(
        num_experts=run.experts,
        top_k=min(top_k, run.experts),
        expert_ffn_hidden_size=width,
        shared_expert_ffn_hidden_size=(run.n_shared_experts or 0) * width,
        num_dense_layers=dense,
        layer_step=every,
    )


def _latent(run: Run, heads: int) -> Mla:
    """The widths of latent attention, which no column holds: those of a catalog model of the same width and heads."""
    models = _latent_models(folders.user_dir())
    same = [model for model in models if (model.hidden_size, model.num_heads) == (run.hidden, heads)]
    found = same[0] if same else load_model(model_defaults().latent_attention)
    assert found.mla is not None
    return found.mla


@lru_cache(maxsize=4)
def _latent_models(_: Path | None) -> tuple[ModelSpec, ...]:
    return tuple(model for model in map(load_model, model_names()) if model.mla is not None)
