"""The use case ``check``: a plan file and a scenario in, a verdict with its reasons out."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from costmodel.beyond_layers import beyond_layers
from costmodel.certainty import beyond_of, memory_error_of
from costmodel.changes_training import changes_training
from costmodel.errors import InvalidInput
from costmodel.facts import Facts
from costmodel.scenario import Scenario
from costmodel.spec.options import OFFLOADS
from costmodel.spec.plan import Plan
from planner.check.batches import batch_hint
from planner.check.best import best_of, search_best
from planner.check.distance import Reference
from planner.check.given import Given, given_plan
from planner.check.judge import judge
from planner.check.memory import beyond_hosts, host_verdict, short_of, stage_verdicts, worst
from planner.check.nearest_answer import nearest_of
from planner.check.plan_file import read_plan
from planner.check.price import Pricing, price, recomputes_like_no_other
from planner.check.question import CheckQuestion
from planner.search.answer import basis_in_words, infeasibility, range_in_words
from planner.search.room import Room
from planner.search.solve import Outcome, Search

Json = dict[str, Any]

FITTING = ("fits", "at_risk")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """An answer with the scenario that it is about, which people-readable output wants."""

    scenario: Scenario
    answer: Json


def check(asked: CheckQuestion) -> Checked:
    """Judge a plan.

    Raises:
        InvalidInput: the file or a flag is unusable. An illegal plan, or one that does not fit, is an answer.
    """
    return check_fields(asked, *read_plan(asked.plan))


def check_fields(asked: CheckQuestion, data: dict[str, Any], taken: str | None = None) -> Checked:
    """Judge the plan whose fields ``data`` holds, whatever ``asked.plan`` says.

    Args:
        taken: which part of the document it is, to be told.
    """
    started = time.monotonic()
    given = given_plan(asked, data)
    return Checked(scenario=given.scenario, answer=_Check(asked, given, started + asked.max_seconds).answer(taken))


class _Check:
    """One check, step by step."""

    def __init__(self, asked: CheckQuestion, given: Given, deadline: float) -> None:
        completion = given.completion
        self.asked, self.draft, self.request, self.completion = asked, given.draft, given.request, completion
        self.scenario, self.plan, self.deadline = given.scenario, completion.plan, deadline
        self.facts = Facts.of(self.scenario)
        self.warnings = [*self.scenario.warnings()]
        framework = self.scenario.framework
        unsharded = any(entry.field == "zero_stage" and not entry.assumed for entry in completion.derived)
        self.reference = Reference.of(
            self.plan,
            self.scenario,
            recomputes_in_part=recomputes_like_no_other(self.scenario, self.plan),
            zero_once_sharded=framework.usual_zero_stage if unsharded else None,
        )

    def answer(self, taken: str | None) -> Json:
        """Everything that ``check --json`` prints."""
        judgement = judge(self.completion, self.scenario)
        broken = judgement.illegal
        pricing = None
        if not broken:
            self.plan = Plan.model_validate(self.plan.model_dump())
            pricing = price(self.scenario, self.plan)
            self.warnings += [*changes_training([self.plan]), *beyond_layers([self.plan])]
        beyond = pricing.beyond if pricing else beyond_of(self.scenario)
        room = Room.of(self.scenario, memory_error_of(self.scenario, beyond))
        stages = stage_verdicts(pricing, room) if pricing else []
        host = host_verdict(pricing, self.plan.offload, self.scenario.cluster) if pricing else None
        beyond_host = beyond_hosts(host, self.scenario.cluster)
        if beyond_host is not None:
            self.warnings.append(beyond_host)
        short = short_of(stages, host)
        status = "illegal" if broken else "too_big" if short else worst(stages)
        self._warn(taken, status)
        nearest: Json | None = None
        searched: Json | None = None
        if status not in FITTING and self.asked.nearest:
            near = nearest_of(self.request, self.facts, self.plan, self.reference, broken, self.deadline)
            nearest, searched = near.answer, near.searched
            self.warnings += near.warnings
        best, why_nothing = self._best(status, pricing, nearest)
        hint = batch_hint(self.plan, self.scenario, {entry.rule for entry in broken})
        return {
            "status": status,
            "rules_known": self.scenario.framework.rules is not None,
            "plan": self.plan.model_dump(mode="json"),
            "normalised": [asdict(entry) for entry in self.completion.normalised],
            "derived": [asdict(entry) for entry in self.completion.derived],
            "violations": [asdict(entry) for entry in broken],
            "policy": [
                {"rule": entry.rule, "reason": entry.reason, "source": entry.source} for entry in judgement.policy
            ],
            "hints": [hint] if hint else [],
            "priced": pricing is not None and pricing.prediction is not None,
            "prediction": pricing.prediction if pricing else None,
            "bounds": _bounds(pricing),
            "calibration": self.scenario.calibration.name,
            "calibrated_range": range_in_words(self.scenario, beyond),
            "calibrated_on": basis_in_words(self.scenario),
            "memory": {
                "usable_bytes": room.usable_bytes,
                "at_risk_above_bytes": room.at_risk_above_bytes,
                "short_of": short,
                "stages": stages,
                "host": host,
            },
            "nearest": nearest,
            "searched": searched,
            "best": best,
            "infeasibility": why_nothing,
            "warnings": self.warnings,
        }

    def _warn(self, taken: str | None, status: str) -> None:
        if taken:
            self.warnings.append(f"of the file, {taken} is checked")
        framework = self.scenario.framework
        own, version = self.draft.framework_version, framework.version
        if self.draft.framework not in (None, framework.name):
            made_for = f"{self.draft.framework} {own or ''}".strip()
            self.warnings.append(f"the plan is of {made_for} and is checked under {framework.name} {version}")
        elif own is not None and own != version:
            self.warnings.append(f"the plan is of framework_version {own} and is checked under {version}")
        if "core_attn" in self.plan.recompute_modules and self.scenario.fused_attention:
            self.warnings.append("recompute_modules core_attn: a fused kernel saves nothing of the core anyway")
        least, used = self.request.least_devices, self.plan.devices_used
        if status != "illegal" and used < least:
            self.warnings.append(
                f"the plan uses {used} of {self.scenario.devices} devices; plans to compare use at least {least} "
                f"(--min-used {self.request.min_used:g})"
            )

    def _best(self, status: str, pricing: Pricing | None, nearest: Json | None) -> tuple[Json | None, Json | None]:
        """The best plan and, when no plan of the scenario fits at all, why."""
        nothing_found = self.asked.nearest and status not in FITTING and nearest is None
        if not self.asked.best and not nothing_found:
            return None, None
        try:
            search, outcome = search_best(self.request, self.deadline - time.monotonic())
        except InvalidInput as error:
            if error.field != "space":
                raise
            self.warnings.append(f"no best plan was searched: {error}")
            return None, None
        if not outcome.best:
            if outcome.proven and status in FITTING:
                self.warnings.append(f"no plan heeds what is asked of plans: {self.request.constraints.describe()}")
            return None, self._why_nothing(search, outcome) if nothing_found else None
        if not self.asked.best:
            return None, None
        own = pricing.prediction if pricing and status in FITTING else None
        best = best_of(search, outcome, self.plan, self.reference, own)
        if best["status"] != "optimal":
            self.warnings.append("--max-seconds cut the search for the best plan; a better one may exist")
        return best, None

    def _why_nothing(self, search: Search, outcome: Outcome) -> Json | None:
        """Why no plan fits, of those that may offload what the given one does: these were searched for the nearest."""
        own = ("offload", OFFLOADS.index(self.plan.offload))
        left = self.deadline - time.monotonic()
        if self.plan.offload != "none" and not self.request.constraints.touches("offload") and left > 0:
            wider, found = search_best(replace(self.request, also=(own,)), left)
            if found.proven and not found.best:
                search, outcome = wider, found
        return infeasibility(search.request, search.facts, outcome) if outcome.proven else None


def _bounds(pricing: Pricing | None) -> Json | None:
    """What is known of a plan without a price."""
    if pricing is None or pricing.prediction is not None:
        return None
    return {
        "because": list(pricing.open),
        "step_time_s": list(pricing.step_time_s),
        "peak_bytes": [round(float(pricing.least_bytes.max())), round(float(pricing.most_bytes.max()))],
    }
