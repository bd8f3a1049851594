"""From a question in plain values to a request to the search: every name resolved, every number checked."""

from __future__ import annotations

from typing import get_args

from costmodel.calibration.calibration import Calibration, load_calibration
from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.framework_catalog import load_framework, load_optimizer, load_precision
from costmodel.catalog.model_catalog import load_model
from costmodel.errors import InvalidInput, UnknownName
from costmodel.scenario import Scenario
from costmodel.spec.workload import GradientDtype, Workload
from planner.question import Question
from planner.search.allowed import allowed_options
from planner.search.constraints import Constraints
from planner.search.request import ObjectiveKind, SearchRequest

# Far beyond any cluster or batch there is; a typo must not start a search of hours.
_MOST = {"devices": 10_000_000, "global-batch-size": 100_000_000, "seq-len": 100_000_000}
_MOST_LAYERS = 5_000


def request_of(question: Question) -> SearchRequest:
    """The question with every name resolved and every number checked."""
    objectives = get_args(ObjectiveKind)
    if question.objective not in objectives:
        raise UnknownName("objective", question.objective, objectives)
    objective: ObjectiveKind = next(name for name in objectives if name == question.objective)
    scenario = scenario_of(question)
    return SearchRequest(
        scenario=scenario,
        constraints=Constraints.parse(question.pins, question.forbids),
        objective=objective,
        min_used=question.min_used,
        top=question.top,
        max_seconds=question.max_seconds,
        seed=question.seed,
        explain=question.explain,
        price_per_device_hour=question.price_per_device_hour,
        also=allowed_options(scenario.framework, question.allow),
        min_devices=question.min_devices,
        max_step_time_s=question.max_step_time_s,
        batch_tolerance=question.batch_tolerance,
        pareto=question.pareto,
        shortlist=question.shortlist,
    )


def scenario_of(question: Question) -> Scenario:
    """The scenario that a question is about."""
    check_size("devices", question.devices)
    check_size("global-batch-size", question.global_batch_size)
    check_size("seq-len", question.seq_len)
    model = load_model(question.model) if isinstance(question.model, str) else question.model
    if model.num_layers > _MOST_LAYERS:
        raise InvalidInput("model.num_layers", model.num_layers, f"it must be at most {_MOST_LAYERS}")
    cluster = load_cluster(question.cluster) if isinstance(question.cluster, str) else question.cluster
    framework = load_framework(question.framework, question.framework_version)
    precision = load_precision(question.precision)
    scenario = Scenario(
        model=model,
        cluster=cluster,
        devices=question.devices,
        workload=Workload(
            global_batch_size=question.global_batch_size,
            seq_len=question.seq_len,
            precision=precision,
            optimizer=load_optimizer(question.optimizer),
        ),
        framework=framework,
        calibration=_calibration_of(question.calibration),
        min_free_bytes=free_bytes(question.min_free_gib, cluster.accelerator.memory_bytes),
        fused_attention=framework.fused_attention,
        fused_pointwise=framework.fused_pointwise is not False,
    )
    scenario.check()
    return _with_gradients(scenario, question.gradient_dtype)


def _calibration_of(given: str | Calibration | None) -> Calibration:
    if isinstance(given, Calibration):
        return given
    return load_calibration() if given is None else load_calibration(given)


def _with_gradients(scenario: Scenario, asked: str | None) -> Scenario:
    """The scenario with the gradients asked for; those that the framework usually has are left unsaid, as one question.

    Raises:
        UnknownName: no such type.
        InvalidInput: the framework doesn't have it.
    """
    if asked is None or asked.strip().lower() == scenario.gradients:
        return scenario
    known: tuple[GradientDtype, ...] = get_args(GradientDtype)
    dtype = next((dtype for dtype in known if dtype == asked.strip().lower()), None)
    if dtype is None:
        raise UnknownName("gradient-dtype", asked, known)
    other = scenario.model_copy(update={"gradient_dtype": dtype})
    other.check()
    return other


def check_size(name: str, value: int) -> None:
    """Accepts a size that can be meant: of ``devices``, ``global-batch-size`` or ``seq-len``.

    Raises:
        InvalidInput: it is below 1, or far beyond any there is.
    """
    if value < 1:
        raise InvalidInput(name, value, "it must be at least 1")
    if value > _MOST[name]:
        raise InvalidInput(name, value, f"it must be at most {_MOST[name]}")


def free_bytes(min_free_gib: float | None, capacity: int) -> int | None:
    """Bytes of a device's memory that stay free; None where nothing is said of it.

    Raises:
        InvalidInput: it is none of the device's ``capacity`` in bytes.
    """
    if min_free_gib is None:
        return None
    if not 0 <= min_free_gib * 2**30 < capacity:
        limit = f"it must lie in 0..{capacity / 2**30:.1f}, the device's memory"
        raise InvalidInput("min-free-gib", min_free_gib, limit)
    return int(min_free_gib * 2**30)
