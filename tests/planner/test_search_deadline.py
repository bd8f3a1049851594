"""A search ends when its time is over, wherever it is, and says no more than it knows then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from costmodel.facts import Facts
from planner.search import found, leanest, relaxation, solve
from planner.search.answer import answer_of
from planner.search.eliminate import eliminate
from planner.search.layouts import exact
from planner.search.leanest import nearest_plan
from planner.search.priced import Priced
from planner.search.request import SearchRequest
from planner.search.solve import Outcome, Search
from planner.search.space import mesh_candidates
from planner.search.unfit import unfit_meshes
from tests.scenarios import scenario_of
from tests.searches import request_of


def loose_request(**how: Any) -> SearchRequest:
    """A list so long that the plans priced first say little: far too much could belong into it to go through it all."""
    scenario = scenario_of("deepseek-v3", "dgx-h100", 16384, 15360, 4096)
    return request_of(scenario, ("mbs=..8", "cp=1", "etp=1"), top=1000, min_used=0.5, **how)


def experts(**how: Any) -> SearchRequest:
    """A search of a second or two in several blocks."""
    return request_of(scenario_of("qwen3-30b-a3b", "dgx-h100", 16, 2, 4096), **({"top": 60} | how))


class _Cut:
    """Ends a search some time after a step was told, and counts the processor's seconds from then on.

    Attributes:
        closing_s: processor's seconds that the search took to lay out what it answers, once it had ended.
        begun: of what a search does again and again, what began after its end; one piece may begin in that very moment.
    """

    def __init__(self, request: SearchRequest, step: str, after_s: float, how: str) -> None:
        self.step, self.after_s, self.how = step, after_s, how
        self.at: float | None = None
        self.stopped = threading.Event()
        self.search = Search(request, self._told, self.stopped)
        self.closing_s = 0.0
        self.begun: list[str] = []

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Fills ``closing_s`` and ``begun``."""
        for where, name in ((solve, "enumerate_below"), (exact, "choice_of"), (exact, "splits_of"), (found, "predict")):
            monkeypatch.setattr(where, name, self._noted(name, getattr(where, name)))
        best = self.search.found.best

        def timed(top: int) -> list[Priced]:
            monkeypatch.undo()
            begun = time.process_time()
            plans = best(top)
            self.closing_s = time.process_time() - begun
            return plans

        monkeypatch.setattr(self.search.found, "best", timed)

    def _noted(self, name: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            if self.at is not None:
                self.begun.append(name)
            return does(*args)

        return noted

    def _told(self, step: str, _: dict[str, Any]) -> None:
        if step != self.step:
            return
        self.step = ""
        if self.how == "deadline":
            self.search.deadline = time.monotonic() + self.after_s
        self.timer = threading.Timer(self.after_s, self._end)
        self.timer.daemon = True
        self.timer.start()

    def _end(self) -> None:
        self.at = time.process_time()
        if self.how == "stopped":
            self.stopped.set()

    def run(self) -> tuple[Outcome, float]:
        outcome = self.search.run()
        ended = time.process_time()
        self.timer.cancel()
        return outcome, ended - self.at if self.at is not None else 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("after_s", "how"), [(0.5, "deadline"), (4.0, "stopped")])
def test_a_search_with_far_too_much_to_list_ends_when_its_time_is_over(
    after_s: float, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after the first plan is proven, and in the middle of the list.

    It only finishes the piece that it is at, and pieces are small: how small is told by the answer's own layouts, which
    take two tenths of a second and are as slow as all the rest on a slow machine.
    """
    cut = _Cut(loose_request(max_seconds=600.0), "listed", after_s, how)
    cut.watch(monkeypatch)
    outcome, worked_on = cut.run()
    assert len(cut.begun) <= 1, cut.begun
    assert worked_on < 6 * cut.closing_s
    assert outcome.best_proven
    assert not outcome.proven
    assert len(outcome.best) == 1000


@pytest.mark.slow
def test_the_whole_answer_of_the_largest_space_comes_in_time() -> None:
    """A million meshes: the deadline passes in the relaxation, and the answer has plans all the same."""
    scenario = scenario_of("deepseek-v3", "dgx-h100", 16384, 15360, 4096)
    request = request_of(scenario, top=1000, min_used=0.5, max_seconds=2.0)
    at: list[float] = []
    timer = threading.Timer(request.max_seconds, lambda: at.append(time.process_time()))
    timer.start()
    search = Search(request)
    answer = answer_of(request, search.facts, search.run())
    ended = time.process_time()
    timer.join()
    # Slow machines still look at the meshes by then, which has to come first.
    assert ended - at[0] < 2.0
    assert answer["status"] == "feasible"
    assert answer["plans"]
    assert not answer["proven_top_k"]


@pytest.mark.parametrize("top", [10, 30])
def test_what_a_search_says_is_true_wherever_it_is_cut(top: int) -> None:
    whole = Search(experts(top=top)).run()
    assert whole.proven
    bounds = []
    for after_s in (0.0, 0.1, 0.2, 0.4, 0.8):
        cut, _ = _Cut(experts(top=top), "incumbents", after_s, "deadline").run()
        assert cut.bound is not None
        assert cut.bound <= whole.best[0].objective <= cut.best[0].objective
        if cut.best_proven:
            assert cut.best[0].row == whole.best[0].row
            assert cut.bound == cut.best[0].objective
        if cut.proven:
            assert [plan.row for plan in cut.best] == [plan.row for plan in whole.best]
        bounds.append(cut.bound)
    assert bounds[0] < whole.best[0].objective, "cut before anything was listed"


@pytest.mark.parametrize("objective", ["step_time", "cost", "fewest_devices"])
def test_the_size_of_the_blocks_does_not_change_the_answer(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_of(
        scenario_of("llama-3.2-3b", "rtx4090-8", 4, 8, 4096), top=20, objective=objective, price_per_device_hour=2.0
    )
    whole = Search(request).run()
    monkeypatch.setattr(solve, "_ROWS_AT_ONCE", 9)
    monkeypatch.setattr(relaxation, "PAIRS_AT_ONCE", 40)
    monkeypatch.setattr(leanest, "_MESHES_IN_A_BLOCK", 7)
    parts = Search(request).run()
    assert whole.proven
    assert parts.proven
    assert [plan.row for plan in parts.best] == [plan.row for plan in whole.best]
    assert parts.bound == whole.bound
    assert parts.elimination.counts == whole.elimination.counts


def test_counting_what_does_not_fit_ends_with_the_time_too() -> None:
    request = request_of(scenario_of("llama-3.1-70b", "dgx-a100-80gb", 16, 64, 4096))
    candidates = mesh_candidates(request)
    legal = eliminate(request, candidates).legal
    meshes = {axis: column[legal] for axis, column in candidates.items()}
    facts, usable = Facts.of(request.scenario), float(request.scenario.usable_bytes)
    assert unfit_meshes(request, facts, meshes, usable, lambda: True) is None
    assert nearest_plan(request, facts, meshes, lambda: True) is None
    counted = unfit_meshes(request, facts, meshes, usable, lambda: False)
    assert counted is not None
    assert counted.all()
