"""The bookkeeping of a plan's completion: which fields the draft gave, which were assumed, which follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from costmodel.spec.plan_draft import PlanDraft


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A field that the plan leaves open, what it was taken to be, and why.

    Attributes:
        assumed: True for a choice that somebody could have made otherwise, False for what follows from other fields.
        avoids: the rules that the usual value would break, where another one was taken for that.
    """

    field: str
    value: Any
    why: str
    assumed: bool
    avoids: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A value to take in place of the usual one, and the rules that the usual one would break."""

    value: Any
    avoids: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Settling:
    """Fields settled so far: the draft's own values, else the chosen ones, else the one that is offered."""

    draft: PlanDraft
    chosen: Mapping[str, Chosen] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    derived: list[Derived] = field(default_factory=list)

    def assume(self, name: str, value: Any, why: str) -> Any:
        """The draft's own value, or a default."""
        return self._settle(name, value, why, assumed=True)

    def follow(self, name: str, value: Any, why: str) -> Any:
        """The draft's own value, or what the fields settled before imply."""
        return self._settle(name, value, why, assumed=False)

    def _settle(self, name: str, value: Any, why: str, *, assumed: bool) -> Any:
        own = getattr(self.draft, name)
        if own is None:
            choice = self.chosen.get(name)
            if choice is not None and choice.value != value:
                why = f"the usual {str(value).lower()} breaks {', '.join(choice.avoids)}"
                value, assumed = choice.value, True
                self.derived.append(Derived(field=name, value=value, why=why, assumed=assumed, avoids=choice.avoids))
            else:
                self.derived.append(Derived(field=name, value=value, why=why, assumed=assumed))
        self.values[name] = value if own is None else own
        return self.values[name]
