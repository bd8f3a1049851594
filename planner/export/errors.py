"""Why a plan can't be exported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from costmodel.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One thing that a target has no words for.

    Attributes:
        field: of the plan, or ``model.`` and a field of the model.
        why: what the target has instead, in words.
    """

    field: str
    value: Any
    why: str


class Inexpressible(InvalidInput):
    """The target, or this version of it, can't express parts of the plan; nothing is exported.

    Attributes:
        refusals: all of them.
    """

    slug = "inexpressible"

    def __init__(self, target: str, version: str | None, refusals: Sequence[Refusal]) -> None:
        self.refusals = tuple(refusals)
        self.target = target if version is None else f"{target} {version}"
        found = "; ".join(f"{entry.field} {_shown(entry.value)}: {entry.why}" for entry in self.refusals)
        super().__init__("target", self.target, found)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).__new__, (type(self), *self.args), vars(self)

    @property
    def members(self) -> dict[str, Any]:
        return {"refusals": [asdict(entry) for entry in self.refusals]}

    def _found(self) -> str:
        return f"{self.target} can't express this plan"


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
