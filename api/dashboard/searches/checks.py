"""What the planner says of each value of a question by itself, so that a form is told of all that is wrong at once.

The functions are those that answer the API. What only holds for a question as a whole is said by its request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from api.validation import parts_of
from costmodel.calibration.calibration import named_calibration
from costmodel.catalog.cluster_catalog import named_cluster
from costmodel.catalog.framework_catalog import load_framework, load_optimizer, load_precision
from costmodel.catalog.model_catalog import named_model
from costmodel.errors import InvalidInput, UnreadableFile
from planner.question import Question
from planner.resolving import check_size
from planner.search.constraints import Constraints

Check = Callable[[], object]

_BY_NAME: Mapping[str, Callable[[str], object]] = {
    "model": named_model,
    "cluster": named_cluster,
    "precision": load_precision,
    "optimizer": load_optimizer,
    "framework": load_framework,
    "calibration": named_calibration,
}
_SIZES = {"devices": "devices", "global_batch_size": "global-batch-size", "seq_len": "seq-len"}


def refusals(values: Mapping[str, Any], wrong: Collection[str]) -> Iterator[tuple[str, InvalidInput]]:
    """Field and error of every value that can't be used.

    Args:
        values: of the API's body, by name; what is left out has its default.
        wrong: fields that are known to be wrong: no more is said of them, nor of what rests on them.
    """
    unusable = set(wrong)
    for name, check in _alone(values):
        error = None if name in wrong else _error_of(check)
        if error is not None:
            unusable.add(name)
            yield name, error
    for names, check in _together(values):
        error = _error_of(check) if unusable.isdisjoint(names) else None
        if error is not None:
            yield field_of(error), error


def field_of(error: InvalidInput) -> str:
    """The field of the API's body that an error is about."""
    return parts_of(error.field)[0]


def said(error: InvalidInput) -> str:
    """What an error says, for a reader who sees the field's name anyway."""
    return str(error).partition(": ")[2]


def _alone(values: Mapping[str, Any]) -> Iterator[tuple[str, Check]]:
    for name, look_up in _BY_NAME.items():
        if name in values:
            yield name, partial(look_up, values[name])
    for name, flag in _SIZES.items():
        if name in values:
            yield name, partial(check_size, flag, values[name])
    # Every condition by itself, so that one that can't be read does not hide the next.
    for text in values.get("pins", ()):
        yield "pins", partial(Constraints.parse, [text], [])
    for text in values.get("forbids", ()):
        yield "forbids", partial(Constraints.parse, [], [text])


def _together(values: Mapping[str, Any]) -> Iterator[tuple[set[str], Check]]:
    """What rests on several fields, and on which."""
    if {"cluster", "devices"} <= values.keys():
        yield {"cluster", "devices"}, lambda: named_cluster(values["cluster"]).check_devices(values["devices"])
    if "framework_version" in values:
        framework = values.get("framework", Question.framework)
        yield {"framework", "framework_version"}, partial(load_framework, framework, values["framework_version"])


def _error_of(check: Check) -> InvalidInput | None:
    try:
        check()
    except UnreadableFile:
        # The form names no files: it is one of the server's own, and no fault of what was typed.
        raise
    except InvalidInput as error:
        return error
    return None
