"""What is answered. Units are in the names. Fields that are not required may be absent."""

from __future__ import annotations

from api.schemas.answers.base import Answer, Problem, ProblemError, Refusal
from api.schemas.answers.catalog import (
    CalibrationDetails,
    Calibrations,
    ClusterDetails,
    Clusters,
    ListedCalibration,
    ListedCluster,
    ListedModel,
    ModelDetails,
    Models,
)
from api.schemas.answers.launches import LaunchedFile, LaunchFiles
from api.schemas.answers.measurements import ListedMeasurement, Measurement, MeasurementList
from api.schemas.answers.plans import (
    Comparison,
    Difference,
    ListedPlan,
    PlanAxes,
    PlanFields,
    PlanFigures,
    PlanList,
    Prediction,
    PredictionResult,
    Predictions,
    StoredPlan,
    TermDifference,
    Violation,
)
from api.schemas.answers.searches import ListedSearch, Search, SearchList
from api.schemas.answers.studies import ListedStudy, Study, StudyList, Trial

__all__ = [
    "Answer",
    "CalibrationDetails",
    "Calibrations",
    "ClusterDetails",
    "Clusters",
    "Comparison",
    "Difference",
    "LaunchFiles",
    "LaunchedFile",
    "ListedCalibration",
    "ListedCluster",
    "ListedMeasurement",
    "ListedModel",
    "ListedPlan",
    "ListedSearch",
    "ListedStudy",
    "Measurement",
    "MeasurementList",
    "ModelDetails",
    "Models",
    "PlanAxes",
    "PlanFields",
    "PlanFigures",
    "PlanList",
    "Prediction",
    "PredictionResult",
    "Predictions",
    "Problem",
    "ProblemError",
    "Refusal",
    "Search",
    "SearchList",
    "StoredPlan",
    "Study",
    "StudyList",
    "TermDifference",
    "Trial",
    "Violation",
]
