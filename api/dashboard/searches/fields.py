"""The fields of the form to ask. Their names, defaults and limits are those of the API's body, ``SearchBody``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from api.schemas.requests import LLAMA, SearchBody
from costmodel.calibration.calibration import DEFAULT_CALIBRATION, calibration_names
from costmodel.catalog.cluster_catalog import cluster_names
from costmodel.catalog.framework_catalog import framework_names
from costmodel.catalog.model_catalog import model_names

Kind = Literal["text", "whole", "number", "lines", "choice", "flag"]


YES, NO = "yes", "no"
YES_NO = ((NO, NO), (YES, YES))


@dataclass(frozen=True, kw_only=True)
class Field:
    """An input: ``name`` is the API's, ``hint`` explains it, ``unit`` stands behind the label.

    Attributes:
        kind: a flag is a choice of yes and no.
        offers: names of the catalog to choose from or, of a choice, value and words of each.
        wide: takes the room of two.
        rare: folded away for as long as it says nothing of its own.
    """

    name: str
    label: str
    hint: str
    kind: Kind = "text"
    unit: str = ""
    offers: tuple[tuple[str, str], ...] = ()
    wide: bool = False
    rare: bool = False

    @property
    def required(self) -> bool:
        """Whether a question is none without it."""
        return SearchBody.model_fields[self.name].is_required()

    @property
    def default(self) -> str:
        """What stands in it at first: an example where a question is none without it, else the API's default."""
        return as_typed(LLAMA[self.name] if self.required else SearchBody.model_fields[self.name].default)


def fields() -> tuple[Field, ...]:
    """The fields in their order. Names are read anew each time, since a user may add some."""
    return (
        Field(name="model", label="Model", hint="A name of the catalog.", offers=_named(model_names())),
        Field(name="cluster", label="Cluster", hint="A name of the catalog.", offers=_named(cluster_names())),
        Field(name="devices", label="Devices", hint="Accelerators at hand.", kind="whole"),
        Field(
            name="global_batch_size",
            label="Global batch",
            unit="sequences",
            hint="Per optimizer step, over all devices.",
            kind="whole",
        ),
        Field(name="seq_len", label="Sequence length", unit="tokens", hint="Tokens per sequence.", kind="whole"),
        Field(name="precision", label="Precision", hint="A recipe: bf16, fp16, fp8, mxfp8 or fp32, say."),
        Field(
            name="framework",
            label="Framework",
            hint="Whose rules a plan has to keep.",
            kind="choice",
            offers=_named(framework_names()),
        ),
        Field(
            name="objective",
            label="Objective",
            hint="What the best plan has least of.",
            kind="choice",
            offers=(
                ("step_time", "Time of a step"),
                ("cost", "Cost of a step"),
                ("fewest_devices", "Devices used"),
            ),
        ),
        Field(
            name="price_per_device_hour",
            label="Price",
            unit="per device and hour",
            hint="For the cost only; if empty, the cluster's.",
            kind="number",
        ),
        Field(name="top", label="Plans to list", hint="At most so many, best first.", kind="whole"),
        Field(
            name="pins",
            label="Pins",
            hint="Values that an axis may have: tp=8 pp=4,8,16 dp=4..",
            kind="lines",
            wide=True,
        ),
        Field(
            name="forbids",
            label="Forbids",
            hint="Values that it must not have: recompute=full tp=1",
            kind="lines",
            wide=True,
        ),
        Field(
            name="allow",
            label="Allow",
            hint="offload, of what the framework can keep in host memory.",
            kind="lines",
            rare=True,
        ),
        Field(
            name="max_seconds",
            label="Deadline",
            unit="s",
            hint="Then the best so far is the answer.",
            kind="number",
        ),
        Field(name="optimizer", label="Optimizer", hint="A recipe: adamw, adamw-8bit or muon, say.", rare=True),
        Field(name="gradient_dtype", label="Gradients", hint="fp32 or bf16; if empty, the framework's own.", rare=True),
        Field(
            name="framework_version",
            label="Framework version",
            hint="If empty, the one taken as current.",
            rare=True,
        ),
        Field(
            name="calibration",
            label="Calibration",
            hint=f"A name of the catalog, {', '.join(calibration_names())} say; if empty, {DEFAULT_CALIBRATION}.",
            rare=True,
        ),
        Field(
            name="min_free_gib",
            label="Kept free",
            unit="GiB per device",
            hint="If empty, what suits the framework.",
            kind="number",
            rare=True,
        ),
        Field(
            name="min_used",
            label="Devices used",
            unit="share",
            hint="At least; 0.9 is nine of ten.",
            kind="number",
            rare=True,
        ),
        Field(
            name="min_devices",
            label="Fewest devices",
            hint="In place of the share; if empty, that counts.",
            kind="whole",
            rare=True,
        ),
        Field(
            name="max_step_time_s",
            label="Longest step",
            unit="s",
            hint="What a step may take; if empty, any time.",
            kind="number",
            rare=True,
        ),
        Field(
            name="batch_tolerance",
            label="Other batches",
            unit="share",
            hint="0.05 allows 5 % more or fewer sequences; best is then least per sequence.",
            kind="number",
            rare=True,
        ),
        Field(
            name="shortlist",
            label="Short list",
            unit="probability",
            hint="0.9: few plans for trials that hold the fastest with 90 %.",
            kind="number",
            rare=True,
        ),
        Field(
            name="pareto",
            label="Pareto front",
            hint="Plans that none beats in time, devices and free memory.",
            kind="flag",
            offers=YES_NO,
            rare=True,
        ),
        Field(
            name="explain",
            label="Explain",
            hint="Also choose by hand, step by step.",
            kind="flag",
            offers=YES_NO,
            rare=True,
        ),
        Field(name="seed", label="Seed", hint="Changes no proven answer.", kind="whole", rare=True),
    )


def as_typed(value: Any) -> str:
    """A value of the API's body as a person would type it; reading it gives the same value again."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return YES if value else NO
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return "\n".join(value) if isinstance(value, list) else str(value)


def _named(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in names)
