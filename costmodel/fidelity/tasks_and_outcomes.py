"""What the text of a run says of the workload and of its end; the spellings are data."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from typing import Literal

from costmodel.catalog.documents import read_mapping
from costmodel.spec.base import Frozen, IsoDate
from costmodel.spec.validation import build

Outcome = Literal["ok", "oom", "failed"]

_NEITHER_LETTER_NOR_DIGIT = re.compile(r"[\W_]+")


class _TaskWord(Frozen):
    pattern: str
    means: Literal["pretraining", "other"]


class _OutcomeWord(Frozen):
    pattern: str
    means: Outcome


class _OffloadWord(Frozen):
    pattern: str
    means: Literal["nothing"]


class _Words(Frozen):
    """The document. Of a list, the first word whose pattern is found is meant."""

    source: str
    retrieved: IsoDate
    task: tuple[_TaskWord, ...]
    outcome: tuple[_OutcomeWord, ...]
    offload: tuple[_OffloadWord, ...]


@lru_cache(maxsize=4096)
def is_pretraining(task: str) -> bool:
    """Whether a whole model is trained on whole sequences; a blank task is taken for that."""
    if not task.strip():
        return True
    plain = _plain(task)
    found = next((word.means for word in _words().task if re.search(word.pattern, plain)), "other")
    return found == "pretraining"


@lru_cache(maxsize=4096)
def outcome_of(text: str) -> Outcome | None:
    """How the run ended, ``oom`` being the device's memory; blank is ok, None is a text that says nothing known."""
    if not text.strip():
        return "ok"
    plain = _plain(text)
    return next((word.means for word in _words().outcome if re.search(word.pattern, plain)), None)


@lru_cache(maxsize=4096)
def is_offloaded(text: str) -> bool:
    """Whether anything lives on the host."""
    plain = _plain(text)
    return bool(text.strip()) and not any(re.search(word.pattern, plain) for word in _words().offload)


def _plain(text: str) -> str:
    return _NEITHER_LETTER_NOR_DIGIT.sub(" ", text.lower()).strip()


@lru_cache(maxsize=1)
def _words() -> _Words:
    file = resources.files("costmodel.catalog") / "runs" / "tasks_and_outcomes.yaml"
    return build(_Words, read_mapping(file, "tasks_and_outcomes"), "tasks_and_outcomes")
