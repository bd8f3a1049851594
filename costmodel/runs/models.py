"""The model of a run: from the columns of its shape, and from the catalog where the columns leave something open."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from costmodel.catalog import folders
from costmodel.catalog.model_catalog import load_model, model_names
from costmodel.errors import InvalidInput
from costmodel.runs.columns import Run
from costmodel.runs.words import model_defaults
from costmodel.spec.model import Mla, ModelSpec, Moe
from costmodel.spec.validation import build

_BILLION = 10**9
_FAR_OFF = 0.15


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
    named = _by_name(run.model_name)
    if run.layers is None or run.hidden is None:
        return _without_shape(run, named)
    if named is not None and _agrees(run, named):
        return FoundModel(spec=named)
    return _from_columns(run, named)


def _without_shape(run: Run, named: ModelSpec | None) -> FoundModel:
    """From the name, else from the number of parameters."""
    if named is not None:
        return FoundModel(spec=named, notes=(f"shape not given: {named.name} of the catalog taken by its name",))
    if run.n_params_b is None or run.experts:
        return FoundModel(
            spec=None, notes=(f"model {run.model_name!r}: neither its shape nor a known name nor its size is given",)
        )
    layers, hidden = _ladder(run)
    sized = _with_shape(run, layers, hidden)
    found = _from_columns(sized, None)
    note = f"shape not given: {layers} layers of {hidden} taken for {run.n_params_b:g}B parameters"
    return FoundModel(spec=found.spec, notes=(note, *found.notes))


def _with_shape(run: Run, layers: int, hidden: int) -> Run:
    values = {column: getattr(run, column) for column in _SHAPE}
    return Run(id="", **(values | {"layers": layers, "hidden": hidden}))


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


def _agrees(run: Run, model: ModelSpec) -> bool:
    """Whether every shape column that is filled says what the catalog's model has."""
    moe = model.moe
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
        "num_mtp_layers": 1 if re.search(r"\bwith 1 mtp", run.arch_notes.lower()) else 0,
    }
    try:
        spec = build(ModelSpec, fields, "model")
    except InvalidInput as error:
        return FoundModel(spec=None, notes=(f"shape of model {run.model_name!r}: {error}",))
    total = spec.params.total / _BILLION
    if run.n_params_b and abs(total / run.n_params_b - 1.0) > _FAR_OFF:
        notes.append(f"the shape has {total:.3g}B parameters, n_params_b says {run.n_params_b:g}")
    return FoundModel(spec=spec, notes=tuple(notes))


def _experts(run: Run, ffn: int, notes: list[str]) -> Moe | None:
    if not run.experts or run.experts < 2:
        return None
    width = run.moe_ffn_hidden or ffn
    top_k = run.top_k or 1
    if run.top_k is None:
        notes.append("top_k blank: 1")
    text = run.moe_dense_layers.lower()
    first = re.search(r"first (\d+)", text)
    dense = min(int(first.group(1)[:6]) if first else 0, run.layers or 0)
    every = 2 if re.search(r"every (other|2nd|second)", text) else 1
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


def _by_name(text: str) -> ModelSpec | None:
    """The model whose whole name the text begins with, the longest such; else the shortest that begins with the text.

    ``Nemotron_3_Nano`` and ``nemotron-3-nano-30b-a3b`` begin alike, whatever separates their words.
    """
    wanted = "".join(_words_of(text))
    if not any(letter.isdigit() for letter in wanted):
        return None  # a family's name, not a model's
    said, unfinished = [], []
    for name in model_names():
        words = _words_of(name)
        whole = "".join(words)
        number_goes_on = whole[-1].isdigit() and wanted[len(whole) :][:1].isdigit()
        if wanted.startswith(whole) and not number_goes_on:
            said.append(name)
        elif any(wanted == "".join(words[:count]) for count in range(1, len(words))):
            unfinished.append(name)
    if said:
        return load_model(min(said, key=lambda name: (-len(name), name)))
    return load_model(min(unfinished, key=lambda name: (len(name), name))) if unfinished else None


def _words_of(text: str) -> list[str]:
    """Runs of letters and runs of digits."""
    return re.findall(r"[a-z]+|\d+", text.lower())
