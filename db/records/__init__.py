"""What goes into the repositories and comes out of them: plain frozen values, no sessions behind them."""

from __future__ import annotations

from db.records.access import ApiKey, Claimed, StoredResponse
from db.records.catalog import Calibration, Cluster, Model, Scenario
from db.records.measurements import MeasuredStatus, Measurement
from db.records.plans import PLAN_SORTS, ListedPlan, Plan, PlanFilter, PlanPlace
from db.records.searches import Code, Event, NewSearch, Search, SearchResult, SearchState
from db.records.studies import Study, StudyCandidate, StudyState, Trial, TrialOutcome
from db.records.values import Json, Page

__all__ = [
    "PLAN_SORTS",
    "ApiKey",
    "Calibration",
    "Claimed",
    "Cluster",
    "Code",
    "Event",
    "Json",
    "ListedPlan",
    "MeasuredStatus",
    "Measurement",
    "Model",
    "NewSearch",
    "Page",
    "Plan",
    "PlanFilter",
    "PlanPlace",
    "Scenario",
    "Search",
    "SearchResult",
    "SearchState",
    "StoredResponse",
    "Study",
    "StudyCandidate",
    "StudyState",
    "Trial",
    "TrialOutcome",
]
