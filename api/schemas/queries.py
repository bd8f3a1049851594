"""What a query string may say: the filters of each list, and which plans are compared."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.text import Id, Name

Size = Annotated[int, Field(ge=0, le=2**31 - 1)]


class PageQuery(BaseModel):
    """Which part of a list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=200, description="How many items.")] = 50
    cursor: Annotated[Name | None, Field(description="The `next` of the page before, with the same filters.")] = None

    @property
    def filters(self) -> dict[str, Any]:
        """What the list is restricted to; None where it is not."""
        return self.model_dump(exclude={"limit", "cursor", "sort"})


class SearchesQuery(PageQuery):
    """Which searches."""

    state: Literal["queued", "running", "done", "failed", "cancelled"] | None = None
    status: Literal["optimal", "feasible", "infeasible", "unknown"] | None = None
    model: Name | None = None
    cluster: Name | None = None
    since: Annotated[
        str | None,
        Field(
            pattern=r"^(PT[0-9]{1,4}H|P[0-9]{1,4}D)$",
            description="Asked no longer ago than this: hours or days as ISO 8601 has them, `PT1H` or `P7D`.",
            examples=["P7D"],
        ),
    ] = None

    @property
    def age(self) -> timedelta | None:
        """`since` as a span of time."""
        if self.since is None:
            return None
        count = int(self.since.strip("PTHD"))
        return timedelta(hours=count) if self.since.endswith("H") else timedelta(days=count)


class PlansQuery(PageQuery):
    """Which plans, and in which order. Every axis of a plan can be asked for by its name."""

    sort: Annotated[
        Literal[
            "step_time_s",
            "-step_time_s",
            "tokens_per_s_per_device",
            "-tokens_per_s_per_device",
            "mfu",
            "-mfu",
            "peak_bytes",
            "-peak_bytes",
            "created_at",
            "-created_at",
        ],
        Field(description="`-` in front: largest first."),
    ] = "-created_at"
    scenario_id: Id | None = None
    search_id: Id | None = None
    calibration_id: Id | None = None
    model: Name | None = None
    cluster: Name | None = None
    accelerator: Name | None = None
    framework: Name | None = None
    precision: Name | None = None
    devices: Annotated[int, Field(ge=1, le=2**53)] | None = None
    max_peak_bytes: Annotated[int, Field(ge=0, le=2**53)] | None = None
    tp: Size | None = None
    pp: Size | None = None
    vpp: Size | None = None
    cp: Size | None = None
    cp_comm_type: Name | None = None
    ep: Size | None = None
    etp: Size | None = None
    dp: Size | None = None
    dp_replicate: Size | None = None
    dp_shard: Size | None = None
    zero_stage: Size | None = None
    micro_batch_size: Size | None = None
    num_microbatches: Size | None = None
    devices_used: Size | None = None
    schedule: Name | None = None
    recompute: Name | None = None
    offload: Name | None = None


class CompareQuery(BaseModel):
    """Which plans to compare."""

    model_config = ConfigDict(extra="forbid")

    plan: Annotated[
        list[Id],
        Field(
            min_length=2,
            max_length=6,
            description="Two to six ids of plans, each once: `?plan=..&plan=..`.",
            json_schema_extra={"uniqueItems": True},
        ),
    ]


class LaunchQuery(BaseModel):
    """What to write a plan for."""

    model_config = ConfigDict(extra="forbid")

    target: Annotated[Name, Field(description="As `planner export --list` names it: `megatron-lm`, `sbatch`, ...")]
    version: Annotated[
        Name | None, Field(description="Of the target; without it that of the plan, or the usual one.")
    ] = None


class MeasurementsQuery(PageQuery):
    """Which measurements."""

    plan_id: Id | None = None
    scenario_id: Id | None = None
    job_id: Name | None = None
    status: Literal["ok", "out_of_memory", "failed"] | None = None


class StudiesQuery(PageQuery):
    """Which studies."""

    state: Literal["preparing", "open", "done", "stopped", "failed"] | None = None
