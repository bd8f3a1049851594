"""The answers that were looked at last. One that is over never changes, and a thousand plans take long to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from api.last_used import LastUsed
from api.problems import not_found
from api.schemas.answers.searches import OVER
from db import records
from db.store import Store
from planner.stored.answers import stored_answer

Json = dict[str, Any]

_MOST_PLANS = 4_000


@dataclass(frozen=True, kw_only=True)
class Known:
    """A search, what it is about, and the API's answer, which says nothing of the stages of its plans' memory."""

    search: records.Search
    scenario: records.Scenario
    answer: Json

    @property
    def plans(self) -> list[Json]:
        """Best first; none for as long as there is no answer."""
        return self.answer.get("plans") or []

    @property
    def weight(self) -> int:
        """What it takes in memory, in plans; the rest of an answer counts as one."""
        shortlist = (self.answer.get("shortlist") or {}).get("plans") or []
        relaxations = (self.answer.get("infeasibility") or {}).get("relaxations") or []
        parts = (self.plans, self.answer.get("pareto") or [], shortlist, relaxations)
        return 1 + sum(len(part) for part in parts)


class KeptAnswers(LastUsed[str, Known]):
    """Those that are over.

    Args:
        most_plans: of all answers together.
    """

    def __init__(self, most_plans: int = _MOST_PLANS) -> None:
        super().__init__(most_plans, lambda known: known.weight)

    def read(self, store: Store, search_id: str) -> Known:
        """A search as it stands.

        Raises:
            ProblemRaised: there is no such search.
        """
        known = self.find(search_id)
        if known is not None:
            return known
        with store.reading() as repos:
            search = repos.searches.get(search_id)
            if search is None:
                raise not_found("search", search_id)
            answer = stored_answer(repos, search, stages=False)
            scenario = repos.scenarios.get(search.scenario_id)
        assert scenario is not None, "foreign keys hold"
        known = Known(search=search, scenario=scenario, answer=answer)
        if search.state in OVER:
            self._keep(known)
        return known

    def _keep(self, known: Known) -> None:
        self.put(known.search.id, known)
