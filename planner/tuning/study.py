"""A study in memory, kept by Optuna: its trials, and what it asks for next.

It is made anew from the trials that are stored whenever somebody asks, so nothing but one database has to be right
after a crash. Its parameters are the fields by which the candidates' plans differ; its sampler proposes by what is
believed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from planner.tuning.belief import Belief, Candidates, Tried
from planner.tuning.proposals import proposal_of

# It tells of every study that is made; ours are made anew for every question.
optuna.logging.disable_default_handler()

_PLACE, _STATUS, _PEAK = "candidate", "status", "peak_bytes"
_STATES = {
    "ok": TrialState.COMPLETE,
    "stopped": TrialState.PRUNED,
    "out_of_memory": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}
MEMORY = "memory"
"""The constraint of Optuna's that a trial breaks which is out of memory."""


class Study:
    """What is known and asked of some candidates."""

    def __init__(self, candidates: Candidates, sampler: BaseSampler | None = None) -> None:
        """A study without trials.

        Args:
            sampler: another one than that of what is believed, to compare with.
        """
        self.candidates = candidates
        self._space = space_of(candidates.plans)
        self._believing = _Believing(candidates)
        self._places = {_key(parameters): place for place, parameters in enumerate(self._parameters())}
        self._study = optuna.create_study(
            sampler=sampler or _BeliefSampler(self._believing, self._space), direction="minimize"
        )
        self._asked: dict[int, optuna.Trial] = {}

    def ask(self) -> int | None:
        """The next candidate to run, which counts as running until it is told; None when the sampler has none."""
        if len(self.tried) + len(self._asked) >= len(self.candidates):
            return None
        trial = self._study.ask(self._space)
        place = self._places.get(_key(trial.params))
        if place is None or place in self._asked or place in {known.place for known in self.tried}:
            # Of other samplers than ours: a combination that is no candidate, or one again.
            self._study.tell(trial, state=TrialState.FAIL)
            return None
        trial.set_user_attr(_PLACE, place)
        self._asked[place] = trial
        return place

    def tell(self, tried: Tried) -> None:
        """How a candidate did, asked for or not."""
        trial = self._asked.pop(tried.place, None)
        if trial is None:
            self._study.add_trial(self._finished(tried))
            return
        state = _STATES[tried.status]
        for name, value in _attributes(tried).items():
            trial.set_user_attr(name, value)
        trial.set_constraint(MEMORY, _broken(tried))
        if state is TrialState.PRUNED and tried.step_time_s:
            trial.report(tried.step_time_s, 0)
        self._study.tell(trial, tried.step_time_s if state is TrialState.COMPLETE else None, state)

    def running(self, places: Iterable[int]) -> None:
        """Candidates that others run right now."""
        for place in places:
            self._study.add_trial(
                optuna.trial.create_trial(
                    state=TrialState.RUNNING,
                    params=self._parameters_of(place),
                    distributions=self._space,
                    user_attrs={_PLACE: place},
                )
            )

    @property
    def tried(self) -> list[Tried]:
        """Everything that was told."""
        return told(self.trials)

    @property
    def trials(self) -> list[FrozenTrial]:
        """As Optuna has them."""
        return self._study.get_trials(deepcopy=False)

    def belief(self) -> Belief:
        """What is believed now."""
        return self._believing.after(self.tried)

    def _finished(self, tried: Tried) -> FrozenTrial:
        state = _STATES[tried.status]
        return optuna.trial.create_trial(
            state=state,
            value=tried.step_time_s if state is TrialState.COMPLETE else None,
            params=self._parameters_of(tried.place),
            distributions=self._space,
            constraints={MEMORY: _broken(tried)},
            intermediate_values={0: tried.step_time_s} if tried.step_time_s and state is TrialState.PRUNED else None,
            user_attrs=_attributes(tried),
        )

    def _parameters(self) -> Iterable[dict[str, Any]]:
        return (self._parameters_of(place) for place in range(len(self.candidates)))

    def _parameters_of(self, place: int) -> dict[str, Any]:
        return {name: _as_choice(self.candidates.plans[place].get(name)) for name in self._space}


class _Believing:
    """What is believed after some trials, worked out once for all who ask in a row: it takes up to a second."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self._last: Belief | None = None

    def after(self, tried: Sequence[Tried]) -> Belief:
        """What is believed after these trials."""
        if self._last is None or self._last.tried != tuple(tried):
            self._last = Belief(self.candidates, tried)
        return self._last


class _BeliefSampler(BaseSampler):
    """Proposes the candidate that promises most, by ``proposal_of``."""

    def __init__(self, believing: _Believing, space: dict[str, BaseDistribution]) -> None:
        self._believing, self._space = believing, space

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        others = [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
        running = [other.user_attrs[_PLACE] for other in others if other.state is TrialState.RUNNING]
        found = proposal_of(self._believing.after(told(others)), running)
        if found is None:
            return {}
        plan = self._believing.candidates.plans[found.place]
        return {name: _as_choice(plan.get(name)) for name in search_space}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        assert isinstance(param_distribution, CategoricalDistribution)
        return param_distribution.choices[0]


def told(trials: Iterable[FrozenTrial]) -> list[Tried]:
    """The finished ones of Optuna's trials in our words."""
    return [
        Tried(
            place=trial.user_attrs[_PLACE],
            status=trial.user_attrs[_STATUS],
            step_time_s=trial.value if trial.value is not None else trial.intermediate_values.get(0),
            peak_bytes=trial.user_attrs[_PEAK],
        )
        for trial in trials
        if _STATUS in trial.user_attrs
    ]


def space_of(plans: Sequence[Mapping[str, Any]]) -> dict[str, BaseDistribution]:
    """The fields by which plans differ, each with its values in the order in which they first come."""
    fields = dict.fromkeys(name for plan in plans for name in plan)
    values = {name: tuple(dict.fromkeys(_as_choice(plan.get(name)) for plan in plans)) for name in fields}
    return {name: CategoricalDistribution(choices) for name, choices in values.items() if len(choices) > 1}


def _attributes(tried: Tried) -> dict[str, Any]:
    return {_PLACE: tried.place, _STATUS: tried.status, _PEAK: tried.peak_bytes}


def _broken(tried: Tried) -> float:
    """Optuna's constraints hold where they are not positive."""
    return 1.0 if tried.status == "out_of_memory" else 0.0


def _as_choice(value: Any) -> Any:
    """A list is no value that Optuna takes."""
    return json.dumps(value) if isinstance(value, list | tuple) else value


def _key(parameters: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(parameters.items()))
