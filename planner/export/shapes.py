"""A model's shape on a sheet: nothing of it is forgotten silently, as ``Sheet`` sees to for the plan.

Fields of a part are named with a dot, ``moe.top_k``; a part that the model lacks has none to account for.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from costmodel.spec.model import ModelSpec
from planner.export.sheet import Sheet

# They say nothing of the shape.
_ABOUT = ("name", "source", "notes")
_UNSAID = "no exporter of this target says it"


class Shape:
    """What of the model is written so far."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self.model: ModelSpec = sheet.job.model
        self._fields = _fields_of(self.model)
        self._accounted: set[str] = set()

    def put(self, word: str, value: Any, *names: str) -> None:
        """Write a word that stands for these fields of the model; where the version lacks it, they are refused."""
        self._accounted.update(names)
        if self._sheet.has(word):
            self._sheet.put(word, value)
            return
        for name in names:
            self.refuse(name, self._sheet.words.lacking(word, self._sheet.version))

    def follows(self, *names: str) -> None:
        """They follow from what is written."""
        self._accounted.update(names)

    def only(self, name: str, *values: Any, why: str) -> None:
        """The target builds this and nothing else: any other value is refused."""
        self._accounted.add(name)
        if self._fields.get(name) not in values:
            self.refuse(name, why)

    def refuse(self, name: str, why: str) -> None:
        self._accounted.add(name)
        self._sheet.refuse(f"model.{name}", _shown(self._fields.get(name)), why)

    def finish(self) -> None:
        """Refuse what nobody accounted for, unless the model does not have it."""
        for name, value in self._fields.items():
            if name not in self._accounted and value != _absent(name):
                self.refuse(name, _UNSAID)


def _fields_of(model: ModelSpec) -> dict[str, Any]:
    """Every field by name, with those of the parts that it has; a part alone says whether it is there."""
    found: dict[str, Any] = {}
    for name in ModelSpec.model_fields:
        value = getattr(model, name)
        if name in _ABOUT:
            continue
        found[name] = value
        if isinstance(value, BaseModel):
            found |= {f"{name}.{inner}": getattr(value, inner) for inner in type(value).model_fields}
    return found


def _absent(name: str) -> Any:
    """The value of a field that a plain model leaves out; itself for parts, whose fields say it all."""
    outer, _, inner = name.partition(".")
    field = ModelSpec.model_fields[outer]
    if not inner:
        return field.default
    part = next(kind for kind in getattr(field.annotation, "__args__", ()) if kind is not type(None))
    return part.model_fields[inner].default


def _shown(value: Any) -> Any:
    return f"with {', '.join(type(value).model_fields)}" if isinstance(value, BaseModel) else value
