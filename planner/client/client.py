"""The client: one method for each thing that the API does."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from importlib import metadata
from math import ceil, inf
from typing import Self

from costmodel.errors import InvalidInput
from planner.client.addresses import checked_key, is_loopback, server_address
from planner.client.answers import (
    Answer,
    Comparison,
    Health,
    LaunchFiles,
    ListedMeasurement,
    ListedPlan,
    ListedSearch,
    Measurement,
    PredictionResult,
    Search,
    SearchEvent,
    StoredPlan,
)
from planner.client.calls import Calls, answer_in, segment
from planner.client.catalog import (
    CalibrationDetails,
    ClusterDetails,
    ListedCalibration,
    ListedCluster,
    ListedModel,
    ModelDetails,
)
from planner.client.errors import BadRequest
from planner.client.following import events_of, study_events_of
from planner.client.questions import (
    PlanFilter,
    PlanQuestion,
    RunReport,
    SearchQuestion,
    StudyQuestion,
    body_of,
    query_of,
)
from planner.client.retrying import told_of
from planner.client.studies import ListedStudy, Study, StudyEvent
from planner.client.transport import Call, Transport

_LOOK_AGAIN_S = 1.0
_LEAST_PAUSE_S = 0.1
# Longer waits in one request are cut by proxies on the way; whoever waits longer asks again.
_LONGEST_WAIT_S = 30.0
_MOST_ITEMS = 100
_ASKED_AHEAD = 8


class UnencryptedKey(UserWarning):
    """An API key is about to travel where others can read it."""


class PlannerClient:
    """Asks one server. May be used by several threads at once; close it, or use it in a ``with``.

    Args:
        url: ``https://planner.example`` or ``http://127.0.0.1:8000``, with the path under which the API is, if any.
        api_key: for servers that ask for one. Over plain http to another machine it is sent as well, with a
            warning (UnencryptedKey): networks that are closed and trusted exist, but whoever listens has the key.
        timeout_s: longest silence of the server in one attempt.
        retries: how often a request is sent again when the server can't be reached or is too busy.

    Raises:
        InvalidInput: the address or the key is unusable.
    """

    def __init__(self, url: str, api_key: str | None = None, *, timeout_s: float = 30.0, retries: int = 4) -> None:
        self.url = server_address(url)
        headers = {"User-Agent": f"parallelism-planner/{metadata.version('parallelism-planner')}"}
        near = is_loopback(self.url)
        if api_key is not None:
            headers["Authorization"] = f"Bearer {checked_key(api_key)}"
            if self.url.startswith("http://") and not near:
                told = f"the API key is sent unencrypted to {self.url}; use https"
                warnings.warn(told, UnencryptedKey, stacklevel=2)
        # A proxy from the environment has no way to this machine's own loopback.
        self._transport = Transport(self.url, headers, timeout_s=timeout_s, retries=retries, through_proxies=not near)
        self._calls = Calls(self._transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PlannerClient({self.url!r})"

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    # Searches

    def suggest(self, question: SearchQuestion, wait_s: float = 120.0) -> Answer:
        """Ranked plans, or why there are none.

        Args:
            wait_s: how long to wait for them, in seconds.

        Raises:
            BadRequest: a field is unusable; nothing was searched.
            StillSearching: time is up; the search goes on, and the same question finds its answer later.
            SearchFailed: it ended without an answer.
            SearchCancelled: somebody cancelled it.
        """
        until = time.monotonic() + wait_s
        search = self.create_search(question, wait_s=min(wait_s, _LONGEST_WAIT_S))
        if not search.is_over:
            search = self.wait(search.id, max(0.0, until - time.monotonic()))
        return answer_in(search)

    def suggest_all(self, questions: Sequence[SearchQuestion]) -> Iterator[Answer | InvalidInput]:
        """The answers to many questions in their order, each as soon as it is there; a sweep, say.

        A few of them are asked ahead, so that a server with several workers has work for all. For a question that can't
        be asked, what is wrong with it.

        Raises:
            SearchFailed, SearchCancelled: one ended without an answer.
        """
        ahead: deque[Search | InvalidInput] = deque()
        for place in range(len(questions)):
            while place + len(ahead) < min(place + _ASKED_AHEAD, len(questions)):
                try:
                    ahead.append(self.create_search(questions[place + len(ahead)]))
                except BadRequest as error:
                    ahead.append(error)
            search = ahead.popleft()
            if not isinstance(search, InvalidInput) and not search.is_over:
                search = self.wait(search.id)
            yield search if isinstance(search, InvalidInput) else answer_in(search)

    def create_search(self, question: SearchQuestion, wait_s: float = 0.0) -> Search:
        """Ask, and wait no longer than ``wait_s``: an Answer if there is one by then, else the search as it stands."""
        seconds = ceil(wait_s)
        prefer = {"Prefer": f"wait={seconds}"} if seconds else {}
        return self._calls.read_search(self._calls.post("/v1/searches", body_of(question), prefer, seconds))

    def get_search(self, search_id: str) -> Search:
        """A search as it stands; an Answer when it is done."""
        call = Call(method="GET", path=f"/v1/searches/{segment(search_id)}")
        return self._calls.read_search(self._transport.document(call))

    def wait(self, search_id: str, wait_s: float | None = None) -> Search:
        """The search once it is over, or as it stands when ``wait_s`` seconds have gone; None waits till it is over.

        Looks again when the server says so, and gets the whole search only when it has changed.
        """
        until = inf if wait_s is None else time.monotonic() + wait_s
        found: Search | None = None
        seen: dict[str, str] = {}
        path = f"/v1/searches/{segment(search_id)}"
        while True:
            response = self._transport.send(Call(method="GET", path=path, headers=seen, accepted=frozenset({304})))
            if found is None or response.status_code != 304:
                found = self._calls.read_search(self._transport.document_of(response))
                seen = {"If-None-Match": response.headers["etag"]} if "etag" in response.headers else {}
            left = until - time.monotonic()
            if found.is_over or left <= 0:
                return found
            told = told_of(response.headers)
            pause = _LOOK_AGAIN_S if told is None else max(told, _LEAST_PAUSE_S)
            time.sleep(min(left, pause, self._transport.backoff.longest_told_s))

    def searches(
        self,
        *,
        state: str | None = None,
        status: str | None = None,
        model: str | None = None,
        cluster: str | None = None,
        since: str | None = None,
        page_size: int = 100,
    ) -> Iterator[ListedSearch]:
        """Searches, newest first; pages are asked for as they are needed.

        Args:
            since: how long ago the oldest may have been asked, in hours or days: ``PT1H`` or ``P7D``.
        """
        wanted = {"state": state, "status": status, "model": model, "cluster": cluster, "since": since}
        return self._calls.pages(ListedSearch, "/v1/searches", wanted, page_size)

    def cancel(self, search_id: str) -> Search:
        """Stop a search: at once when it waits, in a moment when it runs; one that is over stays as it is."""
        # Cancelling twice is cancelling, so it may be repeated without a key.
        call = Call(method="POST", path=f"/v1/searches/{segment(search_id)}/cancel")
        return self._calls.read_search(self._transport.document(call))

    def events(self, search_id: str, after: int = 0) -> Iterator[SearchEvent]:
        """What happens to a search, as it happens, until it is over. A lost connection is taken up where it broke.

        Args:
            after: number of the last event that is known already.
        """
        return events_of(self._transport, self._calls, search_id, after)

    # Plans

    def plan(self, plan_id: str) -> StoredPlan:
        """A stored plan with its prediction."""
        return self._calls.one(StoredPlan, f"/v1/plans/{segment(plan_id)}")

    def launch(self, plan_id: str, target: str, version: str | None = None) -> LaunchFiles:
        """A stored plan in the words of a framework or a scheduler.

        Raises:
            BadRequest: there is no such target, or it can't say all of the plan: ``refusals``.
        """
        query = {"target": target} | ({} if version is None else {"version": version})
        return self._calls.one(LaunchFiles, f"/v1/plans/{segment(plan_id)}/launch", query)

    def plans(
        self, chosen: PlanFilter | None = None, *, sort: str = "-created_at", page_size: int = 100
    ) -> Iterator[ListedPlan]:
        """Stored plans; pages are asked for as they are needed.

        Args:
            sort: ``step_time_s``, ``tokens_per_s_per_device``, ``mfu``, ``peak_bytes`` or ``created_at``; with a ``-``
                in front largest first.
        """
        return self._calls.pages(ListedPlan, "/v1/plans", {**query_of(chosen or PlanFilter()), "sort": sort}, page_size)

    def compare(self, *plan_ids: str) -> Comparison:
        """Two to six plans side by side."""
        return self._calls.one(Comparison, "/v1/plans/compare", {"plan": list(plan_ids)})

    def predict(self, items: Sequence[PlanQuestion]) -> tuple[PredictionResult, ...]:
        """Judge and price plans; results are in the order of the items. Priced ones are stored."""
        found: list[PredictionResult] = []
        for start in range(0, len(items), _MOST_ITEMS):
            body = {"items": [body_of(item) for item in items[start : start + _MOST_ITEMS]]}
            found += self._calls.read_items(PredictionResult, self._calls.post("/v1/predictions", body))
        return tuple(found)

    # Measurements

    def measure(self, report: RunReport) -> Measurement:
        """Tell what a plan did when it ran; told once, however often the request has to be sent."""
        return self._calls.read(Measurement, self._calls.post("/v1/measurements", body_of(report)))

    def measurement(self, measurement_id: str) -> Measurement:
        """A measurement beside what was predicted."""
        return self._calls.one(Measurement, f"/v1/measurements/{segment(measurement_id)}")

    def measurements(
        self,
        *,
        plan_id: str | None = None,
        scenario_id: str | None = None,
        job_id: str | None = None,
        status: str | None = None,
        page_size: int = 100,
    ) -> Iterator[ListedMeasurement]:
        """Measurements, newest first; pages are asked for as they are needed."""
        wanted = {"plan_id": plan_id, "scenario_id": scenario_id, "job_id": job_id, "status": status}
        return self._calls.pages(ListedMeasurement, "/v1/measurements", wanted, page_size)

    # Studies

    def create_study(self, question: StudyQuestion) -> Study:
        """Have plans tried on real machines; it waits for a worker of its runner.

        Raises:
            BadRequest: a field is unusable, or another study has that name.
        """
        return self._calls.read(Study, self._calls.post("/v1/studies", body_of(question)))

    def study(self, study_id: str) -> Study:
        """A study as it stands, with its trials."""
        return self._calls.one(Study, f"/v1/studies/{segment(study_id)}")

    def studies(self, *, state: str | None = None, page_size: int = 100) -> Iterator[ListedStudy]:
        """Studies, newest first; pages are asked for as they are needed."""
        return self._calls.pages(ListedStudy, "/v1/studies", {"state": state}, page_size)

    def cancel_study(self, study_id: str) -> Study:
        """Stop a study: nothing new is begun, what runs is stopped by its workers; one that is over stays as it is."""
        call = Call(method="POST", path=f"/v1/studies/{segment(study_id)}/cancel")
        return self._calls.read(Study, self._transport.document(call))

    def study_events(self, study_id: str) -> Iterator[StudyEvent]:
        """How a study stands, trial by trial, and what changes, until nothing of it runs any more.

        A lost connection is made again, and nothing is told twice.
        """
        return study_events_of(self._transport, self._calls, study_id)

    # Catalog and health

    def models(self) -> tuple[ListedModel, ...]:
        """The models that a question may name."""
        return self._calls.items(ListedModel, "/v1/models")

    def model(self, name: str) -> ModelDetails:
        """A model with its shape."""
        return self._calls.one(ModelDetails, f"/v1/models/{segment(name)}")

    def clusters(self) -> tuple[ListedCluster, ...]:
        """The clusters that a question may name."""
        return self._calls.items(ListedCluster, "/v1/clusters")

    def cluster(self, name: str) -> ClusterDetails:
        """A cluster with its accelerator and tiers."""
        return self._calls.one(ClusterDetails, f"/v1/clusters/{segment(name)}")

    def calibrations(self) -> tuple[ListedCalibration, ...]:
        """The calibrations that answers rest on, the current one first."""
        return self._calls.items(ListedCalibration, "/v1/calibrations")

    def calibration(self, name: str) -> CalibrationDetails:
        """A calibration, by its name or id, with its parameters."""
        return self._calls.one(CalibrationDetails, f"/v1/calibrations/{segment(name)}")

    def health(self) -> Health:
        """Whether the server can answer questions. Asked once: whoever watches wants to know how it is now.

        Raises:
            ServerUnavailable: it can't be reached.
        """
        response = self._transport.send(Call(method="GET", path="/readyz", accepted=frozenset({503})), retries=0)
        told = self._transport.document_of(response)
        if response.status_code == 503:
            return Health(ready=False, reason=told.get("detail") if isinstance(told, dict) else None)
        return self._calls.read(Health, told | {"ready": True} if isinstance(told, dict) else told)
