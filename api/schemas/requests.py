"""Bodies of requests: the flags of the command line as JSON. Unknown fields are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from api.schemas.text import Fields, Given, Id, Line, Log, Name
from planner.question import Question
from planner.studying.settings import (
    LONGEST_STUDY_NAME,
    MOST_MINUTES,
    MOST_STEPS,
    MOST_TRIALS,
    RunnerName,
    StudySettings,
)

_WHOLE = 2**53
_FIRST_YEAR, _LAST_YEAR = 2000, 2999


def _whole(value: Any) -> Any:
    """488.0 is a whole number, as JSON Schema has it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _whole_values(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan's values are whole numbers, or lists of those: none is one with a fraction."""
    return {
        name: [_whole(part) for part in value] if isinstance(value, list) else _whole(value)
        for name, value in plan.items()
    }


Whole = Annotated[int, Field(strict=True), BeforeValidator(_whole)]
Count = Annotated[Whole, Field(ge=1, le=_WHOLE)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
# A measured figure below a millionth is none, and a ratio to it would be no number any more.
Measured = Annotated[Number, Field(ge=1e-6, le=1e12)]
Bytes = Annotated[Whole, Field(ge=0, le=_WHOLE)]
Conditions = Annotated[list[Line], Field(max_length=100)]


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("a moment as text is expected, 2026-11-29T12:00:00Z say")
    return value


def _of_our_time(moment: datetime) -> datetime:
    """In UTC, as it is stored."""
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        moment = moment.replace(tzinfo=UTC)
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise ValueError(f"it must lie in the years {_FIRST_YEAR} to {_LAST_YEAR}")
    return moment


Moment = Annotated[AwareDatetime, BeforeValidator(_text), AfterValidator(_of_our_time)]

LLAMA: dict[str, Any] = {
    "model": "llama-3.1-70b",
    "cluster": "dgx-h100",
    "devices": 512,
    "global_batch_size": 1024,
    "seq_len": 8192,
    "top": 5,
}
OWN_MODEL: dict[str, Any] = {
    "model": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    },
    "cluster": {"name": "our-h100", "extends": "dgx-h100", "max_devices": 488},
    "devices": 488,
    "global_batch_size": 976,
    "seq_len": 8192,
    "pins": ["tp=8", "pp=1..4"],
    "max_seconds": 20,
}
STUDY: dict[str, Any] = {
    "name": "llama-3-8b on the lab's node",
    "model": "llama-3-8b",
    "cluster": "dgx-h100",
    "devices": 8,
    "global_batch_size": 64,
    "seq_len": 4096,
    "runner": "slurm",
    "trials": 8,
    "max_minutes": 60,
}


class Request(BaseModel):
    """Any body: unknown fields are refused, and so are NaN and infinities."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class ScenarioFields(Request):
    """What is given: model, cluster, batch, precision and framework."""

    model: Given
    """A name that `GET /v1/models` lists, or an object: a Hugging Face config.json, say."""
    cluster: Given
    """A name that `GET /v1/clusters` lists, or an object: the fields of a cluster file, those of `extends` left out."""
    precision: Annotated[Name, Field(examples=["bf16", "fp8", "mxfp8"])] = Question.precision
    optimizer: Annotated[Name, Field(examples=["adamw", "muon"])] = Question.optimizer
    gradient_dtype: Literal["fp32", "bf16", "fp16"] | None = None
    """What gradients are accumulated and reduced in; what the framework usually does, when left out."""
    framework: Annotated[Name, Field(examples=["megatron-core", "torchtitan"])] = Question.framework
    """Whose rules and habits hold: what it can't run is no plan."""
    framework_version: Name | None = None
    """The newest that is known, when left out."""
    calibration: Annotated[Name, Field(examples=["published-2026-11"])] | None = None
    """The calibration of this server's catalog to price by; the shipped one, when left out."""
    min_free_gib: Annotated[Number, Field(ge=0, le=1e6)] | None = None
    """GiB of a device's memory that stay free; a part of it that suits the framework, when left out."""


class PlanSpace(ScenarioFields):
    """Which plans are asked about: what is given, and what plans must and must not have."""

    devices: Count
    """Devices that there are; at most 10,000,000."""
    global_batch_size: Count
    """Sequences per step, over all devices; at most 100,000,000."""
    seq_len: Count
    """Tokens per sequence; at most 100,000,000."""
    pins: Annotated[Conditions, Field(examples=[["tp=8", "pp=4,8,16", "dp=4.."]])] = []
    """What every plan must have: `AXIS=VALUE`, `AXIS=VALUE,VALUE` or `AXIS=LOW..HIGH` with an end left out or not."""
    forbids: Annotated[Conditions, Field(examples=[["recompute=full"]])] = []
    """What no plan may have, written the same way."""
    allow: Annotated[list[Literal["offload"]], Field(max_length=10, examples=[["offload"]])] = []
    """What plans may use beside the usual: `offload` of what the framework can keep in host memory."""
    min_used: Annotated[Number, Field(gt=0, le=1)] = Question.min_used
    """Share of the devices that a plan has to use."""
    max_seconds: Annotated[Number, Field(gt=0)] = Question.max_seconds
    """After that the best so far is the answer; servers allow 300 at most."""
    seed: Annotated[Whole, Field(ge=0, le=2**31 - 1)] = Question.seed
    """The same seed searches in the same order; it can't change a proven answer."""


class SearchBody(PlanSpace):
    """A question: the flags of ``planner suggest``."""

    model_config = ConfigDict(json_schema_extra={"examples": [LLAMA, OWN_MODEL]})

    objective: Literal["step_time", "cost", "fewest_devices"] = "step_time"
    """What the best plan has least of; `cost` needs a price."""
    price_per_device_hour: Annotated[Number, Field(ge=1e-6, le=1e9)] | None = None
    """The cluster's own price, when left out; in any currency."""
    top: Annotated[Whole, Field(ge=1, le=1000)] = Question.top
    """How many plans are wanted."""
    explain: Annotated[bool, Field(strict=True)] = Question.explain
    """Whether the answer holds the steps by which people choose a plan, and where the best plan differs from theirs."""
    min_devices: Count | None = None
    """Fewest devices that a plan may use, in place of `min_used`: `--devices 8..4096` is this and `devices`."""
    max_step_time_s: Annotated[Number, Field(gt=0, le=1e12)] | None = None
    """What a step may take at most: with `fewest_devices` the fewest that meet a deadline."""
    batch_tolerance: Annotated[Number, Field(ge=0, lt=1)] = Question.batch_tolerance
    """Share by which plans may change the global batch, else nothing does; the objective is then one per sequence."""
    pareto: Annotated[bool, Field(strict=True)] = Question.pareto
    """Whether the plans that no other beats in step time, devices and free memory are wanted too."""
    shortlist: Annotated[Number, Field(gt=0, lt=1)] | None = None
    """The probability with which the fastest plan is to be in a short list for trials; none when left out."""


class StudyBody(PlanSpace):
    """What to try on real machines: the flags of ``planner tune``. How trials are started, only workers know."""

    model_config = ConfigDict(json_schema_extra={"examples": [STUDY]})

    name: Annotated[Name, Field(max_length=LONGEST_STUDY_NAME)]
    """One that no other study has, for `planner tune --resume --study` and `planner worker --study`."""
    runner: RunnerName = "local"
    """Which workers run it: those that were started with this runner. Their own launch file says how."""
    trials: Annotated[Whole, Field(ge=1, le=MOST_TRIALS)] = StudySettings.trials
    """How many may be run at most, failed ones included."""
    max_minutes: Annotated[Number, Field(gt=0, le=MOST_MINUTES)] | None = None
    """From now on, after which the study ends."""
    steps: Annotated[Whole, Field(ge=1, le=MOST_STEPS)] = StudySettings.steps
    """Of a trial, that count."""
    warm_up: Annotated[Whole, Field(ge=0, le=MOST_STEPS)] = StudySettings.warm_up
    """Steps before them."""
    layers: Count | None = None
    """Plan and run a model of so many layers, at most those that it has."""


class PredictionItem(ScenarioFields):
    """A plan and what it runs on. What the plan says of batch, sequence and devices need not be said again."""

    plan: Annotated[Fields, AfterValidator(_whole_values)]
    """The fields of a plan (`PlanFields`); what follows from the others may be left out."""
    devices: Count | None = None
    global_batch_size: Count | None = None
    seq_len: Count | None = None


class PredictionsBody(Request):
    """Plans to be priced, each for itself."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "items": [
                        {
                            "model": "llama-3-8b",
                            "cluster": "dgx-h100",
                            "plan": {
                                "tp": 1,
                                "pp": 1,
                                "dp": 64,
                                "zero_stage": 2,
                                "micro_batch_size": 1,
                                "global_batch_size": 256,
                                "seq_len": 8192,
                            },
                        }
                    ]
                }
            ]
        }
    )

    items: Annotated[list[PredictionItem], Field(min_length=1, max_length=100)]


class MeasurementBody(Request):
    """What happened when a plan ran. A plan that ran to its end has a step time or a throughput."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "plan_id": "0123456789abcdef0123456789abcdef",
                    "status": "ok",
                    "step_time_s": 5.61,
                    "peak_allocated_bytes": 70_866_960_384,
                    "steps": 200,
                    "job_id": "slurm-48151623",
                    "environment": {"torch": "2.9.1", "NCCL_ALGO": "Ring"},
                    "measured_at": "2026-11-29T12:00:00Z",
                }
            ]
        }
    )

    plan_id: Id
    """A stored plan's: from an answer, or from `POST /v1/predictions`."""
    status: Literal["ok", "out_of_memory", "failed"] = "ok"
    step_time_s: Measured | None = None
    """Seconds per optimizer step, of steps after the first ones."""
    tokens_per_s_per_device: Measured | None = None
    """Over the devices that the plan uses."""
    peak_allocated_bytes: Bytes | None = None
    peak_reserved_bytes: Bytes | None = None
    steps: Count | None = None
    """How many steps were measured."""
    job_id: Name | None = None
    """The scheduler's, to find it again."""
    environment: Fields = {}
    """Versions and settings, as you like."""
    note: Line = ""
    log_tail: Log = ""
    measured_at: Moment | None = None
    """Now, when left out."""

    @model_validator(mode="after")
    def _says_how_fast(self) -> MeasurementBody:
        if self.status == "ok" and self.step_time_s is None and self.tokens_per_s_per_device is None:
            raise ValueError("a run that is ok has a step_time_s or tokens_per_s_per_device")
        return self
