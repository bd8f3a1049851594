"""Plans side by side: what differs, term by term. Values are in the order of the plans."""

from __future__ import annotations

from api.schemas.answers import Comparison, Difference, StoredPlan, TermDifference


def compare(plans: list[StoredPlan]) -> Comparison:
    """Two plans or more. The fastest is the one with the least step time, the first of those that are equal."""
    documents = [plan.plan.model_dump(mode="json") for plan in plans]
    axes = [
        Difference(field=field, values=[document[field] for document in documents])
        for field in documents[0]
        if any(document[field] != documents[0][field] for document in documents)
    ]
    by_time = sorted(plans, key=lambda plan: plan.prediction.step_time_s)
    first, second = by_time[0].prediction, by_time[1].prediction
    return Comparison(
        plans=plans,
        same_scenario=len({plan.scenario_id for plan in plans}) == 1,
        same_work=len({_work(plan) for plan in plans}) == 1,
        same_calibration=len({(plan.calibration_id, plan.cost_model) for plan in plans}) == 1,
        axes=axes,
        time_s=_terms([plan.prediction.time for plan in plans]),
        memory_bytes=_terms([_fullest(plan.prediction.memory.stages) for plan in plans]),
        fastest=by_time[0].id,
        fastest_by=1.0 - first.step_time_s / second.step_time_s,
        intervals_overlap=first.step_time_interval_s[1] >= second.step_time_interval_s[0],
    )


def _work(plan: StoredPlan) -> tuple[str, int, int]:
    """Of one question, plans may have several batches: where a tolerance of it was given."""
    return plan.scenario_id, plan.plan.global_batch_size, plan.plan.seq_len


def _fullest(stages: list[dict[str, int]]) -> dict[str, float]:
    return {term: float(value) for term, value in max(stages, key=lambda stage: sum(stage.values())).items()}


def _terms(of_plans: list[dict[str, float]]) -> list[TermDifference]:
    """Every term that any plan has, largest difference first; a plan without it has 0."""
    names = dict.fromkeys(name for terms in of_plans for name in terms)
    found = [TermDifference(term=name, values=[terms.get(name, 0.0) for terms in of_plans]) for name in names]
    return sorted(found, key=lambda term: min(term.values) - max(term.values))
