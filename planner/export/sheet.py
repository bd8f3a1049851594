"""The sheet on which a target is told a plan: nothing of the plan is forgotten silently.

Whoever writes says of every word which fields of the plan it stands for. What is not written has to be accounted for:
as what the target does anyway, as what follows from the rest, or as what it can't do. ``finish`` refuses the plan with
the whole list of what it can't do, and of what nobody accounted for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from costmodel.spec.plan import Plan
from planner.export.errors import Inexpressible, Refusal
from planner.export.job import Job
from planner.export.words import Words

_UNSAID = "no exporter of this target says it"


class Sheet:
    """What is written so far.

    Attributes:
        settings: word -> value, in the order in which they were written.
    """

    def __init__(self, job: Job, target: str, words: Words, version: str | None) -> None:
        self.job, self.plan, self.target, self.words, self.version = job, job.plan, target, words, version
        self.settings: dict[str, Any] = {}
        self._accounted: set[str] = set()
        self._refusals: list[Refusal] = []

    def put(self, word: str, value: Any, *fields: str) -> None:
        """Write a word that stands for these fields of the plan (none for what the model or the workload says).

        Where the version lacks the word, what it stands for is refused.
        """
        self._accounted.update(fields)
        if self.words.has(word, self.version):
            self.settings[word] = value
            return
        why = self.words.lacking(word, self.version)
        for name in fields or (word,):
            self.refuse(name, getattr(self.plan, name, value), why)

    def follows(self, *fields: str) -> None:
        """These fields follow from what is written: the target works them out by itself, to the same value."""
        self._accounted.update(fields)

    def only(self, name: str, *values: Any, why: str) -> None:
        """The target does this and nothing else: any other value of the field is refused."""
        self._accounted.add(name)
        if getattr(self.plan, name) not in values:
            self.refuse(name, getattr(self.plan, name), why)

    def refuse(self, name: str, value: Any, why: str) -> None:
        """The target can't express this; ``name`` is a field of the plan, or ``model.`` and one of the model."""
        self._accounted.add(name)
        refusal = Refusal(field=name, value=value, why=why)
        if refusal not in self._refusals:
            self._refusals.append(refusal)

    def has(self, word: str) -> bool:
        """Whether this version has the word."""
        return self.words.has(word, self.version)

    def finish(self) -> dict[str, Any]:
        """The settings.

        Raises:
            Inexpressible: something of the plan was refused, or is said by nothing.
        """
        for name in _unsaid(self._accounted):
            self._refusals.append(Refusal(field=name, value=getattr(self.plan, name), why=_UNSAID))
        if self._refusals:
            raise Inexpressible(self.target, self.version, self._refusals)
        return self.settings


def _unsaid(accounted: Iterable[str]) -> list[str]:
    return [name for name in Plan.model_fields if name not in set(accounted)]
