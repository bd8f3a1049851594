"""From a search's outcome to the answer that programs read: the JSON of ``suggest --json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from threading import Event
from typing import Any

from costmodel.arrays import Num, num
from costmodel.beyond_layers import beyond_layers
from costmodel.calibration.ranges import Beyond
from costmodel.certainty import beyond_of, calibrated_on, certainty_of, interval_of
from costmodel.changes_training import changes_training
from costmodel.facts import Facts
from costmodel.fingerprint import calibration_id, cost_model_version, plan_id, scenario_id
from costmodel.flops import recomputed_flops_per_token, selectively_recomputed_flops_per_token
from costmodel.plan_rows import stages_of_plans
from costmodel.predict import StagePrediction, predict_stages
from costmodel.recompute_modules import modules_of
from costmodel.scenario import Scenario
from costmodel.spec.plan import RECOMPUTES
from costmodel.table import PlanTable, stage_table
from costmodel.utilisation import utilisation
from planner.options_in_words import options_in_words
from planner.search.infeasible import explained, unexplained
from planner.search.layouts.freedom import recipes_in_words
from planner.search.objective import objective_of
from planner.search.priced import Priced
from planner.search.request import SearchRequest
from planner.search.room import Room
from planner.search.solve import Outcome, Progress, Search
from planner.search.version import search_version

Json = dict[str, Any]

_NOT_COUNTED = "the deadline left no time to count the meshes that do not fit into memory"


def predictions(scenario: Scenario, facts: Facts, table: PlanTable) -> list[Json]:
    """The full breakdown of every row, in the words of the answer."""
    full = predict_stages(facts, table, stage_table(scenario, table, every_stage=True))
    recomputed = num(table["recompute"] == RECOMPUTES.index("full"))
    return in_words(scenario, table, full, recomputed)


def predictions_of(scenario: Scenario, facts: Facts, plans: Sequence[Priced]) -> list[Json]:
    """The same of plans whose layers, and what of these runs again, may be their own."""
    table, whole = PlanTable.of_rows([priced.row for priced in plans]), [priced.plan(scenario) for priced in plans]
    full = predict_stages(facts, table, stages_of_plans(scenario, whole))
    again = [sum(plan.recomputed_layers_per_stage) / sum(plan.layers_per_stage) for plan in whole]
    return in_words(scenario, table, full, num(again))


def in_words(scenario: Scenario, table: PlanTable, full: StagePrediction, recomputed: Num) -> list[Json]:
    """Predictions of a table's rows in the words of the answer.

    Args:
        recomputed: share of the layers that run their forward pass twice.
    """
    found: list[Json] = []
    parameters = scenario.resolved.parameters
    for index in range(len(table)):
        step = float(full.step_time_s[index])
        sure = certainty_of(scenario, table.row(index))
        peak = float(full.peak_bytes[index])
        devices, pp = int(table.devices_used[index]), int(table["pp"][index])
        again = _recomputed_flops_per_token(scenario, table.row(index), float(recomputed[index]))
        used = utilisation(scenario, step_time_s=step, devices=devices, recomputed_flops_per_token=again)
        found.append(
            {
                "step_time_s": step,
                "step_time_interval_s": list(interval_of(step, sure.time_error)),
                "tokens_per_s_per_device": used.tokens_per_s / devices,
                "mfu": used.mfu,
                "hfu": used.hfu,
                "utilisation": asdict(used),
                "calibrated_range": range_in_words(scenario, sure.beyond),
                "time": {name: float(part[index]) for name, part in full.time.items() if part[index] != 0.0},
                "memory": {
                    "peak_bytes": round(peak),
                    "usable_bytes": scenario.usable_bytes,
                    "peak_interval_bytes": [round(end) for end in interval_of(peak, sure.memory_error)],
                    "verdict": Room.of(scenario, sure.memory_error).verdict_of(peak, peak),
                    "reserved_bytes": round(parameters.on_device(peak)),
                    "device_bytes": scenario.cluster.accelerator.memory_bytes,
                    "host_bytes_per_node": round(float(full.host_bytes[index])),
                    "host_memory_bytes_per_node": scenario.cluster.host_memory_bytes_per_node,
                    "stages": [
                        {name: round(float(term[index, stage])) for name, term in full.memory.items()}
                        for stage in range(pp)
                    ],
                },
                "provenance": sure.provenance,
            }
        )
    return found


def range_in_words(scenario: Scenario, beyond: Sequence[Beyond]) -> Json:
    """Whether something lies inside of what the runs were like that the calibration was fitted to, and if not, why.

    ``inside`` is None where the calibration doesn't say what its runs were like.
    """
    known = bool(scenario.calibration.ranges)
    return {"inside": not beyond if known else None, "beyond": [entry.text for entry in beyond]}


def basis_in_words(scenario: Scenario) -> Json:
    """What the parameters that decide rest on: rows of the accelerator, its family, a precision, or general ones."""
    found = calibrated_on(scenario)
    return {
        "text": found.text,
        "own_runs": found.own_runs,
        "rows": [asdict(basis) | {"parameters": list(basis.parameters)} for basis in found.bases],
    }


def _recomputed_flops_per_token(scenario: Scenario, row: dict[str, int], share: float) -> float:
    model, seq_len = scenario.model, scenario.workload.seq_len
    again = recomputed_flops_per_token(model, seq_len, share)
    if RECOMPUTES[row["recompute"]] != "selective":
        return again
    modules = modules_of(scenario, row["recompute_modules"])
    return again + (1.0 - share) * selectively_recomputed_flops_per_token(model, seq_len, modules)


def status_of(outcome: Outcome) -> str:
    """``optimal`` and ``infeasible`` are proven; ``feasible`` and ``unknown`` were cut by the deadline.

    ``optimal`` speaks of the best plan; whether the whole list is proven is ``proven_top_k``.
    """
    if outcome.best:
        return "optimal" if outcome.best_proven else "feasible"
    return "infeasible" if outcome.proven else "unknown"


def answer_to(
    request: SearchRequest, progress: Progress | None = None, stopped: Event | None = None, *, why: bool = True
) -> Json:
    """Search, and say what was found: ranked plans, or why there are none.

    Args:
        progress, stopped: as in ``Search``.
        why: as in ``answer_of``.

    Raises:
        InvalidInput: the request is about more meshes than can be searched.
    """
    search = Search(request, progress, stopped)
    outcome = search.run()
    return answer_of(request, search.facts, outcome, stopped, why=why)


def answer_of(
    request: SearchRequest, facts: Facts, outcome: Outcome, stopped: Event | None = None, *, why: bool = True
) -> Json:
    """The whole answer; ``best`` and ``bound`` are in the objective's unit.

    Args:
        why: whether to look for the smallest conflict and for relaxations where nothing fits, which takes searches of
            its own; without, every rule that stops a mesh is listed.
    """
    scenario, status = request.scenario, status_of(outcome)
    unit_value = objective_of(request).shown
    given, calibration, version = scenario_id(scenario), calibration_id(scenario.calibration), cost_model_version()
    plans: list[Json] = []
    found = [priced.plan(scenario) for priced in outcome.best]
    if outcome.best:
        for rank, (plan, prediction) in enumerate(
            zip(found, predictions_of(scenario, facts, outcome.best), strict=True), start=1
        ):
            address = plan_id(given, plan, calibration, version)
            document = plan.model_dump(mode="json")
            plans.append(
                {
                    "rank": rank,
                    "id": address,
                    "plan": document,
                    "options": options_in_words(document, scenario),
                    "prediction": prediction,
                }
            )
    best = unit_value(outcome.best[0].objective) if outcome.best else None
    bound = unit_value(outcome.bound) if outcome.bound is not None and status != "infeasible" else None
    return {
        "status": status,
        "scenario": {"id": given, **scenario_in_words(scenario)},
        "objective": request.objective,
        "best": best,
        "bound": bound,
        "gap": (best - bound) / best if best is not None and bound is not None else None,
        "proven_top_k": outcome.proven and bool(outcome.best),
        "plans_within": outcome.within,
        "plans": plans,
        "eliminated": dict(sorted(outcome.elimination.counts.items())),
        "infeasibility": _why_not(request, facts, outcome, stopped, why) if status == "infeasible" else None,
        "warnings": [
            *scenario.warnings(),
            *changes_training(found),
            *beyond_layers(found),
            *recipes_in_words(request),
            *([] if outcome.memory_counted else [_NOT_COUNTED]),
        ],
        "search": {
            "elapsed_s": round(outcome.elapsed_s, 3),
            "plans_considered": outcome.plans_considered,
            "calibration": scenario.calibration.name,
            "calibration_id": calibration,
            "calibrated_range": range_in_words(scenario, beyond_of(scenario)),
            "calibrated_on": basis_in_words(scenario),
            "cost_model": version,
            "search_version": search_version(),
            "meshes": outcome.meshes,
            "master_solutions": outcome.master_solutions,
            "seed": request.seed,
        },
    }


def scenario_in_words(scenario: Scenario) -> Json:
    """What an answer is about, as its readers name it."""
    work, framework = scenario.workload, scenario.framework
    return {
        "model": scenario.model.name,
        "params": scenario.model.params.total,
        "cluster": scenario.cluster.name,
        "accelerator": scenario.cluster.accelerator.name,
        "devices": scenario.devices,
        "global_batch_size": work.global_batch_size,
        "seq_len": work.seq_len,
        "precision": work.precision.name,
        "optimizer": work.optimizer.name,
        "gradient_dtype": scenario.gradients,
        "framework": framework.name,
        "framework_title": framework.title,
        "framework_version": framework.version,
        "not_calibrated": list(scenario.resolved.fallbacks),
    }


def _why_not(request: SearchRequest, facts: Facts, outcome: Outcome, stopped: Event | None, why: bool) -> Json:
    return infeasibility(request, facts, outcome, stopped) if why else unexplained(request, facts, outcome)


def infeasibility(request: SearchRequest, facts: Facts, outcome: Outcome, stopped: Event | None = None) -> Json:
    """Why nothing is left, and what would make something fit: ``{conflict, minimal, relaxations}``."""

    def near(other: SearchRequest) -> Json | None:
        search = Search(other, stopped=stopped, proving=False)
        found = search.run()
        return answer_of(other, search.facts, found) if found.best else None

    return explained(request, facts, outcome, near, stopped)
