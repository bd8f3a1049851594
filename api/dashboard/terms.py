"""Parts of a step's time and of a device's memory: their names for people, and the kinds that they are coloured by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costmodel.layers import COMMUNICATION
from planner.explain.beats import PART_WORDS


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Parts that have one colour.

    Attributes:
        hue: of the palette, the same on every page.
        terms: those of the cost model that belong to it.
    """

    name: str
    hue: int
    terms: tuple[str, ...] = ()


COMPUTE = Kind(name="compute", hue=0)
EXPOSED = Kind(name="exposed communication", hue=1)
WAITING = Kind(name="waiting (pipeline bubble)", hue=7, terms=("bubble",))
AGAIN = Kind(name="recomputation", hue=4, terms=("recompute",))
HOST = Kind(name="work of the host", hue=5, terms=("host",))
ONCE = Kind(name="optimizer step", hue=6, terms=("optimizer",))
OF_TIME = (COMPUTE, AGAIN, EXPOSED, WAITING, HOST, ONCE)
"""In the order in which they are stacked."""

OF_MEMORY = (
    Kind(name="parameters", hue=0, terms=("parameters", "weight_copies", "gathered_parameters")),
    Kind(name="gradients", hue=2, terms=("gradients",)),
    Kind(name="optimizer", hue=6, terms=("optimizer", "optimizer_step")),
    Kind(name="activations", hue=4, terms=("activations", "recompute_workspace", "logits")),
    Kind(
        name="buffers of communication", hue=1, terms=("dispatch_buffers", "cp_buffers", "hot_experts", "comm_buffers")
    ),
    Kind(name="overhead", hue=7, terms=("overhead",)),
)

_TIME_WORDS = {
    **PART_WORDS,
    "attention": "attention",
    "mlp": "feed-forward (MLP)",
    "experts": "experts",
    "norms": "norms and residuals",
    "embedding": "embedding",
    "mtp": "multi-token prediction",
    "offload_comm": "traffic with the hosts (offload)",
    "quantisation": "casts to fewer bits",
}
_MEMORY_WORDS = {
    "weight_copies": "copies of weights",
    "optimizer": "optimizer state",
    "recompute_workspace": "workspace of recomputation",
    "logits": "logits and their gradient",
    "dispatch_buffers": "buffers of expert dispatch",
    "cp_buffers": "buffers of context parallelism",
    "gathered_parameters": "gathered parameters",
    "hot_experts": "what hot experts take beside",
    "comm_buffers": "communicators",
    "overhead": "context and libraries",
    "optimizer_step": "peak of the optimizer step",
}


def time_name(term: str) -> str:
    """A part of the step as people name it."""
    return _TIME_WORDS.get(term) or term.replace("_", " ")


def memory_name(term: str) -> str:
    """A part of the memory as people name it."""
    return _MEMORY_WORDS.get(term) or term.replace("_", " ")


def time_kind(term: str) -> Kind:
    """What a part of the step is; communication is there as far as nothing hides it."""
    if term.endswith(COMMUNICATION):
        return EXPOSED
    return next((kind for kind in OF_TIME if term in kind.terms), COMPUTE)


def memory_kind(term: str) -> Kind:
    """What a part of the memory is for."""
    return next((kind for kind in OF_MEMORY if term in kind.terms), OF_MEMORY[-1])


def time_by_kind(time: Mapping[str, float]) -> dict[Kind, float]:
    """Seconds of each kind that a step has, in the order of ``OF_TIME``."""
    return _summed(OF_TIME, ((time_kind(term), value) for term, value in time.items()))


def memory_by_kind(stage: Mapping[str, float]) -> dict[Kind, float]:
    """Bytes of each kind that a device holds, in the order of ``OF_MEMORY``."""
    return _summed(OF_MEMORY, ((memory_kind(term), value) for term, value in stage.items()))


def _summed(kinds: Iterable[Kind], values: Iterable[tuple[Kind, float]]) -> dict[Kind, float]:
    found = dict.fromkeys(kinds, 0.0)
    for kind, value in values:
        found[kind] += value
    return {kind: value for kind, value in found.items() if value}
