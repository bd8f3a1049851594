"""``planner suggest --server URL``: files are read here, the search runs there, the answer is told as one of here."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from costmodel.calibration.calibration import Calibration
from costmodel.catalog import folders
from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.documents import SUFFIXES
from costmodel.catalog.model_catalog import load_model
from costmodel.errors import InvalidInput, PlannerError, UnknownName
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.model import ModelSpec
from planner.cli.exits import tell
from planner.client import (
    BadRequest,
    NotAllowed,
    NotThere,
    PlannerClient,
    Search,
    SearchQuestion,
    ServerUnavailable,
    UnencryptedKey,
)
from planner.client.calls import answer_in
from planner.export.launch import Launch, LaunchFile, plain_file_name
from planner.question import Question

# Not an option: the command lines of processes can be read by everybody on a machine.
KEY_VARIABLE = "PLANNER_API_KEY"


class Interrupted(PlannerError):
    """Ctrl-C while a server searches, which it goes on doing."""


def answer_there(question: Question, url: str) -> dict[str, Any]:
    """The answer of the server at ``url``, as the server stores it.

    Raises:
        InvalidInput: a field is unusable, here or in the eyes of the server.
        ClientError: the server can't be reached, or failed.
        Interrupted: the user does not want to wait any longer.
    """
    asked = _to_be_sent(question)
    with _client(url) as client:
        try:
            search = client.create_search(asked)
        except BadRequest:
            _complain_as_here(question)
            raise
        except NotAllowed as error:
            raise NotAllowed(f"{error} ({KEY_VARIABLE} holds the key that is sent)", status=error.status) from None
        try:
            return answer_in(_over(client, search)).document()
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted; search {search.id} goes on at {client.url}, which stores its answer: the same command "
                "finds it later"
            ) from None


def answers_there(questions: Sequence[Question], url: str) -> Iterator[dict[str, Any] | InvalidInput]:
    """The answers of the server at ``url`` in the order of the questions; what is wrong, for one that it refuses.

    Raises:
        ClientError: the server can't be reached, or failed.
    """
    with _client(url) as client:
        for answer in client.suggest_all([_to_be_sent(question) for question in questions]):
            yield answer if isinstance(answer, InvalidInput) else answer.document()


def launch_there(url: str, plan_id: str, target: str, version: str | None) -> Launch:
    """A plan that the server at ``url`` has, in the words of a target.

    Raises:
        InvalidInput: the server has no such plan or target, or the target can't say the plan.
        ClientError: the server can't be reached, or failed.
    """
    with _client(url) as client:
        try:
            found = client.launch(plan_id, target, version)
        except NotThere as error:
            raise InvalidInput("id", plan_id, str(error)) from None
    return Launch(
        target=found.target,
        version=found.version,
        files=tuple(
            LaunchFile(name=plain_file_name(file.name), text=file.text, executable=file.executable)
            for file in found.files
        ),
        command=found.command,
        notes=found.notes,
    )


def _client(url: str) -> PlannerClient:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnencryptedKey)
        client = PlannerClient(url, os.environ.get(KEY_VARIABLE) or None)
    for warning in caught:
        tell(f"planner: warning: {warning.message}")
    return client


def _over(client: PlannerClient, search: Search) -> Search:
    """The search once it is over, told by the server as soon as it is; where streams do not get through, looked up."""
    if search.is_over:
        return search
    with suppress(ServerUnavailable):
        for _ in client.events(search.id):
            pass
    return client.wait(search.id)


def _complain_as_here(question: Question) -> None:
    """Raise what is wrong with a question as a run without a server would; nothing if only the server refuses it."""
    from planner.resolving import request_of

    request_of(question)


def _to_be_sent(question: Question) -> SearchQuestion:
    return SearchQuestion(
        model=_named_or_whole("model", question.model, load_model),
        cluster=_named_or_whole("cluster", question.cluster, load_cluster),
        devices=question.devices,
        global_batch_size=question.global_batch_size,
        seq_len=question.seq_len,
        precision=question.precision,
        optimizer=question.optimizer,
        gradient_dtype=question.gradient_dtype,
        framework=question.framework,
        framework_version=question.framework_version,
        calibration=_named(question.calibration),
        objective=question.objective,
        price_per_device_hour=question.price_per_device_hour,
        pins=question.pins,
        forbids=question.forbids,
        allow=question.allow or None,
        min_free_gib=question.min_free_gib,
        min_used=question.min_used,
        top=question.top,
        max_seconds=question.max_seconds,
        seed=question.seed,
        explain=question.explain or None,
        min_devices=question.min_devices,
        max_step_time_s=question.max_step_time_s,
        batch_tolerance=question.batch_tolerance or None,
        pareto=question.pareto or None,
        shortlist=question.shortlist,
    )


def _named(calibration: str | Calibration | None) -> str | None:
    """What the server is to look up in its own catalog: what it answers by is for those to choose who run it."""
    if calibration is None:
        return None
    given = calibration if isinstance(calibration, str) else calibration.name
    if not isinstance(calibration, str) or given.strip().lower().endswith(SUFFIXES):
        expected = "a server takes calibrations of its own catalog by name, no files; leave out --server, or name one"
        raise InvalidInput("calibration", given, expected)
    return given


def _named_or_whole(
    kind: folders.Kind, given: str | ModelSpec | ClusterSpec, load: Callable[[str], ModelSpec | ClusterSpec]
) -> str | dict[str, Any]:
    """A name where the server has to know what it means; for a file or an entry of the user's own, all that it says.

    It is sent as it was understood here, ``extends`` resolved and in the fields of ModelSpec or ClusterSpec, so the
    server can't call it otherwise or understand less of it.
    """
    if not isinstance(given, str):
        return given.model_dump(mode="json")
    try:
        found = load(given)
    except UnknownName as error:
        # An unknown accelerator inside a file is wrong here; a name that only the server may know is not.
        if error.field != kind:
            raise
        return given
    return given if _is_packaged(kind, given, found.name) else found.model_dump(mode="json")


def _is_packaged(kind: folders.Kind, given: str, name: str) -> bool:
    """Whether text stands for an entry that ships with every planner."""
    entry = folders.find(kind, given)
    if entry is None and kind == "cluster" and not given.strip().lower().endswith(SUFFIXES):
        entry = folders.find(kind, name)  # another spelling, such as "DGX H100"
    return entry is not None and entry.packaged
