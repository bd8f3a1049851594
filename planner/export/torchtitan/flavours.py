"""torchtitan's flavours of models: which one a model is, by its shape and not by its name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Literal

from costmodel.catalog.documents import read_mapping
from costmodel.catalog.model_catalog import load_model
from costmodel.spec.base import Frozen, IsoDate, PositiveInt
from costmodel.spec.model import ModelSpec
from costmodel.spec.validation import build
from planner.export.sheet import Sheet

# What a model is called and how far its positions were trained is no shape.
_NO_SHAPE = frozenset({"name", "source", "notes", "max_position_embeddings"})
# Models that differ in more are other models.
_SIBLINGS = 2


class Flavour(Frozen):
    """One flavour.

    Attributes:
        model: of our catalog.
        module: of ``torchtitan.models``.
        recipe: the function of its ``config_registry`` that a recipe starts from.
        since: the first version that has it; None where all do.
        longest: tokens of a sequence, at most.
        lacks: axes that 0.2 can't run it with.
    """

    model: str
    module: str
    flavour: str
    recipe: str
    since: str | None = None
    longest: PositiveInt
    lacks: tuple[Literal["cp", "pp"], ...] = ()


class _Flavours(Frozen):
    source: str
    retrieved: IsoDate
    flavours: tuple[Flavour, ...]


@cache
def flavours() -> tuple[Flavour, ...]:
    """All of them."""
    found = read_mapping(files("planner.export.torchtitan") / "flavours.yaml", "flavours")
    return build(_Flavours, found, where="flavours").flavours


def flavour_of(sheet: Sheet) -> Flavour | None:
    """The flavour that the sheet's model is; without one the model is refused, by what sets it apart."""
    model = sheet.job.model
    known = [entry for entry in flavours() if entry.since is None or _at_least(sheet, entry.since)]
    apart = {entry.model: _differences(model, load_model(entry.model)) for entry in known}
    nearest = min(known, key=lambda entry: len(apart[entry.model]))
    names = apart[nearest.model]
    if names and len(names) <= _SIBLINGS:
        sibling = load_model(nearest.model)
        for name in names:
            why = f"{nearest.module} {nearest.flavour}, the nearest flavour, has {_told(getattr(sibling, name))}"
            sheet.refuse(f"model.{name}", _told(getattr(model, name)), why)
        return None
    if names:
        why = f"torchtitan has no flavour of its shape; one of yours would have {_arguments(model)}"
        sheet.refuse("model.name", model.name, why)
        return None
    return nearest


def flavour_named(module: str | None, flavour: str | None = None, recipe: str | None = None) -> Flavour | None:
    """The flavour of this name, or the one whose own recipe it is; None where none is known."""
    for entry in flavours():
        own = entry.recipe == recipe and entry.flavour.lower().replace("-", "_") in (recipe or "")
        if (entry.module == module or module is None) and (entry.flavour == flavour or (flavour is None and own)):
            return entry
    return None


def _at_least(sheet: Sheet, since: str) -> bool:
    versions = sheet.words.versions
    return sheet.version is None or versions.index(sheet.version) >= versions.index(since)


def _differences(model: ModelSpec, other: ModelSpec) -> list[str]:
    names = [name for name in ModelSpec.model_fields if name not in _NO_SHAPE]
    # Whether the extra layers that predict further tokens are trained is a choice of the run, not of the shape.
    return [n for n in names if n != "num_mtp_layers" and getattr(model, n) != getattr(other, n)]


def _told(value: Any) -> Any:
    return value.model_dump(exclude_defaults=True) if isinstance(value, Frozen) else value


def _arguments(model: ModelSpec) -> str:
    """The arguments that torchtitan's builders of layers take."""
    found: dict[str, Any] = {
        "dim": model.hidden_size,
        "n_layers": model.num_layers,
        "n_heads": model.num_heads,
        "n_kv_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "hidden_dim": model.ffn_hidden_size,
        "vocab_size": model.vocab_size,
        "qk_norm": model.qk_norm != "none",
        "enable_weight_tying": model.tie_word_embeddings,
    }
    if model.moe is not None:
        found |= {
            "num_experts": model.moe.num_experts,
            "top_k": model.moe.top_k,
            "moe_hidden_dim": model.moe.expert_ffn_hidden_size,
        }
    return ", ".join(f"{name}={value}" for name, value in found.items())
