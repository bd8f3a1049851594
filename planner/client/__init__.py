"""A client of the planner's API, for schedulers and other programs.

from planner.client import PlannerClient, SearchQuestion

with PlannerClient("http://127.0.0.1:8000") as planner:
    answer = planner.suggest(SearchQuestion(model="llama-3-8b", cluster="dgx-h100", devices=64,
                                            global_batch_size=256, seq_len=8192))
    print(answer.plans[0].prediction.step_time_s)
"""

from planner.client.answers import (
    Answer,
    AskedQuestion,
    Comparison,
    EarlierAnswer,
    Health,
    LaunchedFile,
    LaunchFiles,
    ListedMeasurement,
    ListedPlan,
    ListedSearch,
    Measurement,
    PlanAxes,
    PlanFields,
    Prediction,
    PredictionResult,
    RankedPlan,
    Search,
    SearchEvent,
    StoredPlan,
)
from planner.client.catalog import (
    CalibrationDetails,
    ClusterDetails,
    ListedCalibration,
    ListedCluster,
    ListedModel,
    ModelDetails,
)
from planner.client.client import PlannerClient, UnencryptedKey
from planner.client.errors import (
    BadRequest,
    ClientError,
    NotAllowed,
    NotThere,
    SearchCancelled,
    SearchFailed,
    ServerFailed,
    ServerUnavailable,
    StillSearching,
)
from planner.client.questions import PlanFilter, PlanQuestion, RunReport, SearchQuestion, StudyQuestion
from planner.client.studies import FollowedStudy, ListedStudy, Study, StudyEvent, Trial

__all__ = [
    "Answer",
    "AskedQuestion",
    "BadRequest",
    "CalibrationDetails",
    "ClientError",
    "ClusterDetails",
    "Comparison",
    "EarlierAnswer",
    "FollowedStudy",
    "Health",
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
    "ModelDetails",
    "NotAllowed",
    "NotThere",
    "PlanAxes",
    "PlanFields",
    "PlanFilter",
    "PlanQuestion",
    "PlannerClient",
    "Prediction",
    "PredictionResult",
    "RankedPlan",
    "RunReport",
    "Search",
    "SearchCancelled",
    "SearchEvent",
    "SearchFailed",
    "SearchQuestion",
    "ServerFailed",
    "ServerUnavailable",
    "StillSearching",
    "StoredPlan",
    "Study",
    "StudyEvent",
    "StudyQuestion",
    "Trial",
    "UnencryptedKey",
]
