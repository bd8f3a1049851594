"""A sheet in the names of Megatron-Core's configuration, spelled as the target at hand does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import Plan
from planner.export.job import Job
from planner.export.sheet import Sheet

Spelled: TypeAlias = "tuple[str, Any] | None"
Spelling: TypeAlias = Callable[[str, Any], Spelled]
"""From a setting and its value to the target's word and its value; None where saying nothing means that value."""


class Core:
    """Settings of Megatron-Core that are written to a sheet."""

    def __init__(self, sheet: Sheet, spelling: Spelling) -> None:
        self.sheet, self._spelling = sheet, spelling

    @property
    def job(self) -> Job:
        return self.sheet.job

    @property
    def plan(self) -> Plan:
        return self.sheet.plan

    @property
    def model(self) -> ModelSpec:
        return self.sheet.job.model

    def put(self, name: str, value: Any, *fields: str) -> None:
        """A setting that stands for these fields of the plan."""
        spelled = self._spelling(name, value)
        if spelled is None:
            self.sheet.follows(*fields)
        else:
            self.sheet.put(*spelled, *fields)

    def put_model(self, name: str, value: Any, field: str) -> None:
        """A setting that stands for a field of the model; refused under that name where the version lacks the word."""
        spelled = self._spelling(name, value)
        if spelled is None:
            return
        word, said = spelled
        if self.sheet.has(word):
            self.sheet.put(word, said)
        else:
            self.refuse_model(field, self.lacking(name, value))

    def refuse_model(self, field: str, why: str) -> None:
        """A field of the model, or of its ``moe`` after a dot, that has no words."""
        value: Any = self.model
        for name in field.split("."):
            value = getattr(value, name)
        self.sheet.refuse(f"model.{field}", value, why)

    def has(self, name: str, value: Any = True) -> bool:
        """Whether this version can say the setting, or what the entry of words.yaml with that very name stands for."""
        word = self._word(name, value)
        return word is None or self.sheet.has(word)

    def lacking(self, name: str, value: Any = True) -> str:
        """Why ``has`` is false, in words."""
        return self.sheet.words.lacking(self._word(name, value) or name, self.sheet.version)

    def _word(self, name: str, value: Any) -> str | None:
        spelled = (name, value) if name in self.sheet.words.words else self._spelling(name, value)
        return None if spelled is None else spelled[0]
