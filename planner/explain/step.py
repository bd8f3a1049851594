"""One step of the procedure: its question, what was found for this case, and the numbers that it rests on."""

from __future__ import annotations

from dataclasses import dataclass, field

Number = int | float | str | bool


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step that was walked.

    Attributes:
        slug: stays the same; ``verdict`` is one of a step's few words.
        told: the verdict in a sentence with its numbers.
        numbers: the same for programs; units are in the names.
    """

    number: int
    slug: str
    question: str
    verdict: str
    told: str
    numbers: dict[str, Number] = field(default_factory=dict)


QUESTIONS: tuple[tuple[str, str], ...] = (
    ("one_replica", "Do model state and activations of one replica fit on one device at micro-batch 1?"),
    ("shard_state", "Does data parallelism that shards the state fit, and is its communication hidden?"),
    ("tensor_parallel", "Does tensor and sequence parallelism inside the scale-up domain help?"),
    ("pipeline", "Are pipeline stages needed?"),
    ("context_and_experts", "Long sequences: context parallelism? Experts: expert parallelism?"),
    ("tune", "Which micro-batch, recompute policy, virtual stages and sharding are the fastest?"),
)
"""Slug and question of each step, in the order of the primer's "How to choose a parallelism strategy"."""


_AXES = ("tp ", "cp ", "pp ", "dp ", "ep ", "etp ")
"""Names of axes stay as they are at the head of a sentence."""


def step(number: int, verdict: str, told: str, **numbers: Number) -> Step:
    """Step ``number`` (from 1) with its slug and question."""
    slug, question = QUESTIONS[number - 1]
    sentence = told.strip()
    return Step(
        number=number,
        slug=slug,
        question=question,
        verdict=verdict,
        told=sentence if sentence.startswith(_AXES) else sentence[:1].upper() + sentence[1:],
        numbers=numbers,
    )
