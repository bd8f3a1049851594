"""The tables, as SQLAlchemy sees them. Only ``db`` knows these classes; everyone else gets ``db.records``.

What people filter or sort by is a column. What is only shown (a plan's layers, the terms of a prediction) is a JSON
document in a row of its own, so that ``plans`` stays narrow and a scan of a hundred thousand of them stays fast.
Ids of what has content (models, clusters, scenarios, calibrations, plans) are fingerprints of that content; such rows
are written once and never changed.
"""

from __future__ import annotations

from db.tables.access import ApiKeyRow, IdempotencyKeyRow
from db.tables.base import FINGERPRINT, Base
from db.tables.catalog import CalibrationRow, ClusterRow, ModelRow, ScenarioRow
from db.tables.measurements import MEASURED_STATUSES, MeasurementRow
from db.tables.plans import PlanDocumentRow, PlanRow, PredictionRow
from db.tables.searches import LIVE, SEARCH_STATES, SearchEventRow, SearchPlanRow, SearchRow
from db.tables.studies import STUDY_STATES, TRIAL_OUTCOMES, StudyCandidateRow, StudyRow, TrialRow

__all__ = [
    "FINGERPRINT",
    "LIVE",
    "MEASURED_STATUSES",
    "SEARCH_STATES",
    "STUDY_STATES",
    "TRIAL_OUTCOMES",
    "ApiKeyRow",
    "Base",
    "CalibrationRow",
    "ClusterRow",
    "IdempotencyKeyRow",
    "MeasurementRow",
    "ModelRow",
    "PlanDocumentRow",
    "PlanRow",
    "PredictionRow",
    "ScenarioRow",
    "SearchEventRow",
    "SearchPlanRow",
    "SearchRow",
    "StudyCandidateRow",
    "StudyRow",
    "TrialRow",
]
